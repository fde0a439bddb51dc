"""The provider's answer to a batch: one line for each of its tiles, no more and no less."""

from collections.abc import Mapping

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json_input import parse_json
from tileferry.domain.tiles.envelope import Batch
from tileferry.domain.tiles.upload import PerTileStatus, TileUploadStatus

_STATUSES = {status.value: status for status in TileUploadStatus}


def parse_upload_answer(
    content: bytes, batch: Batch, *, bytes_max: int
) -> tuple[PerTileStatus, ...]:
    """Read an answer, in the order of the batch; what is not as agreed is refused by its field."""
    data = parse_json(content, field="answer", bytes_max=bytes_max)
    results = data.get("results") if isinstance(data, Mapping) else None
    if not isinstance(results, list):
        raise InvalidValueError(field="answer.results", value=None, problem="must be a list")
    expected = {str(tile.tile_id): tile.tile_id for tile in batch.tiles}
    found: dict[str, PerTileStatus] = {}
    for index, line in enumerate(results):
        path = f"answer.results[{index}]"
        tile = line.get("tile_id") if isinstance(line, Mapping) else None
        if not isinstance(line, Mapping) or not isinstance(tile, str) or tile not in expected:
            raise InvalidValueError(
                field=f"{path}.tile_id", value=tile, problem="is no tile of the batch"
            )
        if tile in found:
            raise InvalidValueError(field=f"{path}.tile_id", value=tile, problem="comes twice")
        status, reason = line.get("status"), line.get("reason")
        if not isinstance(status, str) or status not in _STATUSES:
            raise InvalidValueError(
                field=f"{path}.status",
                value=status,
                problem=f"must be one of {', '.join(_STATUSES)}",
            )
        if reason is not None and not isinstance(reason, str):
            raise InvalidValueError(
                field=f"{path}.reason", value=reason, problem="must be text, or null"
            )
        found[tile] = PerTileStatus(tile_id=expected[tile], status=_STATUSES[status], reason=reason)
    missing = next((tile for tile in expected if tile not in found), None)
    if missing is not None:
        raise InvalidValueError(
            field="answer.results", value=missing, problem="has no line for this tile"
        )
    return tuple(found[tile] for tile in expected)
