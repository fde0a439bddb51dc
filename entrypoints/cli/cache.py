"""``tileferry cache``: show its size, verify it, and pin flights."""

from pathlib import Path

from tileferry.entrypoints.cli.cache_archives import add_archive_commands
from tileferry.entrypoints.cli.cache_verify import add_verify_command
from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import FlightOption

app = declare_group("Inspect, verify, pin, export and import the tile cache.")


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

add_verify_command(app)
add_archive_commands(app)
