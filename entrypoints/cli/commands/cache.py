"""``tileferry cache``: what the cache holds, and whether it is sound."""

from pathlib import Path
from typing import Annotated

import typer

from tileferry.entrypoints.cli.commands.cache_archives import declare
from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, group
from tileferry.entrypoints.cli.options.declared import (
    AreaOption,
    BboxOption,
    FlightOption,
    OptionalFlight,
    OptionalZoom,
    Sector,
)

app = group("The tile cache: what it holds and whether it is sound.")


# stats


@app.command("stats", epilog=examples("tileferry cache stats", "tileferry cache stats --json"))
def stats_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show how much the cache holds, and what limits it."""
    from tileferry.entrypoints.cli.running import cache_stats

    cache_stats.counted(config, json=json)


# verify


@app.command(
    "verify",
    epilog=examples(
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
            help="How fresh the tiles must be: as for active_conflict, the default, or for"
            " stable_rear.",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="DATE", help="The day of the flight, in UTC; by default now."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source", metavar="NAME", help="The source of the tiles; by default c11.source."
        ),
    ] = None,
    max_holes: Annotated[
        int | None,
        typer.Option(
            "--max-holes", metavar="N", min=0, help="How many may be missing; by default none."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Look at the rows only, not at the tiles' bytes.")
    ] = False,
    geojson: Annotated[
        Path | None,
        typer.Option(
            "--geojson",
            metavar="FILE|-",
            dir_okay=False,
            help="Draw what is wrong into this file, for any map program; - is stdout.",
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Check every tile, or judge an area for a flight: GO or NO-GO.

    Exit code 3 when something is damaged, or the area is not ready.

    Without an area, every byte of every tile is checked against its row. Bytes that no row names
    (of tiles deleted, replaced or never confirmed) are counted as dead: they are no damage, and
    compaction gives them back.

    An area (--bbox or --area, with --zoom) is not ready when a tile is damaged, stale, of a
    resolution that is not accepted, or missing beyond --max-holes. Downgraded tiles are a warning.
    """
    from tileferry.entrypoints.cli.running import cache_readiness, cache_verify

    asked = cache_readiness.Asked(
        bbox=bbox,
        area=area,
        zoom=zoom,
        sector=sector,
        on=on,
        flight=flight,
        source=source,
        max_holes=max_holes,
        quick=quick,
        geojson=geojson,
        config=config,
        json=json,
    )
    if asked.names_an_area():
        cache_readiness.judged(asked)
    else:
        cache_verify.verified(config, json=json)


# pin and unpin


@app.command("pin", epilog=examples("tileferry cache pin --flight F7"))
def pin_command(*, flight: FlightOption, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Keep a flight's tiles from being evicted.

    They stay until the flight is unpinned. A tile is of the flight that it was last downloaded for.
    """
    from tileferry.entrypoints.cli.running import cache_pins

    cache_pins.pinned(config, flight=flight, pin=True, json=json)


@app.command("unpin", epilog=examples("tileferry cache unpin --flight F7"))
def unpin_command(
    *, flight: FlightOption, config: ConfigFile = None, json: JsonFlag = False
) -> None:
    """Let a flight's tiles be evicted again."""
    from tileferry.entrypoints.cli.running import cache_pins

    cache_pins.pinned(config, flight=flight, pin=False, json=json)


# export and import

declare(app)
