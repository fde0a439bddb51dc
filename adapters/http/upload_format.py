"""The wire format of an upload: the multipart request body and the JSON response.

The body is ``multipart/form-data``: first the manifest, then each tile, in the manifest's order. A
repeated batch has the same bytes, so its signature stays valid.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import JsonObject, parse_json
from tileferry.domain.tiles import Batch, PerTileStatus, TileUploadStatus

_PIECE_BYTES = 256 * 1024


def build_boundary(batch: Batch) -> str:
    """Return the multipart boundary, derived from the batch's key."""
    return f"tileferry-{sha256(batch.key.encode()).hexdigest()[:32]}"


def compute_body_size(batch: Batch) -> int:
    """Return the size of the body, without reading the tiles."""
    frame = sum(map(len, iter_body(batch, (b"" for _ in batch.tiles))))
    return frame + sum(tile.size for tile in batch.tiles)


def iter_body(batch: Batch, contents: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the body in pieces; ``contents`` are the tiles' bytes in the manifest's order.

    Small tiles share a piece, because sending a piece has a fixed cost.
    """
    boundary = build_boundary(batch)
    piece = [_build_part_header(boundary, "manifest", "application/json"), batch.manifest]
    waiting = len(batch.manifest)
    for tile, content in zip(batch.tiles, contents, strict=True):
        header = _build_part_header(boundary, str(tile.tile_id), "application/octet-stream")
        piece += (b"\r\n", header, content)
        waiting += len(content)
        if waiting >= _PIECE_BYTES:
            yield b"".join(piece)
            piece, waiting = [], 0
    yield b"".join([*piece, f"\r\n--{boundary}--\r\n".encode()])


def _build_part_header(boundary: str, part: str, content_type: str) -> bytes:
    return (
        f"--{boundary}\r\n"
        f'Content-Disposition: form-data; name="{part}"; filename="{part}"\r\n'
        f"Content-Type: {content_type}\r\n\r\n"
    ).encode()


def parse_upload_response(
    content: bytes, batch: Batch, *, bytes_max: int
) -> tuple[PerTileStatus, ...]:
    """Parse a response and return its results in batch order; errors name the invalid field."""
    answer = parse_json(content, field="answer", bytes_max=bytes_max)
    results = JsonObject.from_value(answer, "answer").get_list("results")
    expected = {str(tile.tile_id): tile.tile_id for tile in batch.tiles}
    found: dict[str, PerTileStatus] = {}
    for index, line in enumerate(results):
        data = JsonObject.from_value(line, f"answer.results[{index}]")
        tile = data.fields.get("tile_id")
        if not isinstance(tile, str) or tile not in expected:
            raise data.build_error("tile_id", "is not a tile of the batch")
        if tile in found:
            raise data.build_error("tile_id", "is listed twice")
        status, reason = data.get_enum("status", TileUploadStatus), data.fields.get("reason")
        if status is TileUploadStatus.UNREADABLE:
            raise data.build_error("status", "is not a status that a provider may return")
        if reason is not None and not isinstance(reason, str):
            raise data.build_error("reason", "must be text, or null")
        found[tile] = PerTileStatus(tile_id=expected[tile], status=status, reason=reason)
    missing = next((tile for tile in expected if tile not in found), None)
    if missing is not None:
        raise InvalidValueError(
            field="answer.results", value=missing, problem="has no entry for this tile"
        )
    return tuple(found[tile] for tile in expected)
