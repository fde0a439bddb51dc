"""``tileferry cache stats --by``, ``prune``, ``compact`` and ``--wait``, run by an operator."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.download_env import ZOOM
from support.download_operator import AREA, DOWNLOAD, DownloadOperator, wait_until
from support.operator import run_in_process
from support.scripted_provider import ScriptedProvider, tile_content

from tileferry.adapters.filesystem import FileCacheLock, SegmentTileStore
from tileferry.adapters.postgres import Database, PostgresBlobIndex
from tileferry.adapters.system import SystemClock

COUNT = 20


@pytest.fixture(autouse=True)
def _downloaded(operator: DownloadOperator) -> None:
    assert operator.home.is_dir()
    assert run_in_process(*DOWNLOAD).code == 0


def read_size(operator: DownloadOperator) -> int:
    return sum(file.stat().st_size for file in (operator.cache_root / ".c6/segments").iterdir())


def test_tiles_are_counted_by_flight_source_and_zoom(provider: ScriptedProvider) -> None:
    size = sum(len(tile_content(tile)) for tile in provider.tiles)
    for by, name in (("flight", "F1"), ("source", "satellite"), ("zoom", str(ZOOM))):
        body = run_in_process("cache", "stats", "--by", by, "--json").json
        assert body["groups"] == [{"name": name, "tiles": COUNT, "size_bytes": size}]
        assert name in run_in_process("cache", "stats", "--by", by).out
    assert run_in_process("cache", "stats", "--json").json["groups"] is None


def test_tiles_of_no_flight_are_pruned_after_confirmation(operator: DownloadOperator) -> None:
    assert run_in_process("cache", "prune").code == 2
    assert run_in_process("cache", "prune", "--unowned", "--json").json["tiles"] == 0
    run_in_process("flight", "rm", "F1")
    preview = run_in_process("cache", "prune", "--unowned", "--dry-run", "--json")
    assert (preview.json["tiles"], preview.json["dry_run"]) == (COUNT, True)
    refused = run_in_process("cache", "prune", "--unowned")
    assert refused.code == 4
    assert f"--confirm-count {COUNT}" in refused.err
    before = read_size(operator)
    pruned = run_in_process("cache", "prune", "--unowned", "--confirm-count", str(COUNT))
    assert (pruned.code, "20 tiles" in pruned.out) == (0, True)
    assert run_in_process("cache", "stats", "--json").json["tiles"] == 0
    assert read_size(operator) < before / 10
    assert run_in_process(*DOWNLOAD, "--json").json["bytes_downloaded"] > 0, "no longer complete"


def test_pinned_tiles_are_not_pruned() -> None:
    run_in_process("flight", "pin", "F1")
    ran = run_in_process("cache", "prune", "--unused-days", "0", "--source", "satellite", "--json")
    assert (ran.code, ran.json["tiles"]) == (0, 0)


def test_invariant_14_wrong_wall_clock_prunes_no_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dates of use are the database's, so its clock says how long ago they are."""
    monkeypatch.setattr(SystemClock, "now", staticmethod(lambda: time.time() + 2 * 86_400.0))
    ran = run_in_process("cache", "prune", "--unused-days", "1", "--json")
    assert (ran.code, ran.json["tiles"]) == (0, 0)


def test_replaced_tiles_are_reclaimed_by_compaction(operator: DownloadOperator) -> None:
    assert run_in_process(*DOWNLOAD, "--again").code == 0
    before = read_size(operator)
    ran = run_in_process("cache", "compact", "--json")
    assert (ran.code, ran.json["damaged_tiles"]) == (0, [])
    assert ran.json["freed_bytes"] > 0
    assert read_size(operator) < before
    assert "sound" in run_in_process("cache", "verify").out
    assert "Compaction" in run_in_process("cache", "compact").out


@pytest.fixture
def lock(operator: DownloadOperator) -> Iterator[FileCacheLock]:
    held = FileCacheLock(root=operator.cache_root)
    held.acquire()
    yield held
    held.release()


def test_second_writer_waits_and_says_for_whom(
    operator: DownloadOperator, lock: FileCacheLock
) -> None:
    at_once = run_in_process("cache", "compact")
    assert at_once.code == 4
    limited = run_in_process("cache", "compact", "--wait", "0.1s")
    assert (limited.code, "waiting for up to 0.1s" in limited.err) == (4, True)
    assert run_in_process("cache", "compact", "--wait", "soon").code == 2
    with operator.start(*DOWNLOAD, "--wait", "1m") as command:
        wait_until(
            lambda: "the cache is in use by process" in command.read_errors(), "the wait for it"
        )
        lock.release()
        assert command.wait().code == 0


def test_verify_and_export_work_while_tiles_move(
    operator: DownloadOperator, tmp_path: Path
) -> None:
    """The bytes move again and again while they are read."""
    stop = threading.Event()
    database = Database.from_url(operator.database_url)

    def compact() -> None:
        while not stop.is_set():
            with SegmentTileStore(
                root=operator.cache_root, index=PostgresBlobIndex(database)
            ) as store:
                store.compact(live_share_min=1.0)

    mover = threading.Thread(target=compact)
    mover.start()
    try:
        for number in range(2):
            judged = run_in_process(
                "cache", "verify", *AREA, "--sector", "stable_rear", "--max-holes", "1000", "--json"
            )
            assert judged.json["total"]["damaged"] == 0
            assert judged.json["total"]["present"] == COUNT
            whole = run_in_process("cache", "verify", "--json")
            assert (whole.json["sound"], whole.json["tiles"] >= COUNT) == (True, True)
            exported = run_in_process("cache", "export", str(tmp_path / f"{number}"), "--json")
            assert (exported.code, exported.json["tiles_exported"]) == (0, COUNT)
    finally:
        stop.set()
        mover.join()
        database.close()
