"""Processes that bring a raw partition in and seal it, until they are killed or are done.

One process starts them all, by ``fork``: what takes long, the imports, it does only once.
"""

import logging
import os
import random
import sys
import traceback
from pathlib import Path

import attrs

from support.disk_faults import UNSYNCED
from support.raw_partitions import AREA, KEY, NOW, RUN, TILES, create_report, store_tiles
from support.segment_crash import create_killing_calls, print_line
from tileferry.adapters.filesystem.files import FileCalls
from tileferry.adapters.filesystem.raw.sink import FileRawSink
from tileferry.adapters.memory import ManualClock

KINDS = tuple(item.name for item in attrs.fields(FileCalls) if item.name != "pread")
GROUPS = [TILES[:4], TILES[4:7], TILES[7:8]]
ALL = [tile for group in GROUPS for tile in group]


def create_raw_sink(root: Path, calls: FileCalls = UNSYNCED) -> FileRawSink:
    return FileRawSink(
        root=root,
        clock=ManualClock(NOW.timestamp()),
        logger=logging.getLogger("test"),
        calls=calls,
    )


def store_and_seal(root: Path, calls: FileCalls) -> None:
    """Store group after group, saying which are safe, and seal."""
    with create_raw_sink(root, calls).open(KEY, RUN, AREA) as raw:
        for number, group in enumerate(GROUPS, start=1):
            store_tiles(raw, group)
            print_line(f"group {number}")
        print_line("sealing")
        raw.seal(create_report(len(ALL)), at=NOW)
        print_line("sealed")


def main() -> None:
    """Start a process for each line that comes in, and say how it ended."""
    for line in sys.stdin:
        root, seed, calls_left = line.rstrip("\n").split("\t")
        pid = os.fork()
        if pid == 0:
            try:
                print_line(f"{os.getpid()}")
                chance = random.Random(int(seed))  # noqa: S311  # a repeatable test, not a secret
                calls = create_killing_calls(int(calls_left), chance, kinds=KINDS)
                store_and_seal(Path(root), calls)
                os._exit(0)
            finally:
                traceback.print_exc()
                os._exit(1)  # it does not go on as a second starter
        _, status = os.waitpid(pid, 0)
        print_line(f"ended {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
