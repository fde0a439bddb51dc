"""Whether an area is ready for a flight: the question, the verdict, and how it is told."""

import shlex
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import typer
from attrs import frozen
from rich.console import Console

from tileferry.adapters.postgres import schema_status
from tileferry.application.cache.readiness import FlightReadiness, ReadinessReport
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
from tileferry.entrypoints.cli.output import opened, people, print_json
from tileferry.entrypoints.cli.progress.looking import looking_at
from tileferry.entrypoints.cli.views.readiness import readiness_json, readiness_view
from tileferry.entrypoints.cli.views.readiness_geojson import geojson_lines
from tileferry.entrypoints.container import Container
from tileferry.entrypoints.holding import locked

SCHEMA = "tileferry.cache.readiness.v1"
STDOUT = Path("-")
_DAY = timedelta(days=1)


@frozen(kw_only=True)
class Asked:
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

    def names_an_area(self) -> bool:
        """Say whether an area is meant; what is only about an area is refused without one."""
        if self.bbox is not None or self.area is not None:
            return True
        about_it = (self.zoom, self.sector, self.on, self.flight, self.source, self.max_holes)
        if self.quick or any(value is not None for value in (*about_it, self.geojson)):
            raise typer.BadParameter("this is about an area: give --bbox or --area as well")
        return False


def judged(asked: Asked) -> None:
    """Print the verdict, and end with its code."""
    if asked.zoom is None:
        raise typer.BadParameter("an area has zoom levels: give --zoom as well")
    _check(asked)
    with opened(asked.config) as container:
        config = container.config()
        coverage = coverage_of(config, asked.bbox, asked.area, asked.zoom)
        check_area_size(coverage)
        now = datetime.fromtimestamp(container.clock().now(), UTC)
        flown_at = now if asked.on is None else _end_of(asked.on, now)
        schema_status(container.database()).check()
        standard = FlightStandard(
            sector=asked.sector_class,
            now=now,
            flown_at=flown_at,
            holes_max=asked.max_holes or 0,
            freshness=container.metadata_store().freshness,
            resolution=ResolutionGate(
                min_m_per_px=config.c11.min_resolution_m_per_px,
                max_m_per_px=config.c11.max_resolution_m_per_px,
            ),
        )
        source = asked.source or config.c11.source
        report = _report(container, coverage, standard, source=source, quick=asked.quick)
    _tell(report, _mending(report, asked) if source == config.c11.source else [], asked)
    if not report.verdict.is_go:
        raise typer.Exit(ExitCode.PARTIAL)


def _tell(report: ReadinessReport, mend: Sequence[str], asked: Asked) -> None:
    if asked.geojson is not None:
        _write_geojson(report, asked.geojson)
    if asked.json:
        print_json(SCHEMA, readiness_json(report, mend, flight=asked.flight))
        return
    console = Console(stderr=True, highlight=False) if asked.geojson == STDOUT else people
    console.print(readiness_view(report, console, flight=asked.flight))
    if mend:
        console.print("To mend it, as far as the provider can:")
    for line in mend:  # in one piece, to be copied
        console.print(line, markup=False, soft_wrap=True)


def _check(asked: Asked) -> None:
    """Find what cannot work before the cache is read, which may take minutes."""
    if asked.flight is not None and not is_name(asked.flight):
        raise InvalidValueError(field="--flight", value=asked.flight, problem="is not a plain name")
    if asked.source is not None:
        TileId(source=asked.source, zoom=0, x=0, y=0)  # refuses what no tile can be called
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


def _report(
    container: Container,
    coverage: TileCoverage,
    standard: FlightStandard,
    *,
    source: str,
    quick: bool,
) -> ReadinessReport:
    use_case = FlightReadiness(tile_metadata_store=container.metadata_store())
    with looking_at(coverage.count, container.clock()) as on_tile:
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


def _mending(report: ReadinessReport, asked: Asked) -> list[str]:
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
