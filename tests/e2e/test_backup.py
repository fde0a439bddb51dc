"""``tileferry backup``: backups are whole, verified and restored, whatever happens meanwhile."""

import shutil
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from logging import getLogger
from pathlib import Path

import httpx
import psycopg
import pytest
from attrs import evolve
from sqlalchemy import Connection
from support.backup_env import CrashPlan, create_restored, list_journaled, list_rows, run_plan
from support.crash_processes import SOAK_FACTOR, run_process
from support.download_operator import DOWNLOAD, DownloadOperator, wait_until
from support.raw_partitions import AREA, KEY, RUN, TILES, create_report, store_tiles
from support.scripted_provider import KEY as API_KEY
from support.scripted_provider import ScriptedProvider, tile_path

from tileferry.adapters.filesystem import FileCalls, FileFdrClient, FileRawSink
from tileferry.adapters.filesystem.segments.store import lock_segments
from tileferry.adapters.postgres import database_copies
from tileferry.adapters.postgres.engine import get_settings
from tileferry.adapters.system import SystemClock
from tileferry.domain.server_settings import ServerSettings
from tileferry.entrypoints.config import load_config
from tileferry.entrypoints.installation import Installation

DAMAGE = 3
REFUSED = 4


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    return tmp_path / "backups" / "first"


@pytest.fixture
def new_home(operator: DownloadOperator, tmp_path: Path) -> Iterator[DownloadOperator]:
    with create_restored(operator, tmp_path / "other") as other:
        yield other


def get_raw_root(operator: DownloadOperator) -> Path:
    return operator.home / "data" / "tileferry" / "raw"


@pytest.fixture
def _filled(operator: DownloadOperator, backup: Path) -> None:
    """Have tiles, a journal, a flight record and a sealed raw partition."""
    backup.parent.mkdir()
    assert operator.run_in_process(*DOWNLOAD).code == 0
    assert operator.run_in_process("flight", "pin", "F1").code == 0
    recorder = FileFdrClient(root=operator.cache_root, clock=SystemClock())
    recorder.record("c11.upload.giveup", {"tile_id": "x"}, durable=True)
    sink = FileRawSink(root=get_raw_root(operator), clock=SystemClock(), logger=getLogger("test"))
    with sink.open(KEY, RUN, AREA) as raw:
        store_tiles(raw, TILES[:3])
        raw.seal(create_report(3), at=datetime.now(UTC))


