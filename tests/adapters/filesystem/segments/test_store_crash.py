"""SIGKILL at any moment: every tile with a row is whole afterwards."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from support.crash_processes import SOAK_FACTOR
from support.disk_faults import UNSYNCED
from support.segments import LoggedBlobIndex, create_content, create_tile, list_damages

from tileferry.adapters.filesystem.segments.store import SegmentTileStore

TESTS = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def starter() -> Iterator["subprocess.Popen[str]"]:
    """Run the process that starts the writers."""
    command = [sys.executable, "-m", "support.segment_crash"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=TESTS, stdin=pipe, stdout=pipe, text=True) as process:  # noqa: S603  # our own
        yield process


def run_until_killed(
    starter: "subprocess.Popen[str]", root: Path, *, seed: int, calls_left: int = 0, groups: int = 0
) -> None:
    """Start a writer and see it killed: by itself at a call, or by us after some groups."""
    assert starter.stdin is not None
    assert starter.stdout is not None
    starter.stdin.write(f"{root}\t{seed}\t{calls_left}\n")
    starter.stdin.flush()
    pid, written = int(starter.stdout.readline()), 0
    while (said := starter.stdout.readline()) == "group\n":
        written += 1
        if written == groups and not calls_left:
            os.kill(pid, signal.SIGKILL)
    assert said == f"ended {-signal.SIGKILL}\n"


def assert_no_tile_is_lost(root: Path) -> None:
    index = LoggedBlobIndex(root.with_suffix(".log"))
    with SegmentTileStore(root=root, index=index, calls=UNSYNCED) as store:
        for tile_id, blob in index.tiles().items():
            found = store.read_tile(tile_id)
            assert found == create_content(tile_id.x, tile_id.x % 3_000)
            assert sha256(found).hexdigest() == blob.sha256
        assert list_damages(store.verify()) == []
        blob = store.write_tile(create_tile(2_000_000), b"goes on")
        store.flush()
        index.add(create_tile(2_000_000), blob)
        store.compact(live_share_min=1.0)
        assert list_damages(store.verify()) == []
        assert store.read_tile(create_tile(2_000_000)) == b"goes on"


@pytest.mark.parametrize("seed", range(12 * SOAK_FACTOR))
def test_external_kill_loses_no_visible_tile(
    starter: "subprocess.Popen[str]", tmp_path: Path, seed: int
) -> None:
    groups = random.Random(seed).randrange(1, 60)  # noqa: S311  # a repeatable test, not a secret
    run_until_killed(starter, tmp_path / "cache", seed=seed, groups=groups)
    assert_no_tile_is_lost(tmp_path / "cache")


@pytest.mark.parametrize("seed", range(20 * SOAK_FACTOR))
def test_kill_at_any_call_loses_no_visible_tile(
    starter: "subprocess.Popen[str]", tmp_path: Path, seed: int
) -> None:
    calls_left = random.Random(seed).randrange(1, 400)  # noqa: S311  # as above
    run_until_killed(starter, tmp_path / "cache", seed=seed, calls_left=calls_left)
    assert_no_tile_is_lost(tmp_path / "cache")
