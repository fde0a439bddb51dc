"""The provider's answer to a batch: one line for each of its tiles, no more and no less."""

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json_input import parse_json
from tileferry.domain.json_object import JsonObject
from tileferry.domain.tiles.envelope import Batch
from tileferry.domain.tiles.upload import PerTileStatus, TileUploadStatus


def parse_upload_answer(
    content: bytes, batch: Batch, *, bytes_max: int
) -> tuple[PerTileStatus, ...]:
    """Read an answer, in the order of the batch; what is not as agreed is refused by its field."""
    answer = parse_json(content, field="answer", bytes_max=bytes_max)
    results = JsonObject.of(answer, "answer").get_list("results")
    expected = {str(tile.tile_id): tile.tile_id for tile in batch.tiles}
    found: dict[str, PerTileStatus] = {}
    for index, line in enumerate(results):
        data = JsonObject.of(line, f"answer.results[{index}]")
        tile = data.fields.get("tile_id")
        if not isinstance(tile, str) or tile not in expected:
            raise data.refused("tile_id", "is no tile of the batch")
        if tile in found:
            raise data.refused("tile_id", "comes twice")
        status, reason = data.get_member("status", TileUploadStatus), data.fields.get("reason")
        if status is TileUploadStatus.UNREADABLE:
            raise data.refused("status", "is not for a provider to say")
        if reason is not None and not isinstance(reason, str):
            raise data.refused("reason", "must be text, or null")
        found[tile] = PerTileStatus(tile_id=expected[tile], status=status, reason=reason)
    missing = next((tile for tile in expected if tile not in found), None)
    if missing is not None:
        raise InvalidValueError(
            field="answer.results", value=missing, problem="has no line for this tile"
        )
    return tuple(found[tile] for tile in expected)