def read_tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode and the bytes of each file."""
    return {
        str(path.relative_to(root)): (path.stat().st_mode, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file() and path.suffix != ".lock" and path.name != "lock"
    }


@pytest.mark.usefixtures("_filled")
def test_backup_is_restored_with_the_same_content_and_verdicts(
    operator: DownloadOperator, new_home: DownloadOperator, backup: Path
) -> None:
    created = operator.run_in_process("backup", "create", str(backup), "--json").json
    assert created["tiles"] == 20
    assert operator.run_in_process("backup", "verify", str(backup), "--json").json["sound"]
    done = new_home.run_in_process("backup", "restore", str(backup))
    assert (done.code, "cache sound, audit log intact" in " ".join(done.out.split())) == (0, True)
    assert read_tree(new_home.cache_root) == read_tree(operator.cache_root)
    raw, copy = get_raw_root(operator), get_raw_root(new_home)
    assert read_tree(copy) == read_tree(raw)
    (run,) = copy.rglob(RUN)
    assert {path.stat().st_mode & 0o777 for path in run.rglob("*")} == {0o444, 0o555}
    shown = operator.run_in_process("audit", "verify", "--json").json
    assert shown["head"] == f"{created['audit_sequence']}:{created['audit_hash']}"
    assert created["audit_sequence"] == 1
    assert new_home.run_in_process("cache", "verify").code == 0
    assert new_home.run_in_process("audit", "verify").code == 0
    again = new_home.run_in_process(*DOWNLOAD, "--json").json
    assert (again["outcome"], again["bytes_downloaded"]) == ("idempotent_no_op", 0)
    assert not [path for path in backup.rglob("*") if path.is_file() and holds_key(path)]


def holds_key(path: Path) -> bool:
    return API_KEY.encode() in path.read_bytes()


@pytest.mark.usefixtures("_filled")
def test_every_flipped_byte_is_found_and_is_not_restored(
    operator: DownloadOperator, new_home: DownloadOperator, backup: Path
) -> None:
    assert operator.run_in_process("backup", "create", str(backup)).code == 0
    for path in sorted(path for path in backup.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        path.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
        ran = operator.run_in_process("backup", "verify", str(backup), "--json")
        if path.name == "manifest.json":
            assert ran.code == REFUSED
        else:
            assert ran.code == DAMAGE
            assert str(path.relative_to(backup)) in {one["path"] for one in ran.json["damage"]}
        path.write_bytes(whole)
    (backup / "database.dump").unlink()
    (backup / "cache" / "surprise").touch()
    damage = operator.run_in_process("backup", "verify", str(backup), "--json").json["damage"]
    assert {one["problem"] for one in damage} == {"is missing"}
    assert new_home.run_in_process("backup", "restore", str(backup)).code == REFUSED
    assert not any(new_home.cache_root.iterdir())
    assert find_tables(new_home) == []


def find_tables(operator: DownloadOperator) -> list[str]:
    with psycopg.connect(operator.database_url) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        return [name for (name,) in found]


def count_sessions(operator: DownloadOperator) -> int:
    """Count the sessions of others: pg_restore outlives its parent if its input is complete."""
    with psycopg.connect(operator.database_url) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        ((count,),) = found
        return int(count)


@pytest.mark.usefixtures("_filled")
def test_nothing_is_overwritten(
    operator: DownloadOperator, new_home: DownloadOperator, backup: Path
) -> None:
    assert operator.run_in_process("backup", "create", str(backup)).code == 0
    again = operator.run_in_process("backup", "create", str(backup))
    assert (again.code, "already exists" in again.err) == (REFUSED, True)
    full = operator.run_in_process("backup", "restore", str(backup))
    assert (full.code, "database is not empty" in full.err) == (REFUSED, True)
    new_home.cache_root.mkdir()
    (new_home.cache_root / "mine").touch()
    refused = new_home.run_in_process("backup", "restore", str(backup))
    assert (refused.code, "is not empty" in refused.err) == (REFUSED, True)
    assert find_tables(new_home) == []
    assert [path.name for path in new_home.cache_root.iterdir()] == ["mine"]
    half = backup.parent / "half"
    shutil.copytree(backup, half)
    (half / "manifest.json").unlink()
    assert operator.run_in_process("backup", "verify", str(half)).code == REFUSED


def test_backup_through_a_pooler_is_refused(
    operator: DownloadOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say_pooled(connection: Connection) -> ServerSettings:
        return evolve(get_settings(connection), is_pooled=True)

    monkeypatch.setattr(database_copies, "get_settings", say_pooled)
    ran = operator.run_in_process("backup", "create", str(tmp_path / "b"))
    assert (ran.code, "behind a pooler" in ran.err) == (REFUSED, True)
    assert not (tmp_path / "b").exists()


@pytest.mark.usefixtures("_filled")
def test_tiles_keep_their_files_while_a_backup_is_created(
    operator: DownloadOperator, caplog: pytest.LogCaptureFixture
) -> None:
    assert operator.run_in_process(*DOWNLOAD, "--again").code == 0
    with lock_segments(operator.cache_root, FileCalls(), SystemClock()):
        refused = operator.run_in_process("cache", "compact")
        assert (refused.code, "a backup is being created" in refused.err) == (REFUSED, True)
        with Installation(load_config(None)) as installation:
            installation._container.budget_enforcer().reclaim()  # as after an eviction
        assert "evicted tiles keep their space: a backup is being created" in caplog.text
    assert operator.run_in_process("cache", "compact", "--json").json["segments_removed"] == 2


def test_backup_during_a_download_is_consistent(
    operator: DownloadOperator, provider: ScriptedProvider, backup: Path, tmp_path: Path
) -> None:
    backup.parent.mkdir()
    go_on = threading.Event()

    def hold(request: httpx.Request) -> httpx.Response:
        assert go_on.wait(60)
        return provider(request)

    for tile in provider.tiles[5:7]:
        provider.once[tile_path(tile)].append(hold)
    with operator.start(*DOWNLOAD) as download:
        wait_until(lambda: len(list_rows(operator)) >= 5, "the first group")
        ran = operator.run_in_process("backup", "create", str(backup), "--json")
        assert 5 <= ran.json["tiles"] < len(provider.tiles)
        assert download.process.poll() is None
        go_on.set()
        assert download.wait().code == 0
    with create_restored(operator, tmp_path / "during") as other:
        assert other.run_in_process("backup", "restore", str(backup)).code == 0
        assert set(list_journaled(other)) <= set(list_rows(other))
        assert len(list_rows(other)) == ran.json["tiles"]
        provider.requests.clear()
        assert other.run_in_process(*DOWNLOAD, "--json").json["outcome"] == "success"
        fetched = {one.url.path for one in provider.requests} & set(map(tile_path, provider.tiles))
        assert len(fetched) == len(provider.tiles) - ran.json["tiles"]


@pytest.mark.usefixtures("_filled")
def test_killed_backup_and_killed_restore_leave_nothing_that_looks_complete(
    operator: DownloadOperator, tmp_path: Path, backup: Path
) -> None:
    plan = CrashPlan(
        database_url=operator.database_url, home=operator.home, place=backup, is_restore=False
    )
    draft = backup.parent / f".{backup.name}.tileferry-draft"
    killed = 0
    for number in range(SOAK_FACTOR):
        code, _ = run_process(
            run_plan, plan, kill_when=draft.exists, after_s=0.02 * (number % 5 + 1)
        )
        if backup.exists():  # the kill came too late
            assert operator.run_in_process("backup", "verify", str(backup)).code == 0
            shutil.rmtree(backup)
        else:
            assert code == -signal.SIGKILL
            killed += 1
    assert killed
    assert operator.run_in_process("backup", "create", str(backup)).code == 0
    assert not draft.exists()
    for number in range(SOAK_FACTOR):
        with create_restored(operator, tmp_path / f"killed-{number}") as other:
            plan = CrashPlan(
                database_url=other.database_url, home=other.home, place=backup, is_restore=True
            )
            staging = other.cache_root / ".restoring"
            code, _ = run_process(
                run_plan, plan, kill_when=staging.exists, after_s=0.03 * (number % 10 + 1)
            )
            wait_until(lambda: count_sessions(other) == 0, "the end of pg_restore")
            is_whole = (other.cache_root / ".c11/cache-id").exists()
            assert (other.run_in_process("cache", "verify").code == 0) == is_whole
            if not find_tables(other):
                assert other.run_in_process("backup", "restore", str(backup)).code == 0
