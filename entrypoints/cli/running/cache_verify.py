"""Every tile of the cache, checked against its row."""

from pathlib import Path
from typing import assert_never

import typer
from attrs import define, field
from rich.table import Table

from tileferry.adapters.filesystem.verification import (
    DamagedBlob,
    DamagedSegment,
    Finding,
    SegmentTally,
)
from tileferry.domain.text import in_bytes
from tileferry.entrypoints.cli.exits import ExitCode
from tileferry.entrypoints.cli.output import facts, opened_books, people, print_json
from tileferry.entrypoints.cli.progress.counting import counting
from tileferry.entrypoints.holding import locked

SHOWN_MAX = 20


def verified(config: Path | None, *, json: bool) -> None:
    """Read everything, tell what is damaged, and end with an error if anything is."""
    result = Verification()
    with (
        opened_books(config) as container,
        locked(container),  # a writer would look like damage
        counting("Verifying") as on_tile,
    ):
        for finding in container.tile_store().verify(on_tile):
            result.add(finding)
    if json:
        print_json("tileferry.cache.verify.v1", _json_of(result))
    else:
        _show(result)
    if not result.sound:
        raise typer.Exit(ExitCode.PARTIAL)


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

    def _show(self, tile_id: str | None, segment: int, problem: str) -> None:
        if len(self.shown) < SHOWN_MAX:
            self.shown.append({"tile_id": tile_id, "segment": segment, "problem": problem})

    @property
    def sound(self) -> bool:
        """Whether every tile can be trusted."""
        return not (self.damaged_tiles or self.damaged_segments)


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
            table.add_row(str(line["tile_id"] or "-"), str(line["segment"]), str(line["problem"]))
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
