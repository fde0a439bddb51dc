"""``tileferry cache verify --bbox``: asks whether an area is ready, and tells in every form."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import typer
from attrs import frozen
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tileferry.adapters.postgres import schema_status
from tileferry.application.ports.clock import Clock
from tileferry.application.readiness import FlightReadiness, ReadinessReport
from tileferry.domain.checks import is_name
from tileferry.domain.errors import InvalidValueError, StorageError
from tileferry.domain.tiles import (
    FlightStandard,
    ResolutionGate,
    SectorClass,
    TileCoverage,
    TileId,
)
from tileferry.domain.tiles.tile_set import check_area_size
from tileferry.entrypoints.cli.exits import ExitCode
from tileferry.entrypoints.cli.options.area import coverage_of
from tileferry.entrypoints.cli.output import locked, opened, people, print_json
from tileferry.entrypoints.cli.views.readiness import readiness_json, readiness_view
from tileferry.entrypoints.cli.views.readiness_geojson import geojson_lines
from tileferry.entrypoints.container import Container

SCHEMA = "tileferry.cache.readiness.v1"
STDOUT = Path("-")
_SILENT_S = 1.0
_STEP = 500
_DAY = timedelta(days=1)


@frozen(kw_only=True)
class AreaOptions:
    """What the operator asks about."""

    bbox: str | None
    area: str | None
    zoom: str
    sector: SectorClass
    on: str | None
    flight: str | None
    source: str | None
    max_holes: int
    quick: bool
    geojson: Path | None
    config: Path | None
    json: bool


def verify_area(options: AreaOptions) -> None:
    """Print the verdict, and end with its code."""
    _check(options)
    with opened(options.config) as container:
        config = container.config()
        coverage = coverage_of(config, options.bbox, options.area, options.zoom)
        check_area_size(coverage)
        now = datetime.fromtimestamp(container.clock().now(), UTC)
        flown_at = now if options.on is None else _end_of(options.on, now)
        schema_status(container.database()).check()
        standard = FlightStandard(
            sector=options.sector,
            now=now,
            flown_at=flown_at,
            holes_max=options.max_holes,
            freshness=container.metadata_store().freshness,
            resolution=ResolutionGate(
                min_m_per_px=config.c11.min_resolution_m_per_px,
                max_m_per_px=config.c11.max_resolution_m_per_px,
            ),
        )
        source = options.source or config.c11.source
        report = _report(container, coverage, standard, source=source, quick=options.quick)
    _tell(report, _mending(report, options) if source == config.c11.source else [], options)
    if not report.verdict.is_go:
        raise typer.Exit(ExitCode.PARTIAL)


def _tell(report: ReadinessReport, mend: Sequence[str], options: AreaOptions) -> None:
    if options.geojson is not None:
        _write_geojson(report, options.geojson)
    if options.json:
        print_json(SCHEMA, readiness_json(report, mend, flight=options.flight))
        return
    console = Console(stderr=True, highlight=False) if options.geojson == STDOUT else people
    console.print(readiness_view(report, console, flight=options.flight))
    if mend:
        console.print("To mend it, as far as the provider can:")
    for line in mend:  # in one piece, to be copied
        console.print(line, markup=False, soft_wrap=True)


def _check(options: AreaOptions) -> None:
    """Find what cannot work before the cache is read, which may take minutes."""
    if options.flight is not None and not is_name(options.flight):
        raise InvalidValueError(
            field="--flight", value=options.flight, problem="is not a plain name"
        )
    if options.source is not None:
        TileId(source=options.source, zoom=0, x=0, y=0)  # refuses what no tile can be called
    path = options.geojson
    if path == STDOUT and options.json:
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


def _report(
    container: Container,
    coverage: TileCoverage,
    standard: FlightStandard,
    *,
    source: str,
    quick: bool,
) -> ReadinessReport:
    use_case = FlightReadiness(tile_metadata_store=container.metadata_store())
    with _progress(coverage.count, container.clock()) as on_tile:
        if quick:
            return use_case.report(coverage, standard, source=source, on_tile=on_tile)
        with locked(container):  # a writer at work would look like damage
            use_case.check_bytes = container.tile_store().problem_of
            return use_case.report(coverage, standard, source=source, on_tile=on_tile)


def _end_of(text: str, now: datetime) -> datetime:
    """Return the end of a day in UTC: what is fresh then was fresh all day."""
    try:
        day = date.fromisoformat(text.strip())
    except ValueError:
        raise InvalidValueError(
            field="--on",
            value=text,
            problem="is not a date",
            remedy="write it as in 2026-11-16",
        ) from None
    end = datetime.combine(day, time.max, UTC)
    if end < now - _DAY:  # the day before may still be today, west of Greenwich
        raise InvalidValueError(
            field="--on", value=text, problem="is over", remedy="judge for today or a day to come"
        )
    return max(end, now)


def _mending(report: ReadinessReport, options: AreaOptions) -> list[str]:
    """Return the commands that fetch what is missing or unfit, and little else.

    Each asks for the box around it, again: a download of it may have been finished before, and its
    journal would say that nothing is left to do.
    """
    config = [] if options.config is None else ["--config", str(options.config)]
    return [
        shlex.join(
            [
                *("tileferry", "download", f"--bbox={box}"),
                *("--zoom", ",".join(map(str, zooms))),
                *("--flight", options.flight or "FLIGHT"),
                *("--sector", options.sector.value, "--again"),
                *config,
            ]
        )
        for box, zooms in report.boxes_to_mend()
    ]


def _write_geojson(report: ReadinessReport, path: Path) -> None:
    if path == STDOUT:
        for line in geojson_lines(report):
            typer.echo(line)
        return
    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in geojson_lines(report))
    except OSError as error:
        raise StorageError(
            action="write",
            path=str(path),
            problem=error.strerror or type(error).__name__,
            remedy="give --geojson another file",
        ) from error


@contextmanager
def _progress(tiles: int, clock: Clock) -> Iterator[Callable[[], None]]:
    """Show a bar, on a terminal and once the work takes long."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("tiles looked at"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task("", total=tiles)
    begun_s, seen = clock.monotonic(), 0

    def on_tile() -> None:
        nonlocal seen
        seen += 1
        if seen % _STEP or not console.is_terminal:
            return
        if clock.monotonic() - begun_s > _SILENT_S:
            bar.start()
            bar.update(task, completed=seen)

    try:
        yield on_tile
    finally:
        if bar.live.is_started:  # else it would leave an empty line
            bar.stop()
