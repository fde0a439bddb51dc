"""The flight-readiness verdict for people and for scripts."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tileferry.application.cache.readiness import ReadinessReport
from tileferry.domain.text import in_utc, printable
from tileferry.domain.tiles import Flaw, ReadinessCount
from tileferry.entrypoints.cli.views.records import bbox_json, moment_json

_MAP_ROWS_MAX = 16
_MAP_CELLS_MAX = 60
_MARGIN = 4
_NAMES = {
    Flaw.HOLE: "holes",
    Flaw.STALE: "stale",
    Flaw.DOWNGRADED: "downgraded",
    Flaw.SUB_SPEC: "sub-spec",
    Flaw.DAMAGED: "damaged",
}
# Each sign is told from the others without its colour.
_SIGNS: dict[Flaw | None, tuple[str, str, str]] = {
    None: ("█", "#", "green"),
    Flaw.DAMAGED: ("X", "X", "bold red"),
    Flaw.HOLE: ("·", ".", "red"),
    Flaw.STALE: ("S", "S", "yellow"),
    Flaw.SUB_SPEC: ("R", "R", "magenta"),
    Flaw.DOWNGRADED: ("▒", "d", "cyan"),
}


def readiness_view(
    report: ReadinessReport, console: Console, *, flight: str | None
) -> RenderableType:
    """Lay out the table, the map, the worst of it and the verdict."""
    standard = report.standard
    parts: list[RenderableType] = [
        Text(f"Area {report.coverage.bbox}, source {report.source}"),
        Text(
            f"for {standard.sector.value}, flown by {in_utc(standard.flown_at)}, "
            + ("every byte checked" if report.bytes_checked else "bytes not checked (--quick)")
        ),
        Text(),
        _table(report),
        Text(),
        _map(report, console),
    ]
    if report.examples:
        parts += [Text(), _examples(report)]
    parts += [Text(), _verdict(report, flight)]
    return Group(*parts)


def _table(report: ReadinessReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("zoom", "tiles", "present", *_NAMES.values()):
        table.add_column(heading, justify="right", no_wrap=True)
    for zoom, count in report.by_zoom.items():
        table.add_row(str(zoom), *_figures(count, report))
    if len(report.by_zoom) > 1:
        table.add_section()
        table.add_row("all", *_figures(report.total, report))
    return table


def _figures(count: ReadinessCount, report: ReadinessReport) -> list[str]:
    flaws = {flaw: f"{count.flaws[flaw]:,}" for flaw in _NAMES}
    if not report.bytes_checked:
        flaws[Flaw.DAMAGED] = "?"
    return [f"{count.tiles:,}", f"{count.present:,}", *flaws.values()]


def _map(report: ReadinessReport, console: Console) -> RenderableType:
    """Draw the coarsest level that has something to show; without any, the coarsest."""
    flawed = [zoom for zoom, count in report.by_zoom.items() if any(count.flaws.values())]
    zoom = min(flawed or report.by_zoom)
    # A cell is two characters wide, which is about square.
    cells_max = min(max((console.width - _MARGIN) // 2, 2), _MAP_CELLS_MAX)
    picture = report.marks.picture(zoom, columns_max=cells_max, rows_max=_MAP_ROWS_MAX)
    plain = not (console.encoding or "").lower().startswith("utf")
    lines = [Text(f"Zoom {zoom}, north up", "bold")]
    for row in picture.rows:
        line = Text("  ", no_wrap=True)
        for cell in row:
            line.append(_SIGNS[cell][plain] * 2, _SIGNS[cell][2])
        lines.append(line)
    shown = {cell for row in picture.rows for cell in row}
    legend = [
        f"{_SIGNS[cell][plain]} {'good' if cell is None else _NAMES[cell]}"
        for cell in _SIGNS
        if cell in shown
    ]
    side = picture.side
    scale = "a tile" if side == 1 else f"{side} x {side} tiles, the worst shown"
    lines.append(Text(f"  {'  '.join(legend)}", "dim"))
    lines.append(Text(f"  each pair of characters is {scale}", "dim"))
    return Group(*lines)


def _examples(report: ReadinessReport) -> Table:
    table = Table(title="The worst", title_justify="left", title_style="bold", box=None)
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


def _verdict(report: ReadinessReport, flight: str | None) -> Panel:
    verdict = report.verdict
    colour = "green" if verdict.is_go else "red"
    text = Text(f"{verdict}", f"bold {colour}")
    text.append(f" for flight {flight}" if flight else "", "bold")
    for line in verdict.reasons:
        text.append(f"\n{line}")
    for line in verdict.warnings:
        text.append(f"\nwarning: {line}", "yellow")
    if verdict.is_go and not report.bytes_checked:
        text.append("\nwarning: bytes were not checked; leave out --quick before the flight")
    return Panel(text, border_style=colour, box=box.HEAVY, padding=(1, 3), expand=False)


def readiness_json(
    report: ReadinessReport, mend: Sequence[str], *, flight: str | None
) -> dict[str, Any]:
    """Return everything for scripts."""
    standard = report.standard
    return {
        "verdict": str(report.verdict),
        "go": report.verdict.is_go,
        "reasons": list(report.verdict.reasons),
        "warnings": list(report.verdict.warnings),
        "bbox": bbox_json(report.coverage.bbox),
        "zoom_levels": list(report.coverage.zoom_levels),
        "source": report.source,
        "flight_id": flight,
        "sector_class": standard.sector.value,
        "judged_at": moment_json(standard.now),
        "flown_at": moment_json(standard.flown_at),
        "max_holes": standard.holes_max,
        "bytes_checked": report.bytes_checked,
        "total": _count_json(report.total, report),
        "zooms": [
            {"zoom": zoom, **_count_json(count, report)} for zoom, count in report.by_zoom.items()
        ],
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


def _count_json(count: ReadinessCount, report: ReadinessReport) -> dict[str, int | None]:
    flaws = count.flaws
    return {
        "tiles": count.tiles,
        "present": count.present,
        "holes": flaws[Flaw.HOLE],
        "stale": flaws[Flaw.STALE],
        "downgraded": flaws[Flaw.DOWNGRADED],
        "sub_spec": flaws[Flaw.SUB_SPEC],
        "damaged": flaws[Flaw.DAMAGED] if report.bytes_checked else None,
    }
