"""Maps of tiles by outcome. Each outcome has a colour and a symbol; either one is enough."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import frozen

from tileferry.domain.tiles import BBox
from tileferry.domain.tiles.coverage import TileCoverage, TileRange
from tileferry.entrypoints.demo.findings import Findings, list_tiles
from tileferry.entrypoints.demo.report.markup import (
    Markup,
    element,
    escape_text,
    join_markup,
    label,
    picture,
)
from tileferry.entrypoints.demo.scenario import CAPTURED, CAPTURED_ZOOM

_SIDE = 240.0
_LEFT, _TOP, _RIGHT, _BOTTOM = 62.0, 8.0, 8.0, 40.0
Cell = Callable[[float, float, float], str]


def _square(x: float, y: float, side: float) -> str:
    return f"M{x:g} {y:g}h{side:g}v{side:g}h{-side:g}z"


def _slash(x: float, y: float, side: float) -> str:
    return f"M{x:g} {y + side:g}l{side:g} {-side:g}"


def _cross(x: float, y: float, side: float) -> str:
    return f"M{x:g} {y:g}l{side:g} {side:g}m{-side:g} 0l{side:g} {-side:g}"


def _dot(x: float, y: float, side: float) -> str:
    return f"M{x + side / 2:g} {y + side / 2:g}h.01"


def _no_mark(_x: float, _y: float, _side: float) -> str:
    return ""


@frozen
class TileOutcome:
    """A possible outcome of a tile, and how it is drawn."""

    name: str
    look: str
    mark: Cell


STORED = TileOutcome("stored", "stored", _no_mark)
DOWNGRADED = TileOutcome("stored, downgraded (stale)", "downgraded", _slash)
MISSING = TileOutcome("missing", "missing", _dot)
DELIVERED = TileOutcome("captured and delivered", "delivered", _no_mark)
GIVEN_UP = TileOutcome("given up: an operator decides", "given-up", _cross)
TILE_OUTCOMES = (STORED, DOWNGRADED, MISSING, DELIVERED, GIVEN_UP)


def render_maps(found: Findings) -> Markup:
    """Draw the area at the kill and before the flight, and the tiles that the flight captured."""
    killed, ready = found.notes.killed, found.notes.ready
    holed = {int(tile.split("/")[0]) for tile in list_tiles(killed, "hole")}  # others are complete
    panels = [
        *_render_area_panels("At the power loss", killed, holed, "killed"),
        *_render_area_panels("Before the flight", ready, _list_zooms(found), "ready"),
        _render_captured(found),
    ]
    return join_markup([element("div", *panels, class_="maps"), render_map_legend()])


def render_map_legend() -> Markup:
    items = [
        element(
            "li",
            element(
                "svg", _render_cells(fate, [(2, 2)], 14.0), viewBox="0 0 18 18", aria_hidden="true"
            ),
            escape_text(fate.name),
        )
        for fate in TILE_OUTCOMES
    ]
    return element("ul", *items, class_="legend")


def _render_area_panels(
    title: str, drawn: Mapping[str, Any], zooms: set[int], key: str
) -> list[Markup]:
    west, south, east, north = drawn["bbox"]
    coverage = TileCoverage(
        bbox=BBox(west=west, south=south, east=east, north=north), zoom_levels=tuple(sorted(zooms))
    )
    missing, old = set(list_tiles(drawn, "hole")), set(list_tiles(drawn, "downgraded"))

    def fate_of(tile: str) -> TileOutcome:
        return MISSING if tile in missing else DOWNGRADED if tile in old else STORED

    return [
        _render_panel(f"{title}: {drawn['verdict']}", part, fate_of, f"{key}-{part.zoom}")
        for part in coverage.ranges
    ]


def _list_zooms(found: Findings) -> set[int]:
    return {int(tile.split("/")[0]) for tile in found.download.tiles}


def _render_captured(found: Findings) -> Markup:
    columns, rows = [x for x, _ in CAPTURED], [y for _, y in CAPTURED]
    place = TileRange(
        zoom=CAPTURED_ZOOM,
        x_min=min(columns),
        x_max=max(columns),
        y_min=min(rows),
        y_max=max(rows),
    )

    def fate_of(tile: str) -> TileOutcome:
        if tile in found.upload.given_up:
            return GIVEN_UP
        return DELIVERED if tile in found.upload.accepted else MISSING

    return _render_panel("Captured by the flight", place, fate_of, "captured")


def _render_panel(
    title: str, place: TileRange, fate_of: Callable[[str], TileOutcome], key: str
) -> Markup:
    columns, rows = place.x_max - place.x_min + 1, place.y_max - place.y_min + 1
    side = _SIDE / max(columns, rows)
    cells: dict[TileOutcome, list[tuple[float, float]]] = {}
    for x in range(columns):
        for y in range(rows):
            fate = fate_of(f"{place.zoom}/{place.x_min + x}/{place.y_min + y}")
            cells.setdefault(fate, []).append((_LEFT + x * side, _TOP + y * side))
    counts = ", ".join(f"{len(cells[fate])} {fate.name}" for fate in TILE_OUTCOMES if fate in cells)
    wide, high = _LEFT + columns * side, _TOP + rows * side
    drawing = picture(
        *(_render_cells(fate, cells[fate], side * 0.9) for fate in TILE_OUTCOMES if fate in cells),
        label(f"x {place.x_min}", _LEFT, high + 16),
        label(place.x_max, wide, high + 16, anchor="end"),
        label("tile columns, west to east", (_LEFT + wide) / 2, high + 33, anchor="middle"),
        label(f"y {place.y_min}", _LEFT - 5, _TOP + 11, anchor="end"),
        label(place.y_max, _LEFT - 5, high - 3, anchor="end"),
        width=_LEFT + _SIDE + _RIGHT,
        height=high + _BOTTOM,
        title=f"{title}, zoom {place.zoom}",
        description=f"A map of {columns} by {rows} tiles, north up: {counts}.",
        key=f"map-{key}",
    )
    told = element(
        "figcaption", element("strong", escape_text(title)), escape_text(f", zoom {place.zoom}")
    )
    return element("figure", told, drawing, element("p", escape_text(counts), class_="quiet"))


def _render_cells(fate: TileOutcome, corners: Iterable[tuple[float, float]], side: float) -> Markup:
    there = list(corners)
    squares = "".join(_square(x, y, side) for x, y in there)
    marks = "".join(fate.mark(x, y, side) for x, y in there)
    drawn = [element("path", d=squares, class_=f"cell {fate.look}")]
    if marks:
        drawn.append(element("path", d=marks, class_=f"mark {fate.look}"))
    return join_markup(drawn)
