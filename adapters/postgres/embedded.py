"""The embedded Postgres server: one for all processes that use a folder.

The folder holds the server's data (``pgdata``), its log, and the locks (``run``):

- ``lock``: held by the process that starts or stops the server
- ``users``: shared by the processes that use the server, for as long as they live
- ``server``: held by the server's own processes, which inherit it
- ``keep``: not a lock; while it exists, the server is not stopped with its last user

The order is ``lock``, then ``users``, then ``server``.
"""

import atexit
import logging
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import psycopg
from attrs import field, frozen
from psycopg import pq

from tileferry.adapters.postgres.server_locks import (
    PRIVATE_FOLDER,
    BoundedWait,
    list_holders,
    make_private_folder,
    open_private,
    opened_lock,
    try_lock,
    wait_for_lock,
)
from tileferry.adapters.postgres.server_process import (
    DRAFT,
    ELSEWHERE,
    MAJOR_VERSION,
    ServerProcess,
    find_binaries,
    read_postmaster_pid,
)
from tileferry.adapters.postgres.server_socket import ServerSocket
from tileferry.domain.errors import DatabaseError, DatabaseRefusedError, Remedy

START_TIMEOUT_S = 300.0
"""Crash recovery reads at most about 1 GB of log, unless the disk is very slow."""
_STOP_TIMEOUT_S = 60.0
_LEAVE_TIMEOUT_S = 5.0
_OURS = {"run", "log", "log.old", "lost+found"}
_LOGGER = logging.getLogger("tileferry.postgres")

# One start at a time in this process, and the open files that make it a user of servers.
_STARTING = threading.RLock()
_USERS: dict[Path, int] = {}


class ServerState(StrEnum):
    """What the embedded server does."""

    ABSENT = "absent"
    """It was not created yet."""
    STOPPED = "stopped"
    STARTING = "starting"
    """It starts, recovers after a crash, or shuts down: it accepts no connections."""
    RUNNING = "running"


@frozen(kw_only=True)
class ServerStatus:
    """The state of the embedded server."""

    data_dir: Path
    state: ServerState
    pid: int | None
    kept: bool
    """Whether it keeps running without a user."""
    users: int
    """How many processes use it, as far as the system tells."""

    @property
    def is_created(self) -> bool:
        """Whether its data exists."""
        return self.state is not ServerState.ABSENT

    def describe(self) -> str:
        """Return the state in words."""
        if not self.is_created:
            return "not created yet"
        process = "" if self.pid is None else f", process {self.pid}"
        return f"{self.state}{process}{', kept until it is stopped' if self.kept else ''}"


def start_embedded(data_dir: Path, *, start_timeout_s: float = START_TIMEOUT_S) -> str:
    """Start the server for ``data_dir``, or join the one already running; return its database URL.

    The server stops with the last process that uses it, unless it is kept.
    """
    return EmbeddedServer(data_dir, start_timeout_s=start_timeout_s).join()


def _resolve(path: Path) -> Path:
    return path.expanduser().resolve()


