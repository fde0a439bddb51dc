"""The provider's listing of an area: its pages, their schema, and how far they may go on."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from attrs import define, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import parse_json
from tileferry.domain.tiles.coverage import TileCoverage, TileSet
from tileferry.domain.tiles.download import TileSummary
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.validation import integer, parse_datetime

_CURSOR_CHARS_MAX = 1_024


@frozen(kw_only=True)
class ListingPage:
    """Some lines of a listing, and where it goes on."""

    tiles: tuple[TileSummary, ...]
    next: str | None


@frozen(kw_only=True)
class ListingLimits:
    """How much a provider may list before it is taken for broken."""

    page_bytes_max: int = field(default=16 * 1024 * 1024, validator=integer(1))
    pages_max: int = field(default=100_000, validator=integer(1))


def parse_listing_page(content: bytes, *, source: str, bytes_max: int) -> ListingPage:
    """Read a page; fields beyond the agreed ones are left aside, a wrong one is refused by name."""
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
        # The values check themselves; what they do not take is looked at again, to name its field.
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
    # True and False are whole numbers to Python, and to nobody else.
    if not isinstance(value, kinds) or isinstance(value, bool):
        problem = "is missing" if name not in data else f"must be {_name_kind(kinds)}"
        raise InvalidValueError(field=f"{path}.{name}", value=value, problem=problem)
    return value


_NAMES = {int: "a whole number", float: "a number", str: "text", list: "a list"}


def _name_kind(kinds: tuple[type, ...]) -> str:
    return _NAMES[kinds[-1]]


@define(kw_only=True)
class ListingProgress:
    """Follows a listing page by page, and ends one that would not end by itself."""

    coverage: TileCoverage
    limits: ListingLimits = field(factory=ListingLimits)
    _cursors: set[int] = field(factory=set, init=False)
    _pages: int = field(default=0, init=False)
    _listed: TileSet = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._listed = TileSet(self.coverage)

    def add_page(self, page: ListingPage) -> list[TileSummary]:
        """Return the tiles of a page that were not listed before; all must be of the area."""
        self._pages += 1
        if page.next is not None:
            cursor = hash(page.next)  # a hundred thousand of them must not take up memory
            if cursor in self._cursors:
                raise InvalidValueError(
                    field="listing.next", value=page.next, problem="was given before: it goes round"
                )
            if self._pages >= self.limits.pages_max:
                raise InvalidValueError(
                    field="listing.next",
                    value=page.next,
                    problem=f"leads beyond {self.limits.pages_max} pages",
                )
            self._cursors.add(cursor)
        new = []
        for tile in page.tiles:
            known = len(self._listed)
            if not self._listed.add(tile.tile_id):
                raise InvalidValueError(
                    field="listing.tiles",
                    value=str(tile.tile_id),
                    problem="is not of the area that was asked for",
                )
            if len(self._listed) > known:
                new.append(tile)
        return new
