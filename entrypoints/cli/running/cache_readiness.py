"""Whether an area is ready for a flight: the question, the verdict, and how it is told."""

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import typer
from attrs import frozen
from rich.console import Console

from tileferry.application.cache.readiness import ReadinessReport
from tileferry.domain.checks import is_name
from tileferry.domain.errors import InvalidValueError, StorageError
from tileferry.domain.tiles import SectorClass
from tileferry.domain.tiles.tile_id import check_source
from tileferry.entrypoints.cli.exits import ExitCode
from tileferry.entrypoints.cli.options.area import coverage_of
from tileferry.entrypoints.cli.options.times import day_of
from tileferry.entrypoints.cli.output import opened, people, print_json
from tileferry.entrypoints.cli.progress.counting import counting
from tileferry.entrypoints.cli.views.readiness import readiness_json, readiness_view
from tileferry.entrypoints.cli.views.readiness_geojson import geojson_lines
from tileferry.entrypoints.judging import Question, end_of, readiness_of

SCHEMA = "tileferry.cache.readiness.v1"
STDOUT = Path("-")


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
        now = datetime.fromtimestamp(container.clock().now(), UTC)
        source = asked.source or config.source
        question = Question(
            coverage=coverage,
            sector=asked.sector_class,
            now=now,
            flown_at=now
            if asked.on is None
            else end_of(day_of(asked.on, option="--on"), now, field="--on"),
            source=source,
            holes_max=asked.max_holes or 0,
            quick=asked.quick,
        )
        with counting("Looking", of=coverage.count) as on_tile:
            report = readiness_of(container, question, on_tile)
    _tell(report, _mending(report, asked) if source == config.source else [], asked)
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
