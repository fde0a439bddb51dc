"""SIGKILL at any moment: what was flushed is in the journal, and nothing that was not appended."""

import logging
import random
from itertools import islice
from pathlib import Path

from support.killed_process import run_until_told
from support.record_writers import JournalPlan, write_journal
from support.soak import TIMES

from tileferry.adapters.filesystem.journal import FileJournalStore
from tileferry.domain.tiles import BBox, TileCoverage, TileSet

NAME = "flight-7__0123456789abcdef.json"
AREA = TileCoverage(bbox=BBox(west=36.0, south=49.0, east=37.0, north=50.0), zoom_levels=[16])
GROUP_MAX = 40
KILLS = 20 * TIMES


def count_in(root: Path) -> int:
    """Return how many tiles are journaled; they are the area's first ones, and no others."""
    journal = FileJournalStore(root=root, logger=logging.getLogger("test")).open(NAME)
    found = TileSet(AREA)
    journal.read_into(found)
    assert journal.count == len(found)
    assert all(tile in found for tile in islice(AREA.tiles("sat"), len(found)))
    journal.close()
    return len(found)


def test_spec5_ac12_every_flushed_tile_survives_a_kill_and_nothing_else_appears(
    tmp_path: Path,
) -> None:
    chance = random.Random(20260601)  # noqa: S311  # a test that repeats itself
    known = 0
    for seed in range(KILLS):
        plan = JournalPlan(root=tmp_path, name=NAME, area=AREA, group_max=GROUP_MAX, seed=seed)
        flushed = run_until_told(write_journal, plan, times=chance.randint(1, 12))[-1]
        found = count_in(tmp_path)
        assert known <= flushed <= found <= flushed + GROUP_MAX
        known = found
    assert known > KILLS
