"""``tileferry cache verify``: check every tile, or decide GO or NO-GO for areas."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tileferry.entrypoints.cli.command_group import ConfigFile, JsonFlag, format_examples
from tileferry.entrypoints.cli.option_types import (
    AreaOption,
    BboxOption,
    BufferOption,
    DetailOption,
    OptionalFlight,
    OptionalZoom,
    OwnSourceOption,
    RouteOption,
    Sector,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tileferry.application.cache.readiness import (
        FlightVerdict,
        ReadinessReport,
    )
    from tileferry.domain.tiles import BBox, Flight
    from tileferry.entrypoints.installation import Installation

READINESS_SCHEMA = "tileferry.cache.readiness.v1"
STDOUT = Path("-")


def add_verify_command(app: typer.Typer) -> None:
    """Add the command to the cache group."""
    app.command(
        "verify",
        epilog=format_examples(
            "tileferry cache verify",
            "tileferry cache verify --flight F7",
            "tileferry cache verify --bbox 36.1,49.9,36.4,50.1 --zoom 13-15 --flight F7",
            "tileferry cache verify --bbox 36.1,49.9,36.4,50.1 --zoom 15 --quick"
            " --geojson holes.json",
        ),
    )(verify_command)


def verify_command(
    *,
    bbox: BboxOption = None,
    area: AreaOption = None,
    route: RouteOption = None,
    buffer: BufferOption = None,
    detail: DetailOption = None,
    zoom: OptionalZoom = None,
    flight: OptionalFlight = None,
    sector: Annotated[
        Sector | None,
        typer.Option(
            "--sector",
            metavar="SECTOR",
            help="Sector, which sets the maximum age of tiles: older ones are stale in"
            " active_conflict (the default), downgraded in stable_rear. A flight's areas have"
            " their own.",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="DATE", help="Date of the flight, in UTC (default: now)."),
    ] = None,
    source: OwnSourceOption = None,
    max_holes: Annotated[
        int | None,
        typer.Option(
            "--max-holes", metavar="N", min=0, help="Maximum number of missing tiles (default: 0)."
        ),
    ] = None,
    accept_absent: Annotated[
        bool,
        typer.Option(
            "--accept-absent",
            help="Accept tiles that the provider does not have (default: c6.accept_absent).",
        ),
    ] = False,
    confirmed_within: Annotated[
        float | None,
        typer.Option(
            "--confirmed-within",
            metavar="DAYS",
            min=0,
            max=3650,
            help="Require that the provider delivered or confirmed each tile within DAYS"
            " (default: c6.confirmed_within_days).",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check the metadata only; do not read the tiles.")
    ] = False,
    geojson: Annotated[
        Path | None,
        typer.Option(
            "--geojson",
            metavar="FILE|-",
            dir_okay=False,
            help="Write the flaws to a GeoJSON file, for any map program; - is stdout.",
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Check every tile, or decide GO or NO-GO for areas.

    Exit code 3 if a tile is damaged, or an area is not ready.

    Without an area, the bytes of every tile are compared with its checksum. Bytes that belong to
    no tile (deleted, replaced or never committed) are counted as dead; they are not damage, and
    `cache compact` reclaims them.

    An area (--bbox, --area or --route, with --zoom) is NO-GO if a tile is damaged, stale or of an
    unacceptable resolution, if more than --max-holes tiles are missing, or if the provider does
    not have a tile, unless that is accepted. Downgraded tiles are a warning. Several areas are GO
    if each of them is; --flight alone judges all of its areas.

    The cache is only read; a download can run at the same time.
    """
    from tileferry.application.cache.readiness import (
        FlightVerdict,
        ReadinessQuery,
        get_end_of_day,
    )
    from tileferry.domain.tiles import SectorClass
    from tileferry.entrypoints.cli.areas import AreaInput, parse_coverages
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import open_installation
    from tileferry.entrypoints.cli.parsing import parse_day
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView

    given = AreaInput(bboxes=bbox, areas=area, routes=route, buffer=buffer, detail=detail)
    has_area = given.is_given
    if not has_area and flight is None:
        about_area = (
            zoom,
            buffer,
            detail,
            sector,
            on,
            source,
            max_holes,
            confirmed_within,
            geojson,
        )
        if quick or accept_absent or any(value is not None for value in about_area):
            raise typer.BadParameter(
                "these options need an area; add --bbox, --area, --route or --flight"
            )
        _verify_all_tiles(config, json=json)
        return
    if not has_area and any(value is not None for value in (zoom, buffer, detail, sector, source)):
        raise typer.BadParameter(
            "the areas of a flight have their own zoom levels, sector and source; add --bbox or"
            " --area, or leave these options out"
        )
    _check_readiness_options(flight, source, geojson, json=json)
    progress = ItemProgress()
    with open_installation(config, progress) as installation:
        day = None if on is None else parse_day(on, option="--on")
        if has_area:
            coverages = parse_coverages(installation.config, given, zoom)
            now = installation.get_database_time()
            flown_at = now if day is None else get_end_of_day(day, now, field="--on")
            queries = [
                ReadinessQuery(
                    coverage=coverage,
                    sector=SectorClass(sector or SectorClass.ACTIVE_CONFLICT),
                    now=now,
                    flown_at=flown_at,
                    source=source or installation.config.source,
                    holes_max=max_holes or 0,
                    accepts_absent=accept_absent or None,
                    confirmed_within_days=confirmed_within,
                    quick=quick,
                )
                for coverage in coverages
            ]
            with ProgressView(progress):
                judged = FlightVerdict(tuple(map(installation.readiness.check, queries)))
        else:
            found = _find_flight(installation, flight or "")
            with ProgressView(progress):
                judged = installation.readiness.check_flight(
                    found,
                    on=day,
                    holes_max=max_holes or 0,
                    accepts_absent=accept_absent or None,
                    confirmed_within_days=confirmed_within,
                    quick=quick,
                )
        others = installation.flights.find_boxes(flight)
    repairs = [
        _build_repair_commands(report, flight=flight, config=config)
        if report.source == installation.config.source
        else []
        for report in judged.reports
    ]
    if geojson is not None:
        _write_geojson(judged, geojson)
    _show_readiness(judged, repairs, others, flight, to_stderr=geojson == STDOUT, json=json)
    if not judged.verdict.is_go:
        raise typer.Exit(ExitCode.PARTIAL)


