"""What is left of a server that was killed, damaged or made by others; and a start that is slow."""

import logging
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.embedded_user import ServerUser, visit_server
from support.postgres_server import PostgresServerProcess, delay_start

from tileferry.adapters.postgres import (
    EmbeddedServer,
    ServerState,
    server_process,
    server_socket,
    start_embedded,
)
from tileferry.adapters.postgres.server_process import (
    MAJOR_VERSION,
    PACKAGE,
    Account,
    ServerProcess,
    find_binaries,
    share_programs,
)
from tileferry.domain.errors import DatabaseError

IN_ORDER = "restore the folder from a backup, or delete it to start with an empty database"


@pytest.fixture
def embedded(data_dir: Path) -> Iterator[EmbeddedServer]:
    """A server that has its data, and does not run."""
    server = EmbeddedServer(data_dir)
    yield server
    server.leave()


@contextmanager
def run_bystander(pgdata: Path) -> Iterator[int]:
    """Run a process of the server's user that has nothing to do with it."""
    uid = pgdata.stat().st_uid
    with subprocess.Popen(
        ["/bin/cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        user=uid if os.geteuid() == 0 else None,
        cwd="/",
    ) as process:
        yield process.pid
        assert process.poll() is None, "it was harmed"
        process.communicate()
        assert process.returncode == 0


def test_invariant_41_stale_pid_of_another_process_harms_nobody(embedded: EmbeddedServer) -> None:
    pgdata = embedded.data_dir / "pgdata"
    with run_bystander(pgdata) as pid:
        for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            stale = f"{pid}\n{pgdata}\n1700000000\n5432\n{pgdata}\n\n 1 1\nready\n"
            (pgdata / name).write_text(stale)
        assert embedded.find_status().state is ServerState.STOPPED
        assert not embedded.stop()
        embedded.join()
        assert embedded.find_status().pid != pid
        (pgdata / "postmaster.pid").write_text(f"{pid}\n")
        assert embedded.leave()


def test_invariant_41_listener_that_is_not_the_server_is_not_signalled(
    embedded: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_socket, "_CONNECT_TIMEOUT_S", 2)
    pgdata = embedded.data_dir / "pgdata"
    embedded.join()
    embedded.leave()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(pgdata / ".s.PGSQL.5432"))
    listener.listen()
    received: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        assert embedded.find_status().state is ServerState.STARTING
        with pytest.raises(DatabaseError, match="did not stop"):
            embedded.stop()
    finally:
        signal.signal(signal.SIGINT, previous)
        listener.close()
    assert received == []


@pytest.mark.parametrize("left", ["", "nonsense\n", "-1\n", "99999999999999999999\n", "1\n"])
def test_damaged_files_of_a_dead_server_are_replaced(embedded: EmbeddedServer, left: str) -> None:
    for name in ("postmaster.pid", ".s.PGSQL.5432", ".s.PGSQL.5432.lock"):
        (embedded.data_dir / "pgdata" / name).write_text(left)
    embedded.join()
    assert embedded.find_status().state is ServerState.RUNNING


def test_killed_server_recovers_with_its_data(embedded: EmbeddedServer) -> None:
    assert visit_server(embedded.data_dir)[1] == 1
    pid = embedded.find_status().pid
    assert pid
    os.kill(pid, signal.SIGKILL)  # its other processes notice, and end a little later
    assert visit_server(embedded.data_dir)[1] == 2
    PostgresServerProcess(embedded.data_dir, "").stop("immediate")
    assert visit_server(embedded.data_dir)[1] == 3


def test_server_without_our_database_gets_it(embedded: EmbeddedServer) -> None:
    """As after a kill between the two."""
    import psycopg  # noqa: PLC0415  # for this test alone

    url = embedded.join().replace("/tileferry?", "/postgres?")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP DATABASE tileferry")
    assert visit_server(embedded.data_dir)[1] == 1


