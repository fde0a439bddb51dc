"""``tileferry cache``: what the cache holds, and whether it is sound."""

from pathlib import Path
from typing import Annotated, assert_never

import typer
from attrs import define, field
from rich.table import Table

from tileferry.adapters.filesystem.segments.maintenance import (
    DamagedBlob,
    DamagedSegment,
    SegmentTally,
    VerificationFinding,
)
from tileferry.domain.text import format_bytes, printable
from tileferry.domain.tiles import UploadRequest
from tileferry.entrypoints.cache_session import lock_cache, make_folder
from tileferry.entrypoints.cli.cache_archives import add_archive_commands
from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.counting import show_count
from tileferry.entrypoints.cli.exit_codes import ExitCode
from tileferry.entrypoints.cli.option_types import (
    AreaOption,
    BboxOption,
    FlightOption,
    OptionalFlight,
    OptionalZoom,
    Sector,
)
from tileferry.entrypoints.cli.output import (
    blame_option,
    build_facts_table,
    open_checked,
    print_json,
    stderr,
    stdout,
)

app = declare_group("The tile cache: what it holds and whether it is sound.")


# stats


@app.command(
    "stats", epilog=format_examples("tileferry cache stats", "tileferry cache stats --json")
)
def stats_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show how much the cache holds, and what limits it."""
    from tileferry.entrypoints.cli import cache

    cache.show_cache_stats(config, json=json)


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
    from tileferry.entrypoints.cli import cache, cache_readiness

    asked = cache_readiness.ReadinessOptions(
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
    if asked.has_area():
        cache_readiness.show_readiness(asked)
    else:
        cache.verify_cache(config, json=json)


# pin and unpin


@app.command("pin", epilog=format_examples("tileferry cache pin --flight F7"))
def pin_command(*, flight: FlightOption, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Keep a flight's tiles from being evicted.

    They stay until the flight is unpinned. A tile is of the flight that it was last downloaded for.
    """
    from tileferry.entrypoints.cli import cache

    cache.pin_flight(config, flight=flight, pin=True, json=json)


@app.command("unpin", epilog=format_examples("tileferry cache unpin --flight F7"))
def unpin_command(
    *, flight: FlightOption, config: ConfigFile = None, json: JsonFlag = False
) -> None:
    """Let a flight's tiles be evicted again."""
    from tileferry.entrypoints.cli import cache

    cache.pin_flight(config, flight=flight, pin=False, json=json)


# export and import

add_archive_commands(app)


def show_cache_stats(config: Path | None, *, json: bool) -> None:
    """Show the cache's books beside the disk that it lies on."""
    with open_checked(config) as container:
        make_folder(Path(container.cache_root()))
        budget = container.budget_enforcer()
        ledger = container.cache_ledger()
        with ledger.begin_transaction() as books:
            used, reserved = books.sum_used_bytes(), books.sum_reserved_bytes()
        body = {
            "cache_root": str(container.cache_root()),
            "tiles": container.metadata_store().count(),
            "used_bytes": used,
            "reserved_bytes": reserved,
            "budget_bytes": budget.budget_bytes,
            "free_disk_bytes": container.disk().free_bytes(),
            "free_space_reserve_bytes": budget.free_space_reserve_bytes,
            "pinned_flights": (pinned := list(ledger.list_pinned_flights())),
        }
    if json:
        print_json("tileferry.cache.stats.v1", body)
        return
    shown = {
        name.removesuffix("_bytes").replace("_", " "): format_bytes(value)
        if name.endswith("_bytes") and isinstance(value, int)
        else value
        for name, value in body.items()
    }
    shown["pinned flights"] = ", ".join(pinned) or "none"
    stdout.print(build_facts_table("Cache", shown))


def pin_flight(config: Path | None, *, flight: str, pin: bool, json: bool) -> None:
    """Pin a flight, or let it go; doing it again changes nothing."""
    with blame_option("--flight"):
        flight_id = UploadRequest(flight_id=flight).flight_id
    with open_checked(config) as container:
        ledger = container.cache_ledger()
        if pin:
            ledger.pin_flight(flight_id)
        else:
            ledger.unpin_flight(flight_id)
        tiles = container.metadata_store().count_stored_for_flight(flight_id)
        body = {
            "flight_id": flight_id,
            "pinned": pin,
            "tiles": tiles,
            "pinned_flights": list(ledger.list_pinned_flights()),
        }
    if json:
        print_json("tileferry.cache.pin.v1", body)
    else:
        said = "are kept" if pin else "may be evicted"
        stdout.print(f"{tiles:,} tiles of flight {printable(flight_id)} {said}.")
    if pin and not tiles:
        stderr.print("The cache has none of it yet: check the name, or download its area.")


DAMAGE_SHOWN_MAX = 20


def verify_cache(config: Path | None, *, json: bool) -> None:
    """Read everything, tell what is damaged, and end with an error if anything is."""
    result = CacheVerification()
    with (
        open_checked(config) as container,
        lock_cache(container),  # a writer would look like damage
        show_count("Verifying") as on_tile,
    ):
        for finding in container.tile_store().verify(on_tile):
            result.add(finding)
    if json:
        print_json("tileferry.cache.verify.v1", _verification_to_json(result))
    else:
        _print_verification(result)
    if not result.sound:
        raise typer.Exit(ExitCode.PARTIAL)


@define
class CacheVerification:
    """What ``cache verify`` found, added up as it goes."""

    tiles: int = 0
    live_bytes: int = 0
    dead_bytes: int = 0
    damaged_tiles: int = 0
    damaged_segments: int = 0
    shown: list[dict[str, object]] = field(factory=list)

    def add(self, finding: VerificationFinding) -> None:
        """Take one finding in; of the damage, only the first lines are kept."""
        match finding:
            case SegmentTally():
                self.tiles += finding.live_tiles
                self.live_bytes += finding.live_bytes
                self.dead_bytes += finding.dead_bytes
            case DamagedBlob():
                self.damaged_tiles += 1
                self._keep_damage(str(finding.tile_id), finding.segment, finding.problem)
            case DamagedSegment():
                self.damaged_segments += 1
                self._keep_damage(None, finding.segment, finding.problem)
            case _:
                assert_never(finding)

    def _keep_damage(self, tile_id: str | None, segment: int, problem: str) -> None:
        if len(self.shown) < DAMAGE_SHOWN_MAX:
            self.shown.append({"tile_id": tile_id, "segment": segment, "problem": problem})

    @property
    def sound(self) -> bool:
        """Whether every tile can be trusted."""
        return not (self.damaged_tiles or self.damaged_segments)


def _verification_to_json(result: CacheVerification) -> dict[str, object]:
    return {
        "sound": result.sound,
        "tiles": result.tiles,
        "live_bytes": result.live_bytes,
        "dead_bytes": result.dead_bytes,
        "damaged_tiles": result.damaged_tiles,
        "damaged_segments": result.damaged_segments,
        "damage": result.shown,
    }


def _print_verification(result: CacheVerification) -> None:
    if result.shown:
        table = Table("tile", "segment", "problem", title="Damage", title_justify="left")
        for line in result.shown:
            table.add_row(str(line["tile_id"] or "-"), str(line["segment"]), str(line["problem"]))
        stdout.print(table)
    stdout.print(
        build_facts_table(
            "Cache",
            {
                "tiles checked": result.tiles,
                "their size": format_bytes(result.live_bytes),
                "dead": format_bytes(result.dead_bytes),
                "damaged tiles": result.damaged_tiles,
                "damaged segments": result.damaged_segments,
                "verdict": "sound" if result.sound else "damaged: download those areas again",
            },
        )
    )
