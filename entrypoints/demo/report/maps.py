"""Maps of tiles by outcome. Each outcome has a colour and a symbol; either one is enough."""

from collections.abc import Callable, Mapping
from typing import Any

from tileferry.domain.tiles import BBox
from tileferry.domain.tiles.coverage import TileCoverage
from tileferry.domain.tiles.tile_range import TileRange
from tileferry.entrypoints.demo.findings import Findings, list_tiles
from tileferry.entrypoints.demo.scenario import CAPTURED, CAPTURED_ZOOM
from tileferry.entrypoints.report.cells import (
    TileOutcome,
    draw_cross,
    draw_dot,
    draw_nothing,
    draw_slash,
    render_cells,
    render_legend,
)
from tileferry.entrypoints.report.markup import (
    Markup,
    element,
    escape_text,
    join_markup,
    label,
    picture,
)

_SIDE = 240.0
_LEFT, _TOP, _RIGHT, _BOTTOM = 62.0, 8.0, 8.0, 40.0
STORED = TileOutcome("stored", "stored", draw_nothing)
DOWNGRADED = TileOutcome("stored, downgraded (stale)", "downgraded", draw_slash)
MISSING = TileOutcome("missing", "missing", draw_dot)
DELIVERED = TileOutcome("captured and delivered", "delivered", draw_nothing)
GIVEN_UP = TileOutcome("given up: an operator decides", "given-up", draw_cross)
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
    return join_markup([element("div", *panels, class_="maps"), render_legend(TILE_OUTCOMES)])


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
        *(render_cells(fate, cells[fate], side * 0.9) for fate in TILE_OUTCOMES if fate in cells),
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
