"""A signed batch of captured tiles: what is sent, to the byte, however often it is sent.

A batch is ``multipart/form-data``: first the manifest, then each tile, in the manifest's order. The
signature covers method, path, the body's hash, the idempotency key, the time and the flight.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import Any

from attrs import field, frozen

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import JsonObject, parse_json
from tileferry.domain.tiles.metadata import TILE_BYTES_MAX, TileMetadata
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.tiles.upload import PerTileStatus, TileUploadStatus
from tileferry.domain.validation import (
    as_float,
    as_tuple,
    aware,
    each,
    instance,
    integer,
    name,
    positive,
    sha256_hex,
    text,
)

BATCH_TILES_MAX = 1_000
PUBLIC_KEY_BYTES, SIGNATURE_BYTES = 32, 64
_MANIFEST_BYTES_MAX = BATCH_TILES_MAX * 1_024
_PIECE_BYTES = 256 * 1024


@frozen(kw_only=True)
class EnvelopeTile:
    """One line of the manifest."""

    tile_id: TileId = field(validator=instance(TileId))
    captured_at: datetime = field(validator=aware)
    # Equal numbers are written alike, so a whole one is read back as an integer.
    resolution_m_per_px: float = field(converter=as_float, validator=positive)
    sha256: str = field(validator=sha256_hex)
    size: int = field(validator=integer(0, TILE_BYTES_MAX))

    @classmethod
    def from_metadata(cls, tile: TileMetadata) -> "EnvelopeTile":
        """Return the line of a tile that waits for its upload."""
        return cls(
            tile_id=tile.tile_id,
            captured_at=tile.produced_at,
            resolution_m_per_px=tile.resolution_m_per_px,
            sha256=tile.blob.sha256,
            size=tile.blob.length,
        )

    @classmethod
    def parse(cls, line: Any) -> "EnvelopeTile":
        """Read a line as ``as_json`` writes it."""
        return cls(
            tile_id=TileId.parse(line["tile_id"]),
            captured_at=datetime.fromisoformat(line["captured_at"]),
            resolution_m_per_px=line["resolution_m_per_px"],
            sha256=line["sha256"],
            size=line["size"],
        )

    def as_json(self) -> dict[str, JsonValue]:
        """Return the line in JSON's terms, its number in the canonical form."""
        metres = self.resolution_m_per_px
        return {
            "tile_id": str(self.tile_id),
            "captured_at": self.captured_at.isoformat(),
            "resolution_m_per_px": int(metres) if metres.is_integer() else metres,
            "sha256": self.sha256,
            "size": self.size,
        }


