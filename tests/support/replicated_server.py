"""A Postgres server with a streaming replica that takes over when the server is lost."""

import os
import pwd
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from attrs import define, field

from tileferry.adapters.postgres.server_process import find_binaries

WAIT_S_MAX = 30.0
_SYSTEM_BINARIES = Path("/usr/lib/postgresql")


def _get_account() -> dict[str, Any]:
    """Return who runs the servers: Postgres refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _find_programs() -> Path:
    """Return programs that the account can run: ours may be in a folder of root."""
    system = sorted(_SYSTEM_BINARIES.glob("*/bin"), reverse=True)
    for folder in (find_binaries(), *system):
        with suppress(OSError, subprocess.CalledProcessError):
            _run([folder / "postgres", "--version"])
            return folder
    message = "no Postgres that this account can run"
    raise AssertionError(message)


def _run(command: Sequence[str | Path]) -> None:
    subprocess.run(  # noqa: S603  # as written by the callers
        command, check=True, cwd="/", stdout=subprocess.DEVNULL, timeout=60, **_get_account()
    )


def _pick_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@define(kw_only=True, eq=False)
class ReplicatedServer:
    """Two servers: the primary, and the replica that is promoted when the primary is lost."""

    folder: Path
    programs: Path = field(factory=_find_programs)
    ports: tuple[int, int] = field(factory=lambda: (_pick_port(), _pick_port()))
    _paused: int | None = field(default=None, init=False)
    _processes: "list[subprocess.Popen[bytes]]" = field(factory=list, init=False)

    @property
    def url(self) -> str:
        """The address of both servers: a connection goes to the one that accepts changes."""
        ports = ",".join(map(str, self.ports))
        return (
            f"postgresql://postgres@/postgres?host=127.0.0.1,127.0.0.1&port={ports}"
            "&target_session_attrs=read-write"
        )

    def get_url(self, number: int) -> str:
        """Return the address of one server: 0 is the first primary."""
        return f"postgresql://postgres@127.0.0.1:{self.ports[number]}/postgres"

    def start(self) -> None:
        """Create and start both servers; the replica follows."""
        primary, replica = self.folder / "primary", self.folder / "replica"
        _run([self.programs / "initdb", "-D", primary, "-U", "postgres", "-A", "trust", "-N"])
        self._start_server(primary, 0)
        source = f"host=127.0.0.1 port={self.ports[0]} user=postgres"
        _run([self.programs / "pg_basebackup", "-D", replica, "-R", "-d", source, "-c", "fast"])
        self._start_server(replica, 1)
        self.wait_for(0, "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'")

    def require_replica(self) -> None:
        """Let each commit of the primary wait for the replica's disk."""
        with psycopg.connect(self.get_url(0), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
        self.wait_for(0, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'")

    def pause_replication(self) -> None:
        """Stop the process of the primary that sends its log; its commits do not wait for it."""
        query = "SELECT pid FROM pg_stat_replication"
        with psycopg.connect(self.get_url(0), autocommit=True) as connection:
            ((self._paused,),) = connection.execute(query).fetchall()
        os.kill(self._paused, signal.SIGSTOP)

    def lose_primary(self) -> None:
        """End the primary as if its machine was switched off."""
        self._processes[0].send_signal(signal.SIGQUIT)
        if self._paused is not None:
            os.kill(self._paused, signal.SIGKILL)  # it cannot end otherwise
        self._processes[0].wait(WAIT_S_MAX)

    def promote(self) -> None:
        """Make the replica the new primary."""
        with psycopg.connect(self.get_url(1), autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def wait_for(self, number: int, query: str) -> None:
        """Wait until a query on one server returns true."""
        deadline_s = time.monotonic() + WAIT_S_MAX
        while True:
            with (
                suppress(psycopg.OperationalError),
                psycopg.connect(self.get_url(number), autocommit=True) as connection,
            ):
                if connection.execute(query.encode()).fetchone() == (True,):
                    return
            assert time.monotonic() < deadline_s, query
            time.sleep(0.05)

    def stop(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGQUIT)
                process.wait(WAIT_S_MAX)

    def _start_server(self, data: Path, number: int) -> None:
        settings = {
            "port": self.ports[number],
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "shared_buffers": "16MB",
            "max_connections": 60,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        log = (self.folder / f"{data.name}.log").open("wb")
        process = subprocess.Popen(  # noqa: S603  # as written here
            [self.programs / "postgres", "-D", data, *options],
            stderr=log,
            cwd="/",
            **_get_account(),
        )
        log.close()
        self._processes.append(process)
        self.wait_for(number, "SELECT true")


@contextmanager
def run_replicated_server() -> Iterator[ReplicatedServer]:
    """Run a primary with a replica; both are gone after the block."""
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:  # noqa: S108  # it has a name of its own
        account = _get_account()
        if account:
            os.chown(folder, account["user"], account["group"])
        server = ReplicatedServer(folder=Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.stop()