def _damage(data_dir: Path, what: str) -> None:
    pgdata, run = data_dir / "pgdata", data_dir / "run"
    shutil.rmtree(run)
    if what in {"lock is a folder", "users is a link"}:
        run.mkdir()
    damages: dict[str, Callable[[], object]] = {
        "no version": (pgdata / "PG_VERSION").unlink,
        "binary version": lambda: (pgdata / "PG_VERSION").write_bytes(b"\xff\x00"),
        "other version": lambda: (pgdata / "PG_VERSION").write_text("12\n"),
        "no control file": (pgdata / "global" / "pg_control").unlink,
        "open to others": lambda: pgdata.chmod(0o755),
        "lock is a folder": (run / "lock").mkdir,
        "users is a link": lambda: (run / "users").symlink_to("elsewhere"),
        "run is a file": run.touch,
        "pid file is a folder": (pgdata / "postmaster.pid").mkdir,
        "settings": lambda: (pgdata / "postgresql.auto.conf").write_text("shared_buffers = 'x'\n"),
    }
    damages[what]()


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("no version", f"is incomplete: PG_VERSION is missing; {IN_ORDER}"),
        ("binary version", "is incomplete: PG_VERSION is damaged"),
        (
            "other version",
            f"has data of PostgreSQL '12', and the embedded server is version {MAJOR_VERSION}",
        ),
        ("no control file", "is incomplete: global/pg_control is missing"),
        ("open to others", "did not start: FATAL:  data directory .* has invalid permissions"),
        ("lock is a folder", "cannot be used: .*Is a directory: .*run/lock"),
        ("users is a link", "cannot be used: .*symbolic links: .*run/users"),
        ("run is a file", "cannot be used: .*File exists: .*/run"),
        ("pid file is a folder", "cannot be used: .*Is a directory: .*postmaster.pid"),
        ("settings", "did not start: FATAL:  configuration file .* contains errors"),
    ],
)
def test_damage_is_reported_in_one_line(data_dir: Path, what: str, expected: str) -> None:
    _damage(data_dir, what)
    for _ in range(2):  # the second command is no worse off
        with pytest.raises(DatabaseError, match=expected) as caught:
            start_embedded(data_dir, start_timeout_s=20)
        assert str(data_dir) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_folder_with_other_content_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("somebody's")
    cases = {
        file: "cannot be used: .*Not a directory",
        file / "below": "cannot be used: .*File exists",
        other: "is not empty and has no server data; choose another data directory",
    }
    for data_dir, expected in cases.items():
        with pytest.raises(DatabaseError, match=expected) as caught:
            start_embedded(data_dir)
        assert str(data_dir) in str(caught.value)
        assert "TILEFERRY_DATABASE_URL" in str(caught.value)
    assert [path.name for path in other.iterdir()] == ["letter.txt"]


def test_failed_start_is_no_obstacle_to_a_later_one(embedded: EmbeddedServer) -> None:
    settings = embedded.data_dir / "pgdata" / "postgresql.auto.conf"
    good = settings.read_text()
    _damage(embedded.data_dir, "settings")
    with pytest.raises(DatabaseError):
        embedded.join()
    settings.write_text(good)
    embedded.join()


@contextmanager
def _scripted_server(servers_root: Path, initdb: str) -> Iterator[ServerProcess]:
    """A server whose programs are this script."""
    programs = servers_root / f"programs-{os.getpid()}"
    programs.mkdir(mode=0o755)
    for name in ("initdb", "postgres"):
        (programs / name).write_text(f"#!/bin/sh\n{initdb}\n")
        (programs / name).chmod(0o755)
    servers_root.chmod(0o755)
    data_dir = servers_root / f"scripted-{os.getpid()}"
    data_dir.mkdir()
    try:
        yield ServerProcess(
            data_dir=data_dir, pgdata=data_dir / "pgdata", log=data_dir / "log", binaries=programs
        )
    finally:
        shutil.rmtree(programs)
        shutil.rmtree(data_dir)


def test_failed_creation_is_reported_and_leaves_nothing(servers_root: Path) -> None:
    with _scripted_server(servers_root, "echo 'initdb: error: no luck' >&2; exit 1") as process:
        with pytest.raises(DatabaseError, match=r"cannot create the embedded server .*no luck"):
            process.create(0, 20)
        assert list(process.data_dir.iterdir()) == []


