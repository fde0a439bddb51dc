"""A signed batch of captured tiles.

The signature covers the method, path, body hash, idempotency key, time and flight.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from attrs import evolve, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import parse_json
from tileferry.domain.tiles.limits import BATCH_TILES_MAX, TILE_BYTES_MAX
from tileferry.domain.tiles.metadata import BlobLocation, BlobRef, TileMetadata
from tileferry.domain.tiles.tile_id import TileId
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

PUBLIC_KEY_BYTES, SIGNATURE_BYTES = 32, 64
_MANIFEST_BYTES_MAX = BATCH_TILES_MAX * 1_024


@frozen(kw_only=True)
class EnvelopeTile:
    """One line of the manifest."""

    tile_id: TileId = field(validator=instance(TileId))
    captured_at: datetime = field(validator=aware)
    # The manifest writes a whole number without a fraction, so it is parsed as an integer.
    resolution_m_per_px: float = field(converter=as_float, validator=positive)
    sha256: str = field(validator=sha256_hex)
    size: int = field(validator=integer(0, TILE_BYTES_MAX))
    location: BlobLocation | None = field(default=None, eq=False)
    """Where its bytes are in the cache; not part of the manifest.

    They stay there for a while when the tile is captured again, so the batch can be repeated.
    """

    is_rejected: bool | None = field(default=None, eq=False)
    """The recorded answer; ``None``: there is none."""

    @property
    def blob(self) -> BlobRef | None:
        """Its bytes in the cache, if their location is known."""
        if self.location is None:
            return None
        return BlobRef(location=self.location, length=self.size, sha256=self.sha256)

    @classmethod
    def from_metadata(cls, tile: TileMetadata) -> "EnvelopeTile":
        """Build the manifest line of a tile pending upload."""
        return cls(
            tile_id=tile.tile_id,
            captured_at=tile.produced_at,
            resolution_m_per_px=tile.resolution_m_per_px,
            sha256=tile.blob.sha256,
            size=tile.blob.length,
            location=tile.blob.location,
        )

    @classmethod
    def parse(cls, line: Any) -> "EnvelopeTile":
        """Parse a line written by ``format_line``."""
        return cls(
            tile_id=TileId.parse(line["tile_id"]),
            captured_at=datetime.fromisoformat(line["captured_at"]),
            resolution_m_per_px=line["resolution_m_per_px"],
            sha256=line["sha256"],
            size=line["size"],
        )

    def format_line(self) -> str:
        """Return the line as canonical JSON."""
        metres = self.resolution_m_per_px
        number = int(metres) if metres.is_integer() else metres
        return (
            f'{{"captured_at":"{self.captured_at.isoformat()}","resolution_m_per_px":{number!r},'
            f'"sha256":"{self.sha256}","size":{self.size},"tile_id":"{self.tile_id}"}}'
        )


@frozen(kw_only=True)
class Batch:
    """Tiles that are uploaded together under one idempotency key."""

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
    def parse(
        cls,
        key: str,
        manifest: bytes,
        locations: Sequence[BlobLocation] | None = None,
        rejected: Sequence[bool] | None = None,
    ) -> "Batch":
        """Parse a manifest. The ``manifest`` of the result has the same bytes.

        ``locations`` and ``rejected`` are those of its tiles, in order.
        """
        data = parse_json(manifest, field="manifest", bytes_max=_MANIFEST_BYTES_MAX)
        match data:
            case {"flight_id": str(flight_id), "tiles": list(lines)}:
                pass
            case _:
                raise InvalidValueError(
                    field="manifest", value="…", problem="has no flight_id or no tiles"
                )
        try:
            tiles = map(EnvelopeTile.parse, lines)
            unknown = [None] * len(lines)
            known = zip(tiles, locations or unknown, rejected or unknown, strict=True)
            return cls(
                key=key,
                flight_id=flight_id,
                tiles=[
                    evolve(tile, location=place, is_rejected=answer)
                    for tile, place, answer in known
                ],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidValueError(
                field="manifest", value="…", problem=f"has an invalid line: {error}"
            ) from error

    def with_rejections(self, rejected: Collection[TileId]) -> "Batch":
        """Return the same batch with the answers for its tiles."""
        return evolve(
            self,
            tiles=[evolve(tile, is_rejected=tile.tile_id in rejected) for tile in self.tiles],
        )

    @cached_property
    def manifest(self) -> bytes:
        """The manifest as canonical JSON.

        It is written here, not by a library: its texts are plain, and need no escapes.
        """
        lines = ",".join([tile.format_line() for tile in self.tiles])
        return f'{{"flight_id":"{self.flight_id}","tiles":[{lines}]}}'.encode()


def build_signing_input(
    *, method: str, path: str, body_sha256: str, key: str, timestamp: str, flight_id: str
) -> bytes:
    """Return the bytes that are signed."""
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
    """A signed batch. It can be sent again without the private key."""

    batch: Batch = field(validator=instance(Batch))
    body_sha256: str = field(validator=sha256_hex)
    timestamp: str = field(validator=text)
    public_key: bytes = field(validator=_check_length(PUBLIC_KEY_BYTES))
    signature: bytes = field(validator=_check_length(SIGNATURE_BYTES), repr=lambda _: "…")
