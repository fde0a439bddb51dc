"""SIGKILL at any moment: what was flushed is in the journal, and nothing that was not appended."""

import logging
import random
from itertools import islice
from pathlib import Path

from support.crash_processes import SOAK_FACTOR, run_until_progress
from support.record_writers import JournalPlan, write_journal

from tileferry.adapters.filesystem.journal.store import FileJournalStore
from tileferry.domain.tiles import BBox, TileCoverage, TileSet

NAME = "flight-7__0123456789abcdef.json"
AREA = TileCoverage(bbox=BBox(west=36.0, south=49.0, east=37.0, north=50.0), zoom_levels=[16])
GROUP_MAX = 40
KILLS = 20 * SOAK_FACTOR


def count_journaled(root: Path) -> int:
    """Return how many tiles are journaled; they are the area's first ones, and no others."""
    journal = FileJournalStore(root=root, logger=logging.getLogger("test")).open(NAME)
    found = TileSet(AREA)
    journal.read_into(found)
    assert journal.count == len(found)
    assert all(tile in found for tile in islice(AREA.tiles("sat"), len(found)))
    journal.close()
    return len(found)


def test_flushed_tiles_survive_a_kill_and_no_others_appear(
    tmp_path: Path,
) -> None:
    chance = random.Random(20260601)  # noqa: S311  # a test that repeats itself
    known = 0
    for seed in range(KILLS):
        plan = JournalPlan(root=tmp_path, name=NAME, area=AREA, group_max=GROUP_MAX, seed=seed)
        flushed = run_until_progress(write_journal, plan, times=chance.randint(1, 12))[-1]
        found = count_journaled(tmp_path)
        assert known <= flushed <= found <= flushed + GROUP_MAX
        known = found
    assert known > KILLS
