"""A Postgres server of a test's own, to be stopped and restarted at will."""

import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import frozen
from filelock import FileLock

from tileferry.adapters.postgres import EmbeddedServer

SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "kill": signal.SIGKILL}
STOP_S_MAX = 60


@frozen
class PostgresServerProcess:
    """The server, and the address of its database."""

    data_dir: Path
    url: str

    def stop(self, mode: str = "fast") -> None:
        """Stop it; ``immediate`` is as good as pulling the plug, ``kill`` ends one process only."""
        pid = EmbeddedServer(self.data_dir).find_status().pid
        assert pid
        handle = os.pidfd_open(pid)
        signal.pidfd_send_signal(handle, SIGNALS[mode])
        assert select.select([handle], [], [], STOP_S_MAX)[0]
        os.close(handle)

    def start(self) -> None:
        EmbeddedServer(self.data_dir).join()

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()


@contextmanager
def run_postgres_server(data_dir: Path) -> Iterator[PostgresServerProcess]:
    """Run the server of a directory; with its last user it is gone, and its data too."""
    server = EmbeddedServer(data_dir)
    yield PostgresServerProcess(data_dir, server.join())
    if server.leave():
        shutil.rmtree(data_dir)


def copy_server_data(source: Path, target: Path) -> Path:
    """Copy the directory of a stopped server; its files keep their owner, whom it runs as."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # Most of its log is zeros.
    command: list[str | Path] = ["/bin/cp", "-a", "--sparse=always", source, target]
    subprocess.run(command, check=True)  # noqa: S603  # as written here
    return target


def delay_start(pgdata: Path) -> Path:
    """Let the next start of a server wait in its recovery; return the file that ends the wait."""
    (pgdata / "recovery.signal").touch()
    with (pgdata / "postgresql.auto.conf").open("a", encoding="utf-8") as settings:
        # It looks for its log in an archive; meanwhile it accepts no connections.
        wait = "while [ ! -e go ]; do sleep 0.1; done; false"
        settings.write(f"restore_command = '{wait}'\nhot_standby = off\n")
    return pgdata / "go"


SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # what is made there gets a name of its own
BYTES_MIN = 3 * 1024**3
_PREFIX = "tileferry-tests-"
_LEFT_S = 86_400


def get_server_folder(run_root: Path) -> Path:
    """Return the folder for servers, the same one for all processes of a run.

    Each test has a database of its own. To make one on a busy disk takes far longer than the test,
    and only a machine that loses its power could tell the difference.
    """
    note = run_root / "servers"
    with FileLock(run_root / "servers.lock"):
        if not note.exists():
            note.write_text(str(_create_folder(run_root)), encoding="utf-8")
        return Path(note.read_text(encoding="utf-8"))


def _create_folder(run_root: Path) -> Path:
    if not SHARED_MEMORY.is_dir() or shutil.disk_usage(SHARED_MEMORY).free < BYTES_MIN:
        return run_root
    _remove_leftovers()
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=SHARED_MEMORY))


def _remove_leftovers() -> None:
    """Remove what earlier runs left: a folder, or a server's files when the run was killed."""
    for folder in SHARED_MEMORY.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _LEFT_S:
                shutil.rmtree(folder)
            folder.rmdir()
