"""Where the servers of a run have their files: in memory, where there is enough of it."""

import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # what is made there gets a name of its own
BYTES_MIN = 3 * 1024**3
_PREFIX = "tileferry-tests-"
_LEFT_S = 86_400


def server_files(run_root: Path) -> Path:
    """Return the folder for servers, the same one for all processes of a run.

    Each test has a database of its own. To make one on a busy disk takes far longer than the test,
    and only a machine that loses its power could tell the difference.
    """
    note = run_root / "servers"
    with FileLock(run_root / "servers.lock"):
        if not note.exists():
            note.write_text(str(_new_folder(run_root)), encoding="utf-8")
        return Path(note.read_text(encoding="utf-8"))


def _new_folder(run_root: Path) -> Path:
    if not SHARED_MEMORY.is_dir() or shutil.disk_usage(SHARED_MEMORY).free < BYTES_MIN:
        return run_root
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=SHARED_MEMORY))
    folder.chmod(0o755)  # the server runs as another user, where the tests run as root
    return folder


def _sweep() -> None:
    """Remove what earlier runs left: a folder, or a server's files when the run was killed."""
    for folder in SHARED_MEMORY.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _LEFT_S:
                shutil.rmtree(folder)
            folder.rmdir()
