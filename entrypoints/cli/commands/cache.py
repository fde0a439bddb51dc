"""``tileferry cache``: what the cache holds, and whether it is sound."""

from pathlib import Path
from typing import Annotated, assert_never

import typer
from attrs import define, field
from rich.table import Table

from tileferry.adapters.filesystem.verification import (
    DamagedBlob,
    DamagedSegment,
    Finding,
    SegmentTally,
)
from tileferry.adapters.postgres import schema_status
from tileferry.domain.tiles import SectorClass
from tileferry.entrypoints.cli.commands.cache_verify import AreaOptions, verify_area
from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag
from tileferry.entrypoints.cli.exits import ExitCode
from tileferry.entrypoints.cli.options.area import AreaOption, BboxOption
from tileferry.entrypoints.cli.output import facts, in_bytes, locked, opened, people, print_json
from tileferry.entrypoints.container import Container

app = typer.Typer(
    name="cache",
    help="The tile cache: what it holds and whether it is sound.",
    no_args_is_help=True,
    add_completion=False,
)
SHOWN_MAX = 20


def _ready(container: Container) -> None:
    schema_status(container.database()).check()
    Path(container.cache_root()).mkdir(parents=True, exist_ok=True, mode=0o700)


@app.command("stats")
def stats_command(config: ConfigFile = None, json: JsonFlag = False) -> None:  # noqa: FBT002  # a flag
    """Show how much the cache holds, and what limits it."""
    with opened(config) as container:
        _ready(container)
        budget = container.budget_enforcer()
        ledger = container.cache_ledger()
        with ledger.exclusively() as books:
            used, reserved = books.used_bytes(), books.reserved_bytes()
        body = {
            "cache_root": str(container.cache_root()),
            "tiles": container.metadata_store().count(),
            "used_bytes": used,
            "reserved_bytes": reserved,
            "budget_bytes": budget.budget_bytes,
            "free_disk_bytes": container.disk().free_bytes(),
            "free_space_reserve_bytes": budget.free_space_reserve_bytes,
            "pinned_flights": (pinned := list(ledger.pinned_flights())),
        }
    if json:
        print_json("tileferry.cache.stats.v1", body)
        return
    shown = {
        name.removesuffix("_bytes").replace("_", " "): in_bytes(value)
        if name.endswith("_bytes") and isinstance(value, int)
        else value
        for name, value in body.items()
    }
    shown["pinned flights"] = ", ".join(pinned) or "none"
    people.print(facts("Cache", shown))


@define
class Verification:
    """What ``cache verify`` found, added up as it goes."""

    tiles: int = 0
    live_bytes: int = 0
    dead_bytes: int = 0
    damaged_tiles: int = 0
    damaged_segments: int = 0
    shown: list[dict[str, object]] = field(factory=list)

    def add(self, finding: Finding) -> None:
        """Take one finding in; of the damage, only the first lines are kept."""
        match finding:
            case SegmentTally():
                self.tiles += finding.live_tiles
                self.live_bytes += finding.live_bytes
                self.dead_bytes += finding.dead_bytes
            case DamagedBlob():
                self.damaged_tiles += 1
                self._show(str(finding.tile_id), finding.blob.segment, finding.problem)
            case DamagedSegment():
                self.damaged_segments += 1
                self._show(None, finding.segment, finding.problem)
            case _:
                assert_never(finding)

    def _show(self, tile: str | None, segment: int, problem: str) -> None:
        if len(self.shown) < SHOWN_MAX:
            self.shown.append({"tile": tile, "segment": segment, "problem": problem})

    @property
    def sound(self) -> bool:
        """Whether every tile can be trusted."""
        return not (self.damaged_tiles or self.damaged_segments)


@app.command(
    "verify",
    epilog="Example: tileferry cache verify --bbox 36.1,49.9,36.4,50.1 --zoom 15,16 --flight F1",
)
def verify_command(
    *,
    bbox: BboxOption = None,
    area: AreaOption = None,
    zoom: Annotated[
        str | None, typer.Option(help="Zoom levels of the area: 15,16 or 14-16.")
    ] = None,
    sector: Annotated[
        SectorClass | None,
        typer.Option(help="How fresh its tiles must be.", show_default="active_conflict"),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="The day of the flight (UTC); otherwise now."),
    ] = None,
    flight: Annotated[str | None, typer.Option(help="The flight that asks.")] = None,
    source: Annotated[
        str | None, typer.Option(help="The tiles' source.", show_default="c11.source")
    ] = None,
    max_holes: Annotated[
        int | None, typer.Option(min=0, help="How many may be missing.", show_default="0")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Do not check bytes.")] = False,
    geojson: Annotated[
        Path | None,
        typer.Option(metavar="FILE|-", dir_okay=False, help="Draw what is wrong into this file."),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Check every byte of every tile against its row; or judge an area for a flight: GO or NO-GO.

    Exit code 3 when something is damaged, or the area is not ready. Bytes that no row names (of
    tiles deleted, replaced or never confirmed) are counted as dead; they are no damage, and
    compaction gives them back.

    An area (--bbox or --area) is not ready when a tile is damaged, stale, of a resolution that is
    not accepted, or missing beyond --max-holes. Downgraded tiles are a warning.
    """
    if bbox is None and area is None:
        area_only = (zoom, sector, on, flight, source, max_holes, quick or None, geojson)
        if any(value is not None for value in area_only):
            raise typer.BadParameter("this is about an area: give --bbox or --area as well")
        _verify_all(config, json=json)
        return
    if zoom is None:
        raise typer.BadParameter("an area has zoom levels: give --zoom as well")
    verify_area(
        AreaOptions(
            bbox=bbox,
            area=area,
            zoom=zoom,
            sector=sector or SectorClass.ACTIVE_CONFLICT,
            on=on,
            flight=flight,
            source=source,
            max_holes=max_holes or 0,
            quick=quick,
            geojson=geojson,
            config=config,
            json=json,
        )
    )


def _verify_all(config: Path | None, *, json: bool) -> None:
    result = Verification()
    with opened(config) as container:
        _ready(container)
        with locked(container):  # a writer at work would look like damage
            for finding in container.tile_store().verify():
                result.add(finding)
    if json:
        print_json("tileferry.cache.verify.v1", _json_of(result))
    else:
        _show(result)
    if not result.sound:
        raise typer.Exit(ExitCode.PARTIAL)


def _json_of(result: Verification) -> dict[str, object]:
    return {
        "sound": result.sound,
        "tiles": result.tiles,
        "live_bytes": result.live_bytes,
        "dead_bytes": result.dead_bytes,
        "damaged_tiles": result.damaged_tiles,
        "damaged_segments": result.damaged_segments,
        "damage": result.shown,
    }


def _show(result: Verification) -> None:
    if result.shown:
        table = Table("tile", "segment", "problem", title="Damage", title_justify="left")
        for line in result.shown:
            table.add_row(str(line["tile"] or "-"), str(line["segment"]), str(line["problem"]))
        people.print(table)
    people.print(
        facts(
            "Cache",
            {
                "tiles checked": result.tiles,
                "their size": in_bytes(result.live_bytes),
                "dead": in_bytes(result.dead_bytes),
                "damaged tiles": result.damaged_tiles,
                "damaged segments": result.damaged_segments,
                "verdict": "sound" if result.sound else "damaged: download those areas again",
            },
        )
    )
