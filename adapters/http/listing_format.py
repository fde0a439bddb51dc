"""The JSON of a provider's listing: one page of an area's tiles."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import parse_json
from tileferry.domain.tiles import ListingPage, TileId, TileSummary
from tileferry.domain.validation import parse_datetime

_CURSOR_CHARS_MAX = 1_024


def parse_listing_page(content: bytes, *, source: str, bytes_max: int) -> ListingPage:
    """Parse a page; ignore unknown fields, and name the invalid field in errors."""
    data = parse_json(content, field="listing", bytes_max=bytes_max)
    tiles = _get_field(data, "listing", "tiles", list)
    cursor = data.get("next") if isinstance(data, Mapping) else None
    if cursor is not None and not (
        isinstance(cursor, str) and 0 < len(cursor) <= _CURSOR_CHARS_MAX
    ):
        raise InvalidValueError(
            field="listing.next",
            value=cursor,
            problem=f"must be null, or text of 1 to {_CURSOR_CHARS_MAX} characters",
        )
    lines = (_parse_tile(line, index, source) for index, line in enumerate(tiles))
    return ListingPage(tiles=tuple(lines), next=cursor)


def _parse_tile(line: Any, index: int, source: str) -> TileSummary:
    try:
        # The constructors validate. Only a line that fails is parsed again field by field, to name
        # the field.
        produced_at = datetime.fromisoformat(line["produced_at"])
        if produced_at.tzinfo is not UTC:
            return _parse_tile_by_field(line, f"listing.tiles[{index}]", source)
        return TileSummary(
            tile_id=TileId(source=source, zoom=line["z"], x=line["x"], y=line["y"]),
            produced_at=produced_at,
            resolution_m_per_px=line["resolution_m_per_px"],
            estimated_bytes=line["estimated_bytes"],
        )
    except (LookupError, TypeError, ValueError):
        return _parse_tile_by_field(line, f"listing.tiles[{index}]", source)


def _parse_tile_by_field(line: Any, path: str, source: str) -> TileSummary:
    zoom, x, y = (_get_field(line, path, name, int) for name in ("z", "x", "y"))
    produced_at = parse_datetime(
        _get_field(line, path, "produced_at", str), field=f"{path}.produced_at"
    )
    resolution = _get_field(line, path, "resolution_m_per_px", int, float)
    estimated_bytes = _get_field(line, path, "estimated_bytes", int)
    try:
        return TileSummary(
            tile_id=TileId(source=source, zoom=zoom, x=x, y=y),
            produced_at=produced_at,
            resolution_m_per_px=resolution,
            estimated_bytes=estimated_bytes,
        )
    except InvalidValueError as error:
        name = error.field.rpartition(".")[2]
        raise InvalidValueError(
            field=f"{path}.{'z' if name == 'zoom' else name}",
            value=error.value,
            problem=error.problem,
        ) from None


def _get_field(data: Any, path: str, name: str, *kinds: type) -> Any:
    if not isinstance(data, Mapping):
        raise InvalidValueError(field=path, value=type(data).__name__, problem="must be an object")
    value = data.get(name)
    # bool is a subclass of int in Python, but not a number in JSON.
    if not isinstance(value, kinds) or isinstance(value, bool):
        problem = "is missing" if name not in data else f"must be {_name_kind(kinds)}"
        raise InvalidValueError(field=f"{path}.{name}", value=value, problem=problem)
    return value


_NAMES = {int: "a whole number", float: "a number", str: "text", list: "a list"}


def _name_kind(kinds: tuple[type, ...]) -> str:
    return _NAMES[kinds[-1]]
