"""SIGKILL at any moment: what was flushed is in the journal, and nothing that was not appended."""

import logging
import random
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

from support.soak import TIMES

from tileferry.adapters.filesystem.journal import FileJournalStore
from tileferry.domain.tiles import BBox, TileCoverage, TileSet

NAME = "flight-7__0123456789abcdef.json"
AREA = TileCoverage(bbox=BBox(west=36.0, south=49.0, east=37.0, north=50.0), zoom_levels=[16])
GROUP_MAX = 40
KILLS = 20 * TIMES

WRITER = f"""
import logging, os, random, sys
from itertools import islice
from pathlib import Path
from tileferry.adapters.filesystem.journal import FileJournalStore
from tileferry.domain.tiles import BBox, TileCoverage, TileSet

area = TileCoverage(bbox=BBox.parse({str(AREA.bbox)!r}), zoom_levels={AREA.zoom_levels!r})
journal = FileJournalStore(root=Path(sys.argv[1]), logger=logging.getLogger()).open({NAME!r})
done = TileSet(area)
journal.read_into(done)
chance = random.Random(int(sys.argv[2]))
missing = done.missing("sat")
os.write(1, b"%d\\n" % journal.count)
while group := list(islice(missing, chance.randint(1, {GROUP_MAX}))):
    journal.append(group)
    journal.flush()
    os.write(1, b"%d\\n" % journal.count)
"""


def killed_writer(root: Path, seed: int, lines_before: int) -> int:
    """Let a process write, kill it, and return how many tiles it had reported as flushed."""
    with subprocess.Popen(  # noqa: S603  # our own interpreter, our own script
        [sys.executable, "-c", WRITER, str(root), str(seed)], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(lines_before)]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.readlines()
        assert writer.wait() == -signal.SIGKILL
        return int(lines[-1])


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
        flushed = killed_writer(tmp_path, seed, chance.randint(1, 12))
        found = count_in(tmp_path)
        assert known <= flushed <= found <= flushed + GROUP_MAX
        known = found
    assert known > KILLS
