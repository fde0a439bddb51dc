"""``tileferry cache``: show its size, verify it, and pin flights."""

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tileferry.entrypoints.cli.cache_archives import add_archive_commands
from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import (
    AreaOption,
    BboxOption,
    FlightOption,
    OptionalFlight,
    OptionalZoom,
    OwnSourceOption,
    Sector,
)

if TYPE_CHECKING:
    from tileferry.application.cache.readiness import ReadinessReport
    from tileferry.domain.tiles import SectorClass

app = declare_group("Inspect, verify, pin, export and import the tile cache.")
READINESS_SCHEMA = "tileferry.cache.readiness.v1"
STDOUT = Path("-")


# stats


@app.command(
    "stats", epilog=format_examples("tileferry cache stats", "tileferry cache stats --json")
)
def stats_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show the size of the cache and its limits."""
    from attrs import asdict

    from tileferry.domain.text import format_bytes
    from tileferry.entrypoints.cli.output import (
        build_facts_table,
        open_installation,
        print_json,
        stdout,
    )

    with open_installation(config) as installation:
        stats = installation.compute_cache_stats()
        body = {"cache_root": str(installation.config.c11.cache_root), **asdict(stats)}
    if json:
        print_json("tileferry.cache.stats.v1", body)
        return
    shown = {
        name.removesuffix("_bytes").replace("_", " "): format_bytes(value)
        if name.endswith("_bytes") and isinstance(value, int)
        else value
        for name, value in body.items()
    }
    shown["pinned flights"] = ", ".join(stats.pinned_flights) or "none"
    stdout.print(build_facts_table("Cache", shown))


# verify


@app.command(
    "verify",
    epilog=format_examples(
        "tileferry cache verify",
        "tileferry cache verify --bbox 36.1,49.9,36.4,50.1 --zoom 13-15 --flight F7",
        "tileferry cache verify --bbox 36.1,49.9,36.4,50.1 --zoom 15 --quick --geojson holes.json",
    ),
)
def verify_command(
    *,
    bbox: BboxOption = None,
    area: AreaOption = None,
    zoom: OptionalZoom = None,
    flight: OptionalFlight = None,
    sector: Annotated[
        Sector | None,
        typer.Option(
            "--sector",
            metavar="SECTOR",
            help="Sector, which sets the maximum age of tiles: older ones are stale in"
            " active_conflict (the default), downgraded in stable_rear.",
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
    """Check every tile, or decide GO or NO-GO for an area.

    Exit code 3 if a tile is damaged, or the area is not ready.

    Without an area, the bytes of every tile are compared with its checksum. Bytes that belong to
    no tile (deleted, replaced or never committed) are counted as dead; they are not damage, and
    compaction reclaims them.

    An area (--bbox or --area, with --zoom) is NO-GO if a tile is damaged, stale or of an
    unacceptable resolution, or if more than --max-holes tiles are missing. Downgraded tiles are a
    warning.
    """
    from rich.console import Console

    from tileferry.application.cache.readiness import ReadinessQuery, get_end_of_day
    from tileferry.domain.tiles import SectorClass
    from tileferry.entrypoints.cli.cache_view import readiness_to_json, render_readiness
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout
    from tileferry.entrypoints.cli.parsing import parse_coverage, parse_day
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView

    if bbox is None and area is None:
        about_area = (zoom, sector, on, flight, source, max_holes, geojson)
        if quick or any(value is not None for value in about_area):
            raise typer.BadParameter("these options need an area; add --bbox or --area")
        _verify_all_tiles(config, json=json)
        return
    if zoom is None:
        raise typer.BadParameter("an area needs zoom levels; add --zoom")
    _check_readiness_options(flight, source, geojson, json=json)
    sector_class = SectorClass(sector or SectorClass.ACTIVE_CONFLICT)
    progress = ItemProgress()
    with open_installation(config, progress) as installation:
        settings = installation.config
        coverage = parse_coverage(settings, bbox, area, zoom)
        now = datetime.fromtimestamp(installation.clock.now(), UTC)
        query = ReadinessQuery(
            coverage=coverage,
            sector=sector_class,
            now=now,
            flown_at=now
            if on is None
            else get_end_of_day(parse_day(on, option="--on"), now, field="--on"),
            source=source or settings.source,
            holes_max=max_holes or 0,
            quick=quick,
        )
        with ProgressView(progress):
            report = installation.readiness.check(query)
    repairs = []
    if query.source == settings.source:
        repairs = _build_repair_commands(report, sector_class, flight=flight, config=config)
    if geojson is not None:
        _write_geojson(report, geojson)
    if json:
        print_json(READINESS_SCHEMA, readiness_to_json(report, repairs, flight=flight))
    else:
        console = Console(stderr=True, highlight=False) if geojson == STDOUT else stdout
        console.print(render_readiness(report, console, flight=flight))
        if repairs:
            console.print("To fix this, if the provider has the tiles:")
        for line in repairs:  # unwrapped, so that it can be copied
            console.print(line, markup=False, soft_wrap=True)
    if not report.verdict.is_go:
        raise typer.Exit(ExitCode.PARTIAL)


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
    report: "ReadinessReport", sector: "SectorClass", *, flight: str | None, config: Path | None
) -> list[str]:
    """Return the commands that download the missing, damaged and unfit tiles, and no others.

    Each needs --repair: otherwise damaged tiles would be taken as stored, and an area that was
    downloaded before as complete.
    """
    config_option = [] if config is None else ["--config", str(config)]
    return [
        shlex.join(
            [
                *("tileferry", "download", f"--bbox={box}"),
                *("--zoom", ",".join(map(str, zooms))),
                *("--flight", flight or "FLIGHT"),
                *("--sector", sector.value, "--repair"),
                *config_option,
            ]
        )
        for box, zooms in report.find_repair_boxes()
    ]


def _write_geojson(report: "ReadinessReport", path: Path) -> None:
    from tileferry.domain.errors import StorageError
    from tileferry.entrypoints.cli.cache_view import generate_geojson

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
            remedy="choose another file",
        ) from error


# pin and unpin


@app.command("pin", epilog=format_examples("tileferry cache pin --flight F7"))
def pin_command(*, flight: FlightOption, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Protect a flight's tiles from eviction, until it is unpinned.

    A tile belongs to the flight that it was last downloaded for.
    """
    from tileferry.entrypoints.cli.output import stderr

    tiles = _set_pin(config, flight, pin=True, json=json)
    if not tiles:
        stderr.print(
            "The cache has no tiles of this flight yet; check the name, or download its area."
        )


@app.command("unpin", epilog=format_examples("tileferry cache unpin --flight F7"))
def unpin_command(
    *, flight: FlightOption, config: ConfigFile = None, json: JsonFlag = False
) -> None:
    """Allow a flight's tiles to be evicted again."""
    _set_pin(config, flight, pin=False, json=json)


def _set_pin(config: Path | None, flight: str, *, pin: bool, json: bool) -> int:
    """Pin or unpin a flight; return the number of its tiles. Repeating it changes nothing."""
    from attrs import asdict

    from tileferry.domain.text import printable
    from tileferry.entrypoints.cli.output import blame_option, open_installation, print_json, stdout

    with open_installation(config) as installation, blame_option("--flight"):
        inventory = installation.cache_inventory
        result = inventory.pin(flight) if pin else inventory.unpin(flight)
    if json:
        print_json("tileferry.cache.pin.v1", asdict(result))
    else:
        said = "are pinned" if pin else "can be evicted"
        stdout.print(f"{result.tiles:,} tiles of flight {printable(flight)} {said}.")
    return result.tiles


# export and import

add_archive_commands(app)
