"""The cache's lock between real processes, and what people do to its file."""

import errno
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tileferry.adapters.filesystem.cache_directory import FileCacheLock
from tileferry.adapters.filesystem.files import FileCalls
from tileferry.domain.errors import CacheLockError, StorageError

HOLDER = """
import os, sys
from pathlib import Path
from tileferry.adapters.filesystem.cache_directory import FileCacheLock

lock = FileCacheLock(root=Path(sys.argv[1]))
lock.acquire()
os.write(1, b"held\\n")
sys.stdin.read()
"""

FORKING_HOLDER = """
import os, sys
from pathlib import Path
from tileferry.adapters.filesystem.cache_directory import FileCacheLock
from tileferry.domain.errors import CacheLockError

lock = FileCacheLock(root=Path(sys.argv[1]))
lock.acquire()
child = os.fork()
if child == 0:
    try:
        lock.check_held()
    except CacheLockError:
        lock.release()
        os._exit(7)
    os._exit(1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
lock.check_held()
os.write(1, b"%d\\n" % status)
sys.stdin.read()
"""


@contextmanager
def run_process(root: Path, script: str, says: bytes) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(  # noqa: S603  # our own interpreter, our own script
        [sys.executable, "-c", script, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == says
        yield process
        process.kill()


def lock_path(root: Path) -> Path:
    return root / ".c11/lock"


def test_lock_held_by_a_live_process_is_refused_and_names_the_holder(tmp_path: Path) -> None:
    lock = FileCacheLock(root=tmp_path)
    with run_process(tmp_path, HOLDER, b"held\n") as holder:
        with pytest.raises(CacheLockError) as caught:
            lock.acquire()
        assert f"process {holder.pid} on {socket.gethostname()}, since 20" in str(caught.value)
        assert "wait until it ends" in str(caught.value)
        with pytest.raises(CacheLockError, match="does not hold"):
            lock.check_held()


def test_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
    with run_process(tmp_path, HOLDER, b"held\n") as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert json.loads(lock_path(tmp_path).read_bytes())["pid"] == holder.pid
        lock = FileCacheLock(root=tmp_path)
        lock.acquire()
        lock.check_held()
        assert json.loads(lock_path(tmp_path).read_bytes())["pid"] == os.getpid()
        lock.release()


def test_forked_child_neither_holds_nor_releases_the_lock(tmp_path: Path) -> None:
    lock = FileCacheLock(root=tmp_path)
    with (
        run_process(tmp_path, FORKING_HOLDER, b"7\n"),
        pytest.raises(CacheLockError, match="in use by process"),
    ):
        lock.acquire()


@pytest.mark.parametrize(
    "content", [b"", b"\xff\0junk", b"[" * 100_000, b'{"pid":"x"}', b'{"pid":1,"host":"a"}']
)
def test_stale_lock_file_content_does_not_block_acquire(tmp_path: Path, content: bytes) -> None:
    lock_path(tmp_path).parent.mkdir()
    lock_path(tmp_path).write_bytes(content)
    lock = FileCacheLock(root=tmp_path)
    lock.acquire()
    assert set(json.loads(lock_path(tmp_path).read_bytes())) == {"pid", "host", "since"}
    lock.release()
    assert lock_path(tmp_path).read_bytes() == b""


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"", "an unidentified process"),
        (b"junk", "an unidentified process"),
        (b'{"pid":7,"host":"\\u001b[2J\\n","since":"x"}', r"process 7 on \\x1b\[2J\\n, since x"),
    ],
)
def test_held_lock_error_escapes_the_lock_file_content(
    tmp_path: Path, content: bytes, shown: str
) -> None:
    with run_process(tmp_path, HOLDER, b"held\n"):
        lock_path(tmp_path).write_bytes(content)
        with pytest.raises(CacheLockError, match=shown):
            FileCacheLock(root=tmp_path).acquire()


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_lock_is_lost_when_its_file_is_removed_or_replaced(
    tmp_path: Path, *, replaced: bool
) -> None:
    lock, rival = FileCacheLock(root=tmp_path), FileCacheLock(root=tmp_path)
    lock.acquire()
    lock_path(tmp_path).unlink()
    if replaced:
        rival.acquire()
        rival.release()
    with pytest.raises(CacheLockError, match="does not hold"):
        lock.check_held()
    lock.release()


def test_lock_file_replaced_during_acquire_is_rejected(tmp_path: Path) -> None:
    def replaced(name: str, flags: int, *args: int, dir_fd: int | None = None) -> int:
        fd = os.open(name, flags, *args, dir_fd=dir_fd)
        if name == "lock":
            lock_path(tmp_path).unlink()
        return fd

    lock = FileCacheLock(root=tmp_path, calls=FileCalls(open=replaced))
    with pytest.raises(CacheLockError, match="the lock file was replaced"):
        lock.acquire()
    with pytest.raises(CacheLockError, match="does not hold"):
        lock.check_held()


def test_invariant_27_symlinked_lock_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    lock_path(tmp_path).parent.mkdir()
    lock_path(tmp_path).symlink_to(victim)
    with pytest.raises(StorageError, match="symbolic link"):
        FileCacheLock(root=tmp_path).acquire()
    assert victim.read_bytes() == b"precious"


def test_invariant_27_symlinked_directory_is_not_followed(tmp_path: Path) -> None:
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "root"
    elsewhere.mkdir()
    root.mkdir()
    (root / ".c11").symlink_to(elsewhere)
    with pytest.raises(StorageError, match="symbolic link"):
        FileCacheLock(root=root).acquire()
    assert list(elsewhere.iterdir()) == []


def test_invariant_27_lock_file_is_0600_in_a_0700_directory(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        lock = FileCacheLock(root=tmp_path)
        lock.acquire()
    finally:
        os.umask(mask)
    assert stat.S_IMODE(lock_path(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(lock_path(tmp_path).parent.stat().st_mode) == 0o700
    lock.release()


def test_lock_is_acquired_on_a_full_disk(tmp_path: Path) -> None:
    def full(_fd: int, _content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    lock = FileCacheLock(root=tmp_path, calls=FileCalls(write=full))
    lock.acquire()
    lock.check_held()
    with pytest.raises(CacheLockError):
        FileCacheLock(root=tmp_path).acquire()
    lock.release()


def test_checking_the_lock_creates_no_files(tmp_path: Path) -> None:
    with pytest.raises(CacheLockError, match="acquire the lock first"):
        FileCacheLock(root=tmp_path / "missing").check_held()
    assert list(tmp_path.iterdir()) == []
