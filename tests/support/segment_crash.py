"""Processes that write, delete and compact until they are killed, or kill themselves at a call.

One process starts them all, by ``fork``: what takes long, the imports, it does only once.
"""

import os
import random
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from support.disk_faults import UNSYNCED
from support.segments import LoggedBlobIndex, create_content, create_tile
from tileferry.adapters.filesystem.files import FileCalls
from tileferry.adapters.filesystem.segments.store import SegmentTileStore

KINDS = ("open", "writev", "fdatasync", "fsync", "unlink", "mkdir")


def create_killing_calls(
    calls_left: int, chance: random.Random, *, kinds: Sequence[str] = KINDS
) -> FileCalls:
    """Calls of which one kills the process: before it, after it, or in the middle of a write."""
    left = calls_left

    def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left != 0:
                return real(*args, **named)
            try:
                if chance.random() < 0.5:
                    if real is UNSYNCED.writev:
                        whole = b"".join(args[1])
                        os.write(args[0], whole[: chance.randrange(len(whole))])
                    else:
                        real(*args, **named)
            finally:  # the call may fail as well, e.g. mkdir of a folder that exists
                os.kill(os.getpid(), signal.SIGKILL)

        return call

    return evolve(UNSYNCED, **{kind: wrapped(getattr(UNSYNCED, kind)) for kind in kinds})


def write_until_killed(root: Path, seed: int, calls_left: int) -> None:
    chance = random.Random(seed)  # noqa: S311  # a repeatable test, not a secret
    calls = create_killing_calls(calls_left, chance) if calls_left else UNSYNCED
    index = LoggedBlobIndex(root.with_suffix(".log"))
    number = 0
    while True:
        with SegmentTileStore(
            root=root, index=index, segment_bytes_max=20_000, buffer_bytes_max=8_000, calls=calls
        ) as store:
            for _ in range(4):
                group = range(number, number + 8)
                rows = [
                    (create_tile(n), store.write_tile(create_tile(n), create_content(n, n % 3_000)))
                    for n in group
                ]
                store.flush()
                for tile_id, blob in rows:
                    index.add(tile_id, blob)
                number += 8
                print_line("group")
            for victim in chance.sample(sorted(index.tiles()), 20):
                store.delete_tile(victim)
            store.compact(live_share_min=0.9)


def main() -> None:
    """Start a writer for each line that comes in, and say how it ended."""
    for line in sys.stdin:
        root, seed, calls_left = line.rstrip("\n").split("\t")
        pid = os.fork()
        if pid == 0:
            try:
                print_line(f"{os.getpid()}")
                write_until_killed(Path(root), int(seed), int(calls_left))
            finally:
                traceback.print_exc()
                os._exit(1)  # it does not go on as a second starter
        _, status = os.waitpid(pid, 0)
        print_line(f"ended {os.waitstatus_to_exitcode(status)}")


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
