"""A crash at any moment leaves a raw partition unsealed and resumable, or sealed and complete."""

import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.crash_processes import SOAK_FACTOR
from support.disk_faults import CallLog
from support.raw_crash import ALL, GROUPS, create_raw_sink
from support.raw_partitions import AREA, KEY, NOW, RUN, create_report, list_damages, store_tiles

from tileferry.domain.errors import StorageError
from tileferry.domain.partitions.manifest import SealedPartition

TESTS = Path(__file__).parents[3]
CALLS = 112
"""About as many calls as it takes, from the first directory to the seal."""


@pytest.fixture(scope="module")
def starter() -> Iterator["subprocess.Popen[str]"]:
    """Run the process that starts the others."""
    command = [sys.executable, "-m", "support.raw_crash"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=TESTS, stdin=pipe, stdout=pipe, text=True) as process:  # noqa: S603  # our own
        yield process


def run_writer(
    starter: "subprocess.Popen[str]", root: Path, *, seed: int, calls_left: int, kill_at: str = ""
) -> tuple[list[str], int]:
    """Start a process; return what it said, and how it ended. It may be killed when it says so."""
    assert starter.stdin is not None
    assert starter.stdout is not None
    starter.stdin.write(f"{root}\t{seed}\t{calls_left}\n")
    starter.stdin.flush()
    pid, said = int(starter.stdout.readline()), []
    while not (line := starter.stdout.readline().strip()).startswith("ended"):
        said.append(line)
        if line == kill_at:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return said, int(line.removeprefix("ended "))


def check_and_complete(root: Path, said: list[str]) -> SealedPartition:
    """Hold what a crash left to its promises, and have the run go on with it."""
    sink = create_raw_sink(root)
    sealed = sink.find(KEY, RUN)
    assert sealed is not None or "sealed" not in said
    if sealed is None:
        confirmed = {tile for group in GROUPS[: _count_groups(said)] for tile in group}
        with sink.open(KEY, RUN, AREA) as raw:
            rows = list(raw.tile_metadata_store.query_by_bbox(AREA.bbox, AREA.zoom_levels))
            there = {row.tile_id for row in rows}
            assert confirmed <= there <= set(ALL)
            assert len(rows) == len(there)
            store_tiles(raw, [tile for tile in ALL if tile not in there])
            sealed = raw.seal(create_report(len(ALL)), at=NOW)
    check_sealed(root, sealed)
    return sealed


def check_sealed(root: Path, sealed: SealedPartition) -> None:
    sink = create_raw_sink(root)
    assert sink.find(KEY, RUN) == sealed
    assert list_damages(sink, sealed) == []
    with sink.open_reader(sealed) as reader:
        assert sorted(entry.tile_id for entry in reader.iter_entries()) == ALL
    with pytest.raises(StorageError, match="it is sealed"), sink.open(KEY, RUN, AREA):
        pass
    folder = root.joinpath(*str(KEY).split("/"))
    assert [path.name for path in folder.iterdir()] == [RUN]
    for path in (folder / RUN, *(folder / RUN).rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o555 if path.is_dir() else 0o444)


def _count_groups(said: list[str]) -> int:
    return sum(line.startswith("group") for line in said)


@pytest.mark.parametrize("seed", range(30 * SOAK_FACTOR))
def test_invariant_16_kill_at_any_call_leaves_the_run_open_or_sealed(
    starter: "subprocess.Popen[str]", tmp_path: Path, seed: int
) -> None:
    """The second process may be killed as well, in what the first one left."""
    chance = random.Random(seed)  # noqa: S311  # a repeatable test, not a secret
    said: list[str] = []
    for _ in range(2):
        if "sealed" in said or create_raw_sink(tmp_path).find(KEY, RUN):
            break
        more, code = run_writer(starter, tmp_path, seed=seed, calls_left=chance.randrange(1, CALLS))
        assert code in {-signal.SIGKILL, 0}
        said = said if _count_groups(said) > _count_groups(more) else more
    check_and_complete(tmp_path, said)


@pytest.mark.parametrize("seed", range(10 * SOAK_FACTOR))
def test_invariant_16_kill_during_seal_leaves_the_run_open_or_sealed(
    starter: "subprocess.Popen[str]", tmp_path: Path, seed: int
) -> None:
    said, code = run_writer(starter, tmp_path, seed=seed, calls_left=0, kill_at="sealing")
    assert code in {-signal.SIGKILL, 0}
    check_and_complete(tmp_path, said)


def test_invariant_16_failed_call_leaves_the_run_open_or_sealed(tmp_path: Path) -> None:
    """Every call from the first to the last, one at a time."""
    failures = number = 0
    while True:
        root = tmp_path / f"{number}"
        code = errno.ENOSPC if number % 2 else errno.EIO
        log, done = CallLog(fail_at=number, code=code), 0
        try:
            with create_raw_sink(root, log.calls).open(KEY, RUN, AREA) as raw:
                for group in GROUPS:
                    store_tiles(raw, group)
                    done += 1
                raw.seal(create_report(len(ALL)), at=NOW)
        except StorageError:
            failures += 1
        check_and_complete(root, [f"group {group}" for group in range(done)])
        if len(log.made) <= number:
            break
        number += 1
    assert failures > 100
