"""Renders the results of ``tileferry cache verify``: the whole cache, or an area's readiness."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tileferry.application.cache.readiness import FlightVerdict, ReadinessReport
from tileferry.application.cache.verification import VerificationReport
from tileferry.domain.text import format_bytes, format_utc, printable
from tileferry.domain.tiles import BBox, Flaw, FlawRegion, ReadinessCount
from tileferry.domain.tiles.bbox import enclose_boxes
from tileferry.domain.tiles.flight import describe_location
from tileferry.domain.tiles.readiness_map import MapCell, Outside
from tileferry.entrypoints.cli.flight_view import place_to_json
from tileferry.entrypoints.cli.formatting import bbox_to_json, format_extent, time_to_json
from tileferry.entrypoints.cli.output import build_facts_table
from tileferry.entrypoints.cli.tables import FittedColumn, FittingTable, build_fitted_table

# the whole cache


def verification_to_json(result: VerificationReport) -> dict[str, object]:
    return {
        "sound": result.sound,
        "tiles": result.tiles,
        "live_bytes": result.live_bytes,
        "dead_bytes": result.dead_bytes,
        "damaged_tiles": result.damaged_tiles,
        "damaged_segments": result.damaged_segments,
        "damage": [
            {
                "tile_id": None if one.tile_id is None else str(one.tile_id),
                "segment": one.segment,
                "problem": one.problem,
            }
            for one in result.damage
        ],
    }


def render_verification(result: VerificationReport) -> Group:
    """Render the damage, if any, and the totals."""
    facts = build_facts_table(
        "Cache",
        {
            "tiles checked": result.tiles,
            "size": format_bytes(result.live_bytes),
            "dead": format_bytes(result.dead_bytes),
            "damaged tiles": result.damaged_tiles,
            "damaged segments": result.damaged_segments,
            "verdict": "sound" if result.sound else "damaged; download the areas with --repair",
        },
    )
    if not result.damage:
        return Group(facts)
    table = FittingTable(title="Damage", title_justify="left", drop=("segment",))
    table.add_column("tile", no_wrap=True)
    table.add_column("segment", justify="right", no_wrap=True)
    table.add_column("problem", overflow="fold")
    for one in result.damage:
        table.add_row(str(one.tile_id or "-"), str(one.segment), one.problem)
    return Group(table, facts)


# the readiness of an area

_MAP_ROWS_MAX = 16


_MAP_CELLS_MAX = 60


_MARGIN = 4


_NAMES = {
    Flaw.HOLE: "holes",
    Flaw.ABSENT: "absent",
    Flaw.STALE: "stale",
    Flaw.DOWNGRADED: "downgraded",
    Flaw.SUB_SPEC: "sub-spec",
    Flaw.UNCONFIRMED: "unconfirmed",
    Flaw.DAMAGED: "damaged",
}


# The symbols differ in shape, so that they are distinguishable without colour.
_SIGNS: dict[MapCell, tuple[str, str, str]] = {
    None: ("█", "#", "green"),
    Flaw.DAMAGED: ("X", "X", "bold red"),
    Flaw.HOLE: ("·", ".", "red"),
    Flaw.ABSENT: ("o", "o", "blue"),
    Flaw.STALE: ("S", "S", "yellow"),
    Flaw.SUB_SPEC: ("R", "R", "magenta"),
    Flaw.UNCONFIRMED: ("?", "?", "yellow"),
    Flaw.DOWNGRADED: ("▒", "d", "cyan"),
    Outside.OUTSIDE: (" ", " ", ""),
}


def _describe_place(box: BBox, others: Sequence[BBox], console: Console) -> str:
    words = describe_location(box, others)
    return words if _is_utf(console) else words.replace("°", "")


def _is_utf(console: Console) -> bool:
    return (console.encoding or "").lower().startswith("utf")


def render_readiness(
    judged: FlightVerdict, console: Console, *, flight: str | None, others: Sequence[BBox]
) -> RenderableType:
    """Render each area, and the verdict; ``others`` are the boxes of the flight's areas."""
    boxes = [*others, *(report.coverage.bbox for report in judged.reports)]
    parts: list[RenderableType] = []
    for report in judged.reports:
        parts += _render_area(report, console, boxes)
    return Group(*parts, _render_verdict(judged, flight, boxes, console))


def _render_area(
    report: ReadinessReport, console: Console, others: Sequence[BBox]
) -> list[RenderableType]:
    """Render the table, the map and the worst flaws of an area."""
    standard = report.standard
    parts: list[RenderableType] = [
        Text(f"Area {format_extent(report.coverage)}, source {report.source}"),
        Text(_describe_place(report.coverage.bbox, others, console)),
        Text(
            f"for {standard.sector.value}, flown by {format_utc(standard.flown_at)}, "
            + ("tile data checked" if report.bytes_checked else "tile data not checked (--quick)")
        ),
        Text(),
        _build_table(report),
        Text(),
        _draw_map(report, console),
        Text(),
    ]
    if report.examples:
        parts += [_build_examples_table(report), Text()]
    return parts