@frozen
class EmbeddedServer:
    """The server of one folder, as this process sees it."""

    data_dir: Path = field(converter=_resolve)
    start_timeout_s: float = field(default=START_TIMEOUT_S, kw_only=True)

    # for a process that uses the server

    def join(self) -> str:
        """Use the server until this process ends; start or create it if needed. Return its URL."""
        with _STARTING, self._translate_errors():
            self._check_folder()
            if not (self._use() and self._socket.serves_database()):
                try:
                    with self._lock_for_change(self._wait_for_start()):
                        self._start()
                except BaseException:
                    # Not a user, so that the end of this process does not stop a slow start.
                    self._forget()
                    raise
            return self._socket.url

    def leave(self) -> bool:
        """Stop using the server, and stop it if this was its last user; return whether it ended.

        Called at the end of the process.
        """
        with _STARTING:
            if not self._forget():
                return False
            wait = BoundedWait(timeout_s=_LEAVE_TIMEOUT_S)
            try:
                with self._lock_for_change(wait), opened_lock(self._users) as users:
                    return not self._keep.exists() and try_lock(users) and self._stop()
            except (DatabaseError, OSError, KeyboardInterrupt):
                return False  # left running, or stopping by itself; the next command continues

    # for an operator

    def keep(self) -> ServerStatus:
        """Start the server, and keep it running when its last user ends."""
        self.join()
        with self._translate_errors():
            os.close(open_private(self._keep))
        return self.find_status()

    def stop(self) -> bool:
        """Stop the server, kept or not; return whether it ran. Raise if a process uses it."""
        with self._translate_errors():
            if not self._run.is_dir():
                return False
            wait = BoundedWait(timeout_s=_LEAVE_TIMEOUT_S)
            with self._lock_for_change(wait), opened_lock(self._users) as users:
                if not try_lock(users):
                    raise self._in_use_error()
                self._keep.unlink(missing_ok=True)
                ran = self._socket.find_listener() is not None
                if ran and not self._stop():
                    raise DatabaseError(
                        problem=f"the embedded server in {self.data_dir} did not stop",
                        remedy=f"see {self._log}",
                    )
                return ran

    def find_status(self) -> ServerStatus:
        """Return the state of the server; nothing is started or created."""
        with self._translate_errors():
            pid, state = None, ServerState.ABSENT
            if self._pgdata.exists():
                pid, state = self._socket.find_listener(), ServerState.STOPPED
                if self._socket.ping() == pq.Ping.OK:
                    state = ServerState.RUNNING
                elif pid is not None:
                    state = ServerState.STARTING
            return ServerStatus(
                data_dir=self.data_dir,
                state=state,
                pid=pid,
                kept=self._keep.exists(),
                users=len(list_holders(self._users)),
            )

    # files

    @property
    def _pgdata(self) -> Path:
        """The folder of the data; earlier versions used the data directory itself."""
        old = (self.data_dir / "PG_VERSION").exists() or (self.data_dir / "global").exists()
        return self.data_dir if old else self.data_dir / "pgdata"

    @property
    def _run(self) -> Path:
        return self.data_dir / "run"

    @property
    def _users(self) -> Path:
        return self._run / "users"

    @property
    def _keep(self) -> Path:
        return self._run / "keep"

    @property
    def _log(self) -> Path:
        return self.data_dir / "log"

    @property
    def _socket(self) -> ServerSocket:
        return ServerSocket(self._pgdata)

    @property
    def _process(self) -> ServerProcess:
        return ServerProcess(data_dir=self.data_dir, pgdata=self._pgdata, log=self._log)

    def _check_folder(self) -> None:
        """Create the folder; raise if it holds something else than our server."""
        if self._run.is_dir() and self._pgdata.exists():
            if self._run.stat().st_mode & 0o077:  # copied without its mode
                self._run.chmod(PRIVATE_FOLDER)
            return
        if self.data_dir.exists() and not self._pgdata.exists():
            others = {each.name for each in self.data_dir.iterdir()} - _OURS
            if any(not name.startswith(DRAFT) for name in others):
                raise DatabaseError(
                    problem=f"{self.data_dir} is not empty and has no server data",
                    remedy="choose another data directory, or set TILEFERRY_DATABASE_URL",
                )
        find_binaries()  # without them, nothing is created
        make_private_folder(self._run)

    def _check_data(self) -> None:
        """Raise if a server of this version cannot use the data."""
        damaged = None
        try:
            version = (self._pgdata / "PG_VERSION").read_text(encoding="ascii").strip()
        except FileNotFoundError:
            damaged = "PG_VERSION is missing"
        except UnicodeDecodeError:
            damaged = "PG_VERSION is damaged"
        else:
            if version != str(MAJOR_VERSION):
                raise DatabaseError(
                    problem=f"{self._pgdata} has data of PostgreSQL {version[:20]!r}, and the "
                    f"embedded server is version {MAJOR_VERSION}",
                    remedy="choose another data directory, or set TILEFERRY_DATABASE_URL",
                )
            if not (self._pgdata / "global" / "pg_control").exists():
                damaged = "global/pg_control is missing"
        if damaged is not None:
            raise self._damage_error(damaged)

    # starting and stopping

    @contextmanager
    def _lock_for_change(self, wait: BoundedWait) -> Iterator[None]:
        """Let no other process start or stop the server during a block."""
        with opened_lock(self._run / "lock") as lock:
            if not wait_for_lock(lock, wait):
                holders = _format_pids(list_holders(self._run / "lock"))
                raise DatabaseRefusedError(
                    problem=f"{holders} has been starting or stopping the embedded server in "
                    f"{self.data_dir} for more than {wait.timeout_s:.0f} s",
                    remedy="wait until it is done, then run again",
                )
            yield

    def _use(self) -> bool:
        """Become a user of the server, unless somebody stops it; return whether we are one."""
        used = _USERS.get(self.data_dir)
        if used is not None:
            if self._users.exists() and os.path.samestat(os.fstat(used), self._users.stat()):
                return True
            self._forget()  # the folder was deleted
        users = open_private(self._users)
        if not try_lock(users, shared=True):
            os.close(users)
            return False
        _USERS[self.data_dir] = users
        atexit.register(self.leave)
        return True

    def _forget(self) -> bool:
        """No longer be a user of the server; return whether we were one."""
        used = _USERS.pop(self.data_dir, None)
        if used is not None:
            os.close(used)
        return used is not None

    def _start(self) -> None:
        """Start the server unless it runs, and wait until it accepts connections."""
        if not self._use():
            raise self._in_use_error()
        wait, launched_at = self._wait_for_start(), None
        while (ping := self._socket.ping()) != pq.Ping.OK:
            if ping == pq.Ping.NO_RESPONSE and launched_at != (begin := self._launch(launched_at)):
                wait, launched_at = self._wait_for_start(), begin  # not counting its creation
            if not wait.pause():
                raise DatabaseError(
                    problem=f"the embedded server in {self.data_dir} is not ready after "
                    f"{wait.timeout_s:.0f} s, and is still starting: "
                    f"{self._process.read_last_message() or 'it does not answer'}",
                    remedy="run again later, or raise database_start_timeout_s",
                )
        if not self._socket.ensure_database():
            raise self._damage_error("its creation was not completed")

    def _launch(self, launched_at: int | None) -> int | None:
        """Launch the server if none of its processes is alive; return where its log begins.

        A process that is alive is on its way up or down, or creates the data for a command that was
        killed. ``launched_at`` is the result of an earlier call.
        """
        with opened_lock(self._run / "server") as lock:
            if not try_lock(lock):
                return launched_at
            if launched_at is not None:
                said = self._process.read_last_message(launched_at, errors=True)
                raise self._unusable_error(f"did not start: {said or 'see its log'}")
            if not self._pgdata.exists():
                self._process.create(lock, self.start_timeout_s)
            self._check_data()
            if read_postmaster_pid(self._pgdata) is not None:
                return None  # started without our lock: by an administrator, or an earlier version
            return self._process.launch(lock)

    def _stop(self) -> bool:
        """Stop the server and wait for the end of all its processes; return whether they ended."""
        if not self._process.stop(_STOP_TIMEOUT_S):
            return False
        with opened_lock(self._run / "server") as server:
            return wait_for_lock(server, BoundedWait(timeout_s=_STOP_TIMEOUT_S))

    def _wait_for_start(self) -> BoundedWait:
        return BoundedWait(timeout_s=self.start_timeout_s, report=self._report_wait)

    def _report_wait(self, waited_s: float) -> None:
        _LOGGER.warning(
            "the embedded database server is not ready after %.0f s; waiting: %s",
            waited_s,
            self._process.read_last_message() or "it does not answer yet",
            extra={"kind": "db.server_starting", "waited_s": round(waited_s, 1)},
        )

    # errors

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise everything that goes wrong in a block as a ``DatabaseError``."""
        try:
            yield
        except (OSError, subprocess.SubprocessError, psycopg.Error) as error:
            raise self._unusable_error(f"cannot be used: {error}") from error

    def _unusable_error(self, problem: str) -> DatabaseError:
        return DatabaseError(
            problem=f"the embedded server in {self.data_dir} {problem}",
            remedy=f"see {self._log}, set data_dir to another folder, or {ELSEWHERE}",
        )

    def _damage_error(self, damage: str) -> DatabaseError:
        return DatabaseError(
            problem=f"the data of the embedded server in {self._pgdata} is incomplete: {damage}",
            remedy="restore the folder from a backup, or delete it to start with an empty database",
        )

    def _in_use_error(self) -> DatabaseRefusedError:
        users = _format_pids(list_holders(self._users))
        return DatabaseRefusedError(
            problem=f"the embedded server in {self.data_dir} is in use by {users}",
            remedy=Remedy.END_DATABASE_USERS,
        )


def _format_pids(pids: list[int]) -> str:
    return f"process {', '.join(map(str, pids))}" if pids else "another process"
