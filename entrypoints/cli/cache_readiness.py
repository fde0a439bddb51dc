"""Whether an area is ready for a flight: the question, the verdict, and how it is told."""

import json
import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from attrs import frozen
from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tileferry.application.cache.readiness import ReadinessReport
from tileferry.domain.errors import InvalidValueError, StorageError
from tileferry.domain.text import format_utc, printable
from tileferry.domain.tiles import BBox, Flaw, FlawRegion, ReadinessCount, SectorClass
from tileferry.domain.tiles.tile_id import check_source
from tileferry.domain.validation import is_name
from tileferry.entrypoints.cli.area_options import parse_coverage
from tileferry.entrypoints.cli.exit_codes import ExitCode
from tileferry.entrypoints.cli.formatting import bbox_to_json, time_to_json
from tileferry.entrypoints.cli.output import open_container, print_json, stdout
from tileferry.entrypoints.cli.parsing import parse_day
from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView
from tileferry.entrypoints.readiness import ReadinessQuery, check_readiness, get_end_of_day

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


def render_readiness(
    report: ReadinessReport, console: Console, *, flight: str | None
) -> RenderableType:
    """Lay out the table, the map, the worst of it and the verdict."""
    standard = report.standard
    parts: list[RenderableType] = [
        Text(f"Area {report.coverage.bbox}, source {report.source}"),
        Text(
            f"for {standard.sector.value}, flown by {format_utc(standard.flown_at)}, "
            + ("every byte checked" if report.bytes_checked else "bytes not checked (--quick)")
        ),
        Text(),
        _build_table(report),
        Text(),
        _draw_map(report, console),
    ]
    if report.examples:
        parts += [Text(), _build_examples_table(report)]
    parts += [Text(), _render_verdict(report, flight)]
    return Group(*parts)