@frozen(kw_only=True)
class Batch:
    """Tiles that are sent together, under one key."""

    key: str = field(validator=text)
    flight_id: str = field(validator=name)
    tiles: tuple[EnvelopeTile, ...] = field(
        converter=as_tuple, validator=each(instance(EnvelopeTile))
    )

    def __attrs_post_init__(self) -> None:
        if not 0 < len(self.tiles) <= BATCH_TILES_MAX:
            raise InvalidValueError(
                field="Batch.tiles",
                value=len(self.tiles),
                problem=f"must be 1 to {BATCH_TILES_MAX} tiles",
            )

    @classmethod
    def parse(cls, key: str, manifest: bytes) -> "Batch":
        """Read a batch from its manifest; of what this makes, ``manifest`` is the same again."""
        data = parse_json(manifest, field="manifest", bytes_max=_MANIFEST_BYTES_MAX)
        match data:
            case {"flight_id": str(flight_id), "tiles": list(lines)}:
                pass
            case _:
                raise InvalidValueError(
                    field="manifest", value="…", problem="has no flight_id, or no tiles"
                )
        try:
            return cls(key=key, flight_id=flight_id, tiles=map(EnvelopeTile.parse, lines))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidValueError(
                field="manifest", value="…", problem=f"has a line that is none: {error}"
            ) from error

    @cached_property
    def boundary(self) -> str:
        """What parts the body; of the key, so that a repeat has the same bytes."""
        return f"tileferry-{sha256(self.key.encode()).hexdigest()[:32]}"

    @cached_property
    def manifest(self) -> bytes:
        """The first part: canonical JSON, of values of which nothing else has to be looked at."""
        lines = [tile.as_json() for tile in self.tiles]
        return json.dumps(
            {"flight_id": self.flight_id, "tiles": lines}, sort_keys=True, separators=(",", ":")
        ).encode()

    @cached_property
    def size(self) -> int:
        """How many bytes the body has, without reading a tile."""
        frame = sum(map(len, self.iter_body(b"" for _ in self.tiles)))
        return frame + sum(tile.size for tile in self.tiles)

    def iter_body(self, contents: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the body in pieces; ``contents`` are the tiles' bytes, in their order.

        A piece is several small tiles: what it costs to send one does not depend on its size.
        """
        piece = [self._build_part_header("manifest", "application/json"), self.manifest]
        waiting = len(self.manifest)
        for tile, content in zip(self.tiles, contents, strict=True):
            piece += (
                b"\r\n",
                self._build_part_header(str(tile.tile_id), "application/octet-stream"),
                content,
            )
            waiting += len(content)
            if waiting >= _PIECE_BYTES:
                yield b"".join(piece)
                piece, waiting = [], 0
        yield b"".join([*piece, f"\r\n--{self.boundary}--\r\n".encode()])

    def _build_part_header(self, part: str, content_type: str) -> bytes:
        return (
            f"--{self.boundary}\r\n"
            f'Content-Disposition: form-data; name="{part}"; filename="{part}"\r\n'
            f"Content-Type: {content_type}\r\n\r\n"
        ).encode()


def build_signing_input(
    *, method: str, path: str, body_sha256: str, key: str, timestamp: str, flight_id: str
) -> bytes:
    """Return the bytes that a signature is over."""
    return "\n".join((method, path, body_sha256, key, timestamp, flight_id)).encode()


def _check_length(length: int) -> Any:
    def check(_instance: object, attribute: Any, value: object) -> None:
        if not (isinstance(value, bytes) and len(value) == length):
            raise InvalidValueError(
                field=attribute.name, value="…", problem=f"must be {length} bytes"
            )

    return check


@frozen(kw_only=True)
class SignedEnvelope:
    """A batch that is ready to be sent, and to be sent again without a private key."""

    batch: Batch = field(validator=instance(Batch))
    body_sha256: str = field(validator=sha256_hex)
    timestamp: str = field(validator=text)
    public_key: bytes = field(validator=_check_length(PUBLIC_KEY_BYTES))
    signature: bytes = field(validator=_check_length(SIGNATURE_BYTES), repr=lambda _: "…")


def parse_upload_response(
    content: bytes, batch: Batch, *, bytes_max: int
) -> tuple[PerTileStatus, ...]:
    """Read an answer, in the order of the batch; what is not as agreed is refused by its field."""
    answer = parse_json(content, field="answer", bytes_max=bytes_max)
    results = JsonObject.from_value(answer, "answer").get_list("results")
    expected = {str(tile.tile_id): tile.tile_id for tile in batch.tiles}
    found: dict[str, PerTileStatus] = {}
    for index, line in enumerate(results):
        data = JsonObject.from_value(line, f"answer.results[{index}]")
        tile = data.fields.get("tile_id")
        if not isinstance(tile, str) or tile not in expected:
            raise data.build_error("tile_id", "is no tile of the batch")
        if tile in found:
            raise data.build_error("tile_id", "comes twice")
        status, reason = data.get_enum("status", TileUploadStatus), data.fields.get("reason")
        if status is TileUploadStatus.UNREADABLE:
            raise data.build_error("status", "is not for a provider to say")
        if reason is not None and not isinstance(reason, str):
            raise data.build_error("reason", "must be text, or null")
        found[tile] = PerTileStatus(tile_id=expected[tile], status=status, reason=reason)
    missing = next((tile for tile in expected if tile not in found), None)
    if missing is not None:
        raise InvalidValueError(
            field="answer.results", value=missing, problem="has no line for this tile"
        )
    return tuple(found[tile] for tile in expected)