def _find_flight(installation: "Installation", flight: str) -> "Flight":
    """Return a flight; raise if it has no areas."""
    from tileferry.domain.errors import InvalidStateError, Remedy

    found = installation.flights.get_flight(flight)
    if not found.areas:
        raise InvalidStateError(
            subject=f"flight {flight}", problem="it has no areas", remedy=Remedy.DOWNLOAD_AREA
        )
    return found


def _show_readiness(
    judged: "FlightVerdict",
    repairs: "Sequence[Sequence[str]]",
    others: "Sequence[BBox]",
    flight: str | None,
    *,
    to_stderr: bool,
    json: bool,
) -> None:
    from rich.console import Console

    from tileferry.entrypoints.cli.cache_view import readiness_to_json, render_readiness
    from tileferry.entrypoints.cli.output import print_json, stdout

    if json:
        body = readiness_to_json(judged, repairs, flight=flight, others=others)
        print_json(READINESS_SCHEMA, body)
        return
    console = Console(stderr=True, highlight=False) if to_stderr else stdout
    console.print(render_readiness(judged, console, flight=flight, others=others))
    commands = [line for lines in repairs for line in lines]
    if commands:
        console.print("To fix this, if the provider has the tiles:")
    for line in commands:  # unwrapped, so that it can be copied
        console.print(line, markup=False, soft_wrap=True)


def _verify_all_tiles(config: Path | None, *, json: bool) -> None:
    """Verify every tile, report the damage, and exit with an error if there is any."""
    from tileferry.entrypoints.cli.cache_view import render_verification, verification_to_json
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView

    progress = ItemProgress()
    with open_installation(config, progress) as installation:
        verification = installation.cache_verification
        with ProgressView(progress):
            result = verification.verify()
    if json:
        print_json("tileferry.cache.verify.v1", verification_to_json(result))
    else:
        stdout.print(render_verification(result))
    if not result.sound:
        raise typer.Exit(ExitCode.PARTIAL)


def _check_readiness_options(
    flight: str | None, source: str | None, geojson: Path | None, *, json: bool
) -> None:
    """Reject invalid options before the cache is read, which may take minutes."""
    from tileferry.domain.errors import InvalidValueError
    from tileferry.domain.tiles.tile_id import check_source
    from tileferry.domain.validation import is_name

    if flight is not None and not is_name(flight):
        raise InvalidValueError(field="--flight", value=flight, problem="is not a plain name")
    if source is not None:
        check_source(source, field="--source")
    if geojson == STDOUT and json:
        raise InvalidValueError(
            field="--geojson",
            value="-",
            problem="and --json cannot both go to stdout",
            remedy="write --geojson to a file",
        )
    if geojson is not None and geojson != STDOUT and not geojson.parent.is_dir():
        raise InvalidValueError(
            field="--geojson", value=str(geojson), problem="is in a folder that does not exist"
        )


def _build_repair_commands(
    report: "ReadinessReport", *, flight: str | None, config: Path | None
) -> list[str]:
    """Return the commands that download the missing, damaged and unfit tiles, and no others.

    They need --repair: otherwise damaged tiles would be taken as stored, and an area that was
    downloaded before as complete. Unconfirmed tiles need --refresh.
    """
    from tileferry.domain.tiles import Flaw
    from tileferry.domain.tiles.readiness import REPAIRABLE_FLAWS

    config_option = [] if config is None else ["--config", str(config)]
    return [
        shlex.join(
            [
                *("tileferry", "download", f"--bbox={box}"),
                *("--zoom", ",".join(map(str, zooms))),
                *("--flight", flight or "FLIGHT"),
                *("--sector", report.standard.sector.value, option),
                *config_option,
            ]
        )
        for option, flaws in (("--repair", REPAIRABLE_FLAWS), ("--refresh", {Flaw.UNCONFIRMED}))
        for box, zooms in report.find_repair_boxes(flaws)
    ]


def _write_geojson(judged: "FlightVerdict", path: Path) -> None:
    from tileferry.domain.errors import StorageError
    from tileferry.entrypoints.cli.cache_view import generate_geojson

    if path == STDOUT:
        for line in generate_geojson(judged):
            typer.echo(line)
        return
    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in generate_geojson(judged))
    except OSError as error:
        raise StorageError(
            action="write",
            path=str(path),
            problem=error.strerror or type(error).__name__,
            remedy="choose another file",
        ) from error