def _build_table(report: ReadinessReport) -> Table:
    """Return the counts by zoom level; a narrow terminal drops flaws that no tile has."""
    rows = {str(zoom): count for zoom, count in report.by_zoom.items()}
    if len(rows) > 1:
        rows["all"] = report.total
    counts = [_format_counts(count, report) for count in rows.values()]
    headings = ("tiles", "present", *_NAMES.values())
    columns = [FittedColumn("zoom", list(rows), right=True)]
    for heading, *cells in zip(headings, *counts, strict=True):
        is_empty = heading in _NAMES.values() and set(cells) <= {"0", "?"}
        columns.append(FittedColumn(heading, cells, rank=int(is_empty), right=True))
    return build_fitted_table(columns, total_last=len(rows) > 1)


def _format_counts(count: ReadinessCount, report: ReadinessReport) -> list[str]:
    flaws = {flaw: f"{count.flaws[flaw]:,}" for flaw in _NAMES}
    if not report.bytes_checked:
        flaws[Flaw.DAMAGED] = "?"
    return [f"{count.tiles:,}", f"{count.present:,}", *flaws.values()]


def _draw_map(report: ReadinessReport, console: Console) -> RenderableType:
    """Draw the coarsest zoom level that has a flaw, or the coarsest of all."""
    flawed = [zoom for zoom, count in report.by_zoom.items() if any(count.flaws.values())]
    zoom = min(flawed or report.by_zoom)
    # A cell is two characters wide, which is nearly square.
    cells_max = min(max((console.width - _MARGIN) // 2, 2), _MAP_CELLS_MAX)
    picture = report.marks.draw_preview(zoom, columns_max=cells_max, rows_max=_MAP_ROWS_MAX)
    plain = not _is_utf(console)
    lines = [Text(f"Zoom {zoom}, north up", "bold")]
    for row in picture.rows:
        line = Text("  ", no_wrap=True)
        for cell in row:
            line.append(_SIGNS[cell][plain] * 2, _SIGNS[cell][2])
        lines.append(line)
    shown = {cell for row in picture.rows for cell in row}
    legend = [
        f"{_SIGNS[cell][plain]} {'good' if cell is None else _NAMES[cell]}"
        for cell in (None, *Flaw)
        if cell in shown
    ]
    side = picture.side
    scale = "one tile" if side == 1 else f"{side} x {side} tiles; the worst one is shown"
    lines.append(Text(f"  {'  '.join(legend)}", "dim"))
    lines.append(Text(f"  each pair of characters is {scale}", "dim"))
    return Group(*lines)


def _build_examples_table(report: ReadinessReport) -> Table:
    table = FittingTable(title="Worst flaws", title_justify="left", title_style="bold", box=None)
    table.show_header, table.pad_edge = False, False
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for example in report.examples:
        table.add_row(
            _NAMES[example.flaw] if example.flaw is not Flaw.HOLE else "hole",
            Text(str(example.tile_id)),
            Text(printable(example.detail)),
        )
    return table


def _render_verdict(
    judged: FlightVerdict, flight: str | None, others: Sequence[BBox], console: Console
) -> Panel:
    verdict = judged.verdict
    colour = "green" if verdict.is_go else "red"
    text = Text(f"{verdict}", f"bold {colour}")
    text.append(f" for flight {flight}" if flight else "", "bold")
    for report in judged.reports:
        text.append(f"\n{_describe_place(report.coverage.bbox, others, console)}", "dim")
    for line in verdict.reasons:
        text.append(f"\n{line}")
    for line in verdict.warnings:
        text.append(f"\nwarning: {line}", "yellow")
    if verdict.is_go and not judged.bytes_checked:
        text.append("\nwarning: tile data was not checked; run without --quick before the flight")
    return Panel(text, border_style=colour, box=box.HEAVY, padding=(1, 3), expand=False)


def readiness_to_json(
    judged: FlightVerdict,
    mend: Sequence[Sequence[str]],
    *,
    flight: str | None,
    others: Sequence[BBox] = (),
) -> dict[str, Any]:
    """Return the report; of several areas, all together and each in ``areas``."""
    boxes = [*others, *(report.coverage.bbox for report in judged.reports)]
    areas = [
        _area_to_json(report, commands, flight=flight, others=boxes)
        for report, commands in zip(judged.reports, mend, strict=True)
    ]
    if len(areas) == 1:
        return areas[0]
    verdict, checked = judged.verdict, judged.bytes_checked
    box = enclose_boxes([report.coverage.bbox for report in judged.reports])
    return {
        **areas[0],
        "verdict": str(verdict),
        "go": verdict.is_go,
        "reasons": list(verdict.reasons),
        "warnings": list(verdict.warnings),
        "bbox": bbox_to_json(box),
        "zoom_levels": list(judged.by_zoom),
        "place": place_to_json(box, []),
        "total": _count_to_json(judged.total, checked=checked),
        "zooms": _zooms_to_json(judged.by_zoom, checked=checked),
        "examples": [example for area in areas for example in area["examples"]],
        "mend": [command for commands in mend for command in commands],
        "areas": areas,
    }


def _area_to_json(
    report: ReadinessReport, mend: Sequence[str], *, flight: str | None, others: Sequence[BBox]
) -> dict[str, Any]:
    standard, checked = report.standard, report.bytes_checked
    return {
        "verdict": str(report.verdict),
        "go": report.verdict.is_go,
        "reasons": list(report.verdict.reasons),
        "warnings": list(report.verdict.warnings),
        "bbox": bbox_to_json(report.coverage.bbox),
        "zoom_levels": list(report.coverage.zoom_levels),
        "place": place_to_json(report.coverage.bbox, others),
        "source": report.source,
        "flight_id": flight,
        "sector_class": standard.sector.value,
        "judged_at": time_to_json(standard.now),
        "flown_at": time_to_json(standard.flown_at),
        "max_holes": standard.holes_max,
        "accept_absent": standard.accepts_absent,
        "confirmed_within_days": standard.confirmed_within_days,
        "bytes_checked": checked,
        "total": _count_to_json(report.total, checked=checked),
        "zooms": _zooms_to_json(report.by_zoom, checked=checked),
        "examples": [
            {
                "kind": example.flaw.value,
                "tile_id": str(example.tile_id),
                "tiles": example.tiles,
                "detail": printable(example.detail),
            }
            for example in report.examples
        ],
        "mend": list(mend),
    }


def _zooms_to_json(
    by_zoom: Mapping[int, ReadinessCount], *, checked: bool
) -> list[dict[str, int | None]]:
    return [
        {"zoom": zoom, **_count_to_json(count, checked=checked)} for zoom, count in by_zoom.items()
    ]


def _count_to_json(count: ReadinessCount, *, checked: bool) -> dict[str, int | None]:
    flaws = count.flaws
    return {
        "tiles": count.tiles,
        "present": count.present,
        "holes": flaws[Flaw.HOLE],
        "absent": flaws[Flaw.ABSENT],
        "stale": flaws[Flaw.STALE],
        "downgraded": flaws[Flaw.DOWNGRADED],
        "sub_spec": flaws[Flaw.SUB_SPEC],
        "unconfirmed": flaws[Flaw.UNCONFIRMED],
        "damaged": flaws[Flaw.DAMAGED] if checked else None,
    }


GEOJSON_SCHEMA = "tileferry.cache.readiness.geojson.v1"


_DIGITS = 9  # 0.1 mm


def generate_geojson(judged: FlightVerdict) -> Iterator[str]:
    """Yield a GeoJSON FeatureCollection, one feature per line, to keep memory use constant."""
    head = {
        "type": "FeatureCollection",
        "schema": GEOJSON_SCHEMA,
        "verdict": str(judged.verdict),
        "bbox": _round_edges(enclose_boxes([one.coverage.bbox for one in judged.reports])),
    }
    yield json.dumps(head)[:-1] + ', "features": ['
    separator = ""
    for report in judged.reports:
        for patch in report.iter_patches():
            yield separator + json.dumps(_to_feature(patch))
            separator = ","
    yield "]}"


def _to_feature(patch: FlawRegion) -> dict[str, Any]:
    # GeoJSON requires geometries cut at the antimeridian, which areas already are, and a closed
    # counterclockwise ring.
    box = patch.tiles.bounds
    west, south, east, north = _round_edges(box)
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {
        "type": "Feature",
        "bbox": [west, south, east, north],
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "properties": {
            "kind": patch.flaw.value,
            "zoom": patch.tiles.zoom,
            "tiles": patch.flawed,
            "exact": patch.is_exact,
            "x_min": patch.tiles.x_min,
            "x_max": patch.tiles.x_max,
            "y_min": patch.tiles.y_min,
            "y_max": patch.tiles.y_max,
        },
    }


def _round_edges(box: BBox) -> list[float]:
    return [round(edge, _DIGITS) for edge in (box.west, box.south, box.east, box.north)]
