"""The listing: the tiles of an area, page by page, in a stable order."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from hashlib import sha256
from typing import Any

from attrs import frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox, TileCoverage, TileId
from tileferry.domain.validation import parse_date
from tileferry.entrypoints.provider.responses import ProviderResponse, RefusalError, json_response

SOURCE = "reference"
"""The source name used inside the provider; its responses do not contain it."""

_CURSOR = re.compile(r"([0-9]{1,9})-([0-9]{1,18})-([0-9a-f]{12})", re.ASCII)
_ZOOMS = re.compile(r"[0-9]{1,2}(,[0-9]{1,2})*", re.ASCII)
_PARAMETERS = ("bbox", "zoom", "list-only", "cursor", "date")


@frozen(kw_only=True)
class ListedTile:
    """The facts that the provider reports for one tile, in the listing and in its headers."""

    tile: TileId
    produced_at: datetime
    resolution_m_per_px: float
    estimated_bytes: int

    @property
    def entry(self) -> dict[str, Any]:
        """The tile's entry in the listing."""
        return {
            "z": self.tile.zoom,
            "x": self.tile.x,
            "y": self.tile.y,
            "produced_at": format_time(self.produced_at),
            "resolution_m_per_px": self.resolution_m_per_px,
            "estimated_bytes": self.estimated_bytes,
        }


def format_time(at: datetime) -> str:
    """Format a time as the provider does: UTC, whole seconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@frozen(kw_only=True)
class ServedPage:
    """One page, the cursor it was requested with, and the cursors that can follow."""

    tiles: list[dict[str, Any]]
    cursor: str | None
    next: str | None
    again: str
    """The first cursor of the listing, for the fault that makes it endless."""

    @property
    def response(self) -> ProviderResponse:
        """The page as JSON."""
        return json_response({"tiles": self.tiles, "next": self.next})


@frozen
class ListingQuery:
    """A listing request."""

    coverage: TileCoverage
    cursor: str | None
    turn: int
    offset: int
    day: date | None = None
    """The date of the imagery; ``None`` for the current imagery."""

    @classmethod
    def parse(cls, given: Mapping[str, str], count: int) -> "ListingQuery":
        """Parse the query; ``count`` is the number of parameters, repeated ones included."""
        if count != len(given) or not set(given) <= set(_PARAMETERS):
            message = f"the parameters are {', '.join(_PARAMETERS)}, each once"
            raise RefusalError(400, "bad_query", message)
        if given.get("list-only") != "true":
            message = "areas can only be listed: list-only must be true"
            raise RefusalError(400, "bad_query", message)
        coverage = _parse_coverage(given.get("bbox", ""), given.get("zoom", ""))
        cursor = given.get("cursor")
        turn, offset = (0, 0) if cursor is None else _decode_cursor(cursor, coverage)
        return cls(coverage, cursor, turn, offset, parse_day(given))

    def build_page(self, size: int, facts: Callable[[TileId], ListedTile]) -> ServedPage:
        """Return the page at the cursor."""
        end = min(self.offset + size, self.coverage.count)
        tiles = _slice_tiles(self.coverage, self.offset, end)
        return ServedPage(
            tiles=[facts(tile).entry for tile in tiles],
            cursor=self.cursor,
            next=None
            if end == self.coverage.count
            else _encode_cursor(self.turn, end, self.coverage),
            again=_encode_cursor(self.turn + 1, 0, self.coverage),
        )


def parse_day(given: Mapping[str, str]) -> date | None:
    """Return the requested date of the imagery, if any."""
    text = given.get("date")
    day = None if text is None else parse_date(text)
    if text is not None and day is None:
        raise RefusalError(400, "bad_date", "date must be a day, such as 2026-05-01")
    return day


def _parse_coverage(bbox: str, zoom: str) -> TileCoverage:
    if not _ZOOMS.fullmatch(zoom):
        message = "zoom must be a list of whole numbers, such as 15,16"
        raise RefusalError(400, "bad_zoom", message)
    try:
        box = BBox.parse(bbox)
    except InvalidValueError as error:
        raise RefusalError(400, "bad_bbox", str(error)) from error
    try:
        return TileCoverage(bbox=box, zoom_levels=[int(level) for level in zoom.split(",")])
    except InvalidValueError as error:
        raise RefusalError(400, "bad_zoom", str(error)) from error


def _slice_tiles(coverage: TileCoverage, begin: int, end: int) -> Iterator[TileId]:
    """Yield the tiles from one position to another, in the order of ``coverage.tiles``.

    Positions are found through the tile ranges, so the last page costs no more than the first.
    """
    for part in coverage.ranges:
        rows = part.y_max - part.y_min + 1
        for position in range(max(begin, 0), min(end, part.count)):
            x, y = part.x_min + position // rows, part.y_min + position % rows
            yield TileId(source=SOURCE, zoom=part.zoom, x=x, y=y)
        begin, end = begin - part.count, end - part.count


def _encode_cursor(turn: int, offset: int, coverage: TileCoverage) -> str:
    return f"{turn}-{offset}-{_compute_checksum(coverage)}"


def _decode_cursor(cursor: str, coverage: TileCoverage) -> tuple[int, int]:
    match = _CURSOR.fullmatch(cursor)
    if match is None or match[3] != _compute_checksum(coverage) or int(match[2]) >= coverage.count:
        message = "cursor is not one that this listing gave"
        raise RefusalError(400, "bad_cursor", message)
    return int(match[1]), int(match[2])


def _compute_checksum(coverage: TileCoverage) -> str:
    area = f"{coverage.bbox}|{coverage.zoom_levels}"
    return sha256(area.encode()).hexdigest()[:12]
