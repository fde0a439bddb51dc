"""``tileferry cache``: show its size, verify it, and pin flights."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tileferry.entrypoints.cli.cache_archives import add_archive_commands
from tileferry.entrypoints.cli.cache_explain import add_explain_command
from tileferry.entrypoints.cli.cache_maintenance import add_maintenance_commands
from tileferry.entrypoints.cli.cache_verify import add_verify_command
from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import FlightOption

app = declare_group("Inspect, verify, prune, compact, export and import the tile cache.")


# stats


@app.command(
    "stats", epilog=format_examples("tileferry cache stats", "tileferry cache stats --by flight")
)
def stats_command(
    *,
    by: Annotated[
        Literal["flight", "source", "zoom"] | None,
        typer.Option(
            "--by", metavar="KEY", help="Also count the tiles by flight, source or zoom level."
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show the size of the cache and its limits.

    With --by flight, a shared tile counts for each of its flights.
    """
    from attrs import asdict

    from tileferry.application.ports.inventory import TileKey
    from tileferry.domain.text import format_bytes, printable
    from tileferry.entrypoints.cli.output import (
        build_facts_table,
        open_installation,
        print_json,
        stdout,
    )

    with open_installation(config) as installation:
        stats = installation.compute_cache_stats()
        body = {"cache_root": str(installation.config.c11.cache_root), **asdict(stats)}
        if by == "flight":
            groups = installation.cache_inventory.count_by_flight()
        else:
            groups = [] if by is None else [*installation.cache_inventory.count_by(TileKey(by))]
    if json:
        grouped = None if by is None else [asdict(group) for group in groups]
        print_json("tileferry.cache.stats.v1", {**body, "by": by, "groups": grouped})
        return
    shown = {
        name.removesuffix("_bytes").replace("_", " "): format_bytes(value)
        if name.endswith("_bytes") and isinstance(value, int)
        else value
        for name, value in body.items()
    }
    shown["pinned flights"] = ", ".join(stats.pinned_flights) or "none"
    stdout.print(build_facts_table("Cache", shown))
    if by is not None:
        from tileferry.entrypoints.cli.tables import FittedColumn, build_fitted_table

        columns = [
            FittedColumn(by, [printable(group.name) for group in groups]),
            FittedColumn("tiles", [f"{group.tiles:,}" for group in groups], right=True),
            FittedColumn("size", [format_bytes(one.size_bytes) for one in groups], right=True),
        ]
        stdout.print(build_fitted_table(columns))


# pin and unpin


@app.command("pin", epilog=format_examples("tileferry cache pin --flight F7"))
def pin_command(*, flight: FlightOption, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Protect a flight's tiles from eviction, as `flight pin` does."""
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
    from tileferry.domain.tiles import OperatorNote
    from tileferry.entrypoints.cli.output import blame_option, open_installation, print_json, stdout
    from tileferry.entrypoints.cli.partition_options import get_operator_name

    note = OperatorNote(by=get_operator_name())
    with open_installation(config) as installation, blame_option("--flight"):
        flights = installation.flights
        result = flights.pin(flight, note) if pin else flights.unpin(flight, note)
    if json:
        print_json("tileferry.cache.pin.v1", asdict(result))
    else:
        said = "are pinned" if pin else "can be evicted"
        stdout.print(f"{result.tiles:,} tiles of flight {printable(flight)} {said}.")
    return result.tiles


# verify, export and import

add_explain_command(app)
add_verify_command(app)
add_maintenance_commands(app)
add_archive_commands(app)