def _build_table(report: ReadinessReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("zoom", "tiles", "present", *_NAMES.values()):
        table.add_column(heading, justify="right", no_wrap=True)
    for zoom, count in report.by_zoom.items():
        table.add_row(str(zoom), *_format_counts(count, report))
    if len(report.by_zoom) > 1:
        table.add_section()
        table.add_row("all", *_format_counts(report.total, report))
    return table


def _format_counts(count: ReadinessCount, report: ReadinessReport) -> list[str]:
    flaws = {flaw: f"{count.flaws[flaw]:,}" for flaw in _NAMES}
    if not report.bytes_checked:
        flaws[Flaw.DAMAGED] = "?"
    return [f"{count.tiles:,}", f"{count.present:,}", *flaws.values()]


def _draw_map(report: ReadinessReport, console: Console) -> RenderableType:
    """Draw the coarsest level that has something to show; without any, the coarsest."""
    flawed = [zoom for zoom, count in report.by_zoom.items() if any(count.flaws.values())]
    zoom = min(flawed or report.by_zoom)
    # A cell is two characters wide, which is about square.
    cells_max = min(max((console.width - _MARGIN) // 2, 2), _MAP_CELLS_MAX)
    picture = report.marks.draw_preview(zoom, columns_max=cells_max, rows_max=_MAP_ROWS_MAX)
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


def _build_examples_table(report: ReadinessReport) -> Table:
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


def _render_verdict(report: ReadinessReport, flight: str | None) -> Panel:
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


def readiness_to_json(
    report: ReadinessReport, mend: Sequence[str], *, flight: str | None
) -> dict[str, Any]:
    """Return everything for scripts."""
    standard = report.standard
    return {
        "verdict": str(report.verdict),
        "go": report.verdict.is_go,
        "reasons": list(report.verdict.reasons),
        "warnings": list(report.verdict.warnings),
        "bbox": bbox_to_json(report.coverage.bbox),
        "zoom_levels": list(report.coverage.zoom_levels),
        "source": report.source,
        "flight_id": flight,
        "sector_class": standard.sector.value,
        "judged_at": time_to_json(standard.now),
        "flown_at": time_to_json(standard.flown_at),
        "max_holes": standard.holes_max,
        "bytes_checked": report.bytes_checked,
        "total": _count_to_json(report.total, report),
        "zooms": [
            {"zoom": zoom, **_count_to_json(count, report)}
            for zoom, count in report.by_zoom.items()
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


def _count_to_json(count: ReadinessCount, report: ReadinessReport) -> dict[str, int | None]:
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


GEOJSON_SCHEMA = "tileferry.cache.readiness.geojson.v1"
_DIGITS = 9  # a tenth of a millimetre


def generate_geojson(report: ReadinessReport) -> Iterator[str]:
    """Yield a FeatureCollection, a feature a line: nobody has to hold it whole."""
    head = {
        "type": "FeatureCollection",
        "schema": GEOJSON_SCHEMA,
        "verdict": str(report.verdict),
        "bbox": _round_edges(report.coverage.bbox),
    }
    yield json.dumps(head)[:-1] + ', "features": ['
    separator = ""
    for patch in report.iter_patches():
        yield separator + json.dumps(_to_feature(patch))
        separator = ","
    yield "]}"


def _to_feature(patch: FlawRegion) -> dict[str, Any]:
    # A rectangle lies on one side of the antimeridian, as the standard wants it: areas are cut
    # there. The ring goes against the clock, and ends where it began.
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


SCHEMA = "tileferry.cache.readiness.v1"
STDOUT = Path("-")


@frozen(kw_only=True)
class ReadinessOptions:
    """What the operator asks about."""

    bbox: str | None
    area: str | None
    zoom: str | None
    sector: str | None
    on: str | None
    flight: str | None
    source: str | None
    max_holes: int | None
    quick: bool
    geojson: Path | None
    config: Path | None
    json: bool

    @property
    def sector_class(self) -> SectorClass:
        """How fresh tiles must be; what asks for most, unless told."""
        return SectorClass(self.sector or SectorClass.ACTIVE_CONFLICT)

    def has_area(self) -> bool:
        """Say whether an area is meant; what is only about an area is refused without one."""
        if self.bbox is not None or self.area is not None:
            return True
        about_it = (self.zoom, self.sector, self.on, self.flight, self.source, self.max_holes)
        if self.quick or any(value is not None for value in (*about_it, self.geojson)):
            raise typer.BadParameter("this is about an area: give --bbox or --area as well")
        return False


def show_readiness(asked: ReadinessOptions) -> None:
    """Print the verdict, and end with its code."""
    if asked.zoom is None:
        raise typer.BadParameter("an area has zoom levels: give --zoom as well")
    _check_options(asked)
    progress = ItemProgress()
    with open_container(asked.config, progress) as container:
        config = container.config()
        coverage = parse_coverage(config, asked.bbox, asked.area, asked.zoom)
        now = datetime.fromtimestamp(container.clock().now(), UTC)
        source = asked.source or config.source
        question = ReadinessQuery(
            coverage=coverage,
            sector=asked.sector_class,
            now=now,
            flown_at=now
            if asked.on is None
            else get_end_of_day(parse_day(asked.on, option="--on"), now, field="--on"),
            source=source,
            holes_max=asked.max_holes or 0,
            quick=asked.quick,
        )
        with ProgressView(progress):
            report = check_readiness(container, question)
    _report_verdict(
        report, _build_repair_commands(report, asked) if source == config.source else [], asked
    )
    if not report.verdict.is_go:
        raise typer.Exit(ExitCode.PARTIAL)


def _report_verdict(report: ReadinessReport, mend: Sequence[str], asked: ReadinessOptions) -> None:
    if asked.geojson is not None:
        _write_geojson(report, asked.geojson)
    if asked.json:
        print_json(SCHEMA, readiness_to_json(report, mend, flight=asked.flight))
        return
    console = Console(stderr=True, highlight=False) if asked.geojson == STDOUT else stdout
    console.print(render_readiness(report, console, flight=asked.flight))
    if mend:
        console.print("To mend it, as far as the provider can:")
    for line in mend:  # in one piece, to be copied
        console.print(line, markup=False, soft_wrap=True)


def _check_options(asked: ReadinessOptions) -> None:
    """Find what cannot work before the cache is read, which may take minutes."""
    if asked.flight is not None and not is_name(asked.flight):
        raise InvalidValueError(field="--flight", value=asked.flight, problem="is not a plain name")
    if asked.source is not None:
        check_source(asked.source, field="--source")
    path = asked.geojson
    if path == STDOUT and asked.json:
        raise InvalidValueError(
            field="--geojson",
            value="-",
            problem="and --json cannot both go to stdout",
            remedy="give --geojson a file",
        )
    if path is not None and path != STDOUT and not path.parent.is_dir():
        raise InvalidValueError(
            field="--geojson", value=str(path), problem="lies in a folder that does not exist"
        )


def _build_repair_commands(report: ReadinessReport, asked: ReadinessOptions) -> list[str]:
    """Return the commands that fetch what is missing or unfit, and little else.

    Each asks for the box around it, again: a download of it may have been finished before, and its
    journal would say that nothing is left to do.
    """
    config = [] if asked.config is None else ["--config", str(asked.config)]
    return [
        shlex.join(
            [
                *("tileferry", "download", f"--bbox={box}"),
                *("--zoom", ",".join(map(str, zooms))),
                *("--flight", asked.flight or "FLIGHT"),
                *("--sector", asked.sector_class.value, "--again"),
                *config,
            ]
        )
        for box, zooms in report.find_repair_boxes()
    ]


def _write_geojson(report: ReadinessReport, path: Path) -> None:
    if path == STDOUT:
        for line in generate_geojson(report):
            typer.echo(line)
        return
    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in generate_geojson(report))
    except OSError as error:
        raise StorageError(
            action="write",
            path=str(path),
            problem=error.strerror or type(error).__name__,
            remedy="give --geojson another file",
        ) from error