def test_invariant_41_name_of_created_data_is_durable(
    servers_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[list[str]] = []

    def note_sync(folder: Path) -> None:
        synced.append([path.name for path in folder.iterdir()])

    monkeypatch.setattr(server_process, "sync_folder", note_sync)
    with _scripted_server(servers_root, "touch PG_VERSION") as process:
        process.create(0, 20)
    assert synced == [["pgdata"]]


def _move_to_old_layout(data_dir: Path) -> None:
    """Make it look as earlier versions made it: the data is the directory itself."""
    aside = data_dir.with_name(f"{data_dir.name}-aside")
    (data_dir / "pgdata").rename(aside)
    shutil.rmtree(data_dir)
    aside.rename(data_dir)


def test_data_of_an_earlier_version_is_used_where_it_is(data_dir: Path) -> None:
    _move_to_old_layout(data_dir)
    owner = data_dir.stat().st_uid
    user = ServerUser(data_dir)
    assert user.answer()[1] == 1
    user.leave()
    assert not (data_dir / "pgdata").exists()
    assert {path.stat().st_uid for path in data_dir.rglob("*")} == {owner}
    (data_dir / "PG_VERSION").unlink()
    with pytest.raises(DatabaseError, match="is incomplete: PG_VERSION is missing"):
        start_embedded(data_dir)


def test_server_started_by_others_is_joined_and_stopped(data_dir: Path) -> None:
    """By an administrator, or by an earlier version that is still running."""
    _move_to_old_layout(data_dir)
    start_by_hand(data_dir)
    server = EmbeddedServer(data_dir)
    by_hand = server.find_status()
    assert by_hand.state is ServerState.RUNNING
    assert visit_server(data_dir)[1] == 1
    assert server.find_status().pid == by_hand.pid
    assert server.leave()
    assert server.find_status().state is ServerState.STOPPED


def test_server_started_by_others_is_not_started_twice(data_dir: Path) -> None:
    """Not even while it does not answer."""
    start_by_hand(data_dir / "pgdata")
    server = EmbeddedServer(data_dir, start_timeout_s=1.5)
    pid = server.find_status().pid
    assert pid
    socket_file, aside = (data_dir / "pgdata" / name for name in (".s.PGSQL.5432", "aside"))
    socket_file.rename(aside)
    with pytest.raises(DatabaseError, match="is not ready after 2 s, and is still starting"):
        server.join()
    aside.rename(socket_file)
    server.join()
    assert server.find_status().pid == pid
    assert server.leave()


def start_by_hand(pgdata: Path) -> None:
    """Start a server as `pg_ctl` does, without our locks."""
    as_owner = {"user": pgdata.stat().st_uid} if os.geteuid() == 0 else {}
    account = Account.of_owner(pgdata) if as_owner else None
    process = ServerProcess(data_dir=pgdata.parent, pgdata=pgdata, log=pgdata.parent / "log")
    program = process._find_program("pg_ctl", account)
    command = [
        program,
        "-w",
        "-D",
        "/proc/self/cwd",
        "-l",
        "/dev/null",
        "-o",
        "-h '' -k .",
        "start",
    ]
    subprocess.run(command, check=True, capture_output=True, cwd=pgdata, **as_owner)  # type: ignore[call-overload]  # noqa: S603  # as written here


def test_slow_recovery_is_waited_for_and_reported(
    embedded: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    visit_server(embedded.data_dir)
    PostgresServerProcess(embedded.data_dir, "").stop("immediate")
    go = threading.Timer(2.5, delay_start(embedded.data_dir / "pgdata").touch)
    go.start()
    with caplog.at_level(logging.WARNING, "tileferry.postgres"):
        assert visit_server(embedded.data_dir)[1] == 2
    go.join()
    assert [record.__dict__["kind"] for record in caplog.records] == ["db.server_starting"]
    assert "is not ready after 2 s; waiting: LOG:  " in caplog.text


def test_start_beyond_the_limit_goes_on_without_the_command(data_dir: Path) -> None:
    visit = ServerUser(data_dir)
    visit.answer()
    PostgresServerProcess(data_dir, "").stop("immediate")
    visit.leave()
    go = delay_start(data_dir / "pgdata")
    server = EmbeddedServer(data_dir, start_timeout_s=1.0)
    with pytest.raises(DatabaseError) as caught:
        server.join()
    assert "is not ready after 1 s, and is still starting: LOG: " in str(caught.value)
    assert "raise database_start_timeout_s" in str(caught.value)
    status = server.find_status()
    assert (status.state, status.users) == (ServerState.STARTING, 0)
    assert not server.leave(), "a failed start has no user, and is not stopped"
    go.touch()
    assert visit_server(data_dir)[1] == 2
    assert EmbeddedServer(data_dir).find_status().pid == status.pid
    assert server.leave()


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (0o700, (True, False, False)),
        (0o710, (True, True, False)),
        (0o701, (True, False, True)),
    ],
)
def test_account_can_enter_what_its_permissions_allow(
    servers_root: Path, mode: int, expected: tuple[bool, bool, bool]
) -> None:
    servers_root.chmod(0o755)
    folder = servers_root / f"mode-{mode:o}"
    (folder / "below").mkdir(parents=True)
    (folder / "below").chmod(0o777)
    folder.chmod(mode)
    own = folder.stat()
    owner = Account(uid=own.st_uid, gid=own.st_gid, groups=())
    member = Account(uid=own.st_uid + 1, gid=own.st_gid + 1, groups=(own.st_gid,))
    stranger = Account(uid=own.st_uid + 1, gid=own.st_gid + 1, groups=())
    found = tuple(account.can_enter(folder / "below") for account in (owner, member, stranger))
    assert found == expected
    folder.chmod(0o700)
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
def test_root_is_told_what_its_server_cannot_use(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "venv"
    (private / "bin").mkdir(mode=0o700, parents=True)
    file = tmp_path / "file"
    file.touch()
    unreachable = property(lambda server: _with_binaries(server, private / "bin", file))
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedServer, "_process", unreachable)
        with pytest.raises(
            DatabaseError, match=r"cannot reach its programs in .*venv; they cannot"
        ):
            start_embedded(data_dir)
    os.chown(data_dir / "pgdata", 0, 0)
    with pytest.raises(DatabaseError, match="pgdata belongs to root, and Postgres does not run as"):
        start_embedded(data_dir)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
def test_root_can_use_programs_below_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, new = tmp_path / "venv", tmp_path / "data"
    shared = Path(tempfile.mkdtemp())
    shared.chmod(0o755)
    installed = find_binaries().parent
    packages = installed.parent.parent
    for source in (installed, packages / f"{PACKAGE}.libs"):
        shutil.copytree(source, private / source.relative_to(packages), symlinks=True)
    private.chmod(0o700)
    binaries = private / installed.relative_to(packages) / "bin"
    unreachable = property(lambda server: _with_binaries(server, binaries, shared))
    monkeypatch.setattr(EmbeddedServer, "_process", unreachable)
    try:
        for _ in range(2):  # copied once, then used
            assert start_embedded(new).startswith("postgresql://")
            assert EmbeddedServer(new).leave()
        assert [path.name for path in shared.iterdir()] == ["postgres-0.6.0"]
    finally:
        shutil.rmtree(shared)
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_invariant_41_shared_programs_are_durable_before_they_get_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, rename = tmp_path / "package" / "pginstall18", Path.rename
    done: list[str] = []

    def note_rename(path: Path, target: Path) -> Path:
        done.append("rename")
        return rename(path, target)

    (installed / "bin").mkdir(parents=True)
    monkeypatch.setattr(os, "sync", lambda: done.append("sync"))
    monkeypatch.setattr(Path, "rename", note_rename)
    monkeypatch.setattr(server_process, "sync_folder", lambda path: done.append(path.name))
    share_programs(installed, tmp_path / "shared")
    assert done == ["sync", "rename", "shared"]


def _with_binaries(server: EmbeddedServer, binaries: Path, shared: Path) -> ServerProcess:
    return ServerProcess(
        data_dir=server.data_dir,
        pgdata=server._pgdata,
        log=server._log,
        binaries=binaries,
        shared_programs=shared,
    )
