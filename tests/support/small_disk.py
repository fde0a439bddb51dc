"""A disk that gets full: a real one where this machine mounts one, or else one that is counted."""

import errno
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any, Protocol

from attrs import define, evolve, field

from tileferry.adapters.filesystem.files import FileCalls

SMALL_BYTES = 512 * 1024
LARGE_BYTES = 16 * 1024 * 1024


class SmallDisk(Protocol):
    """A folder that takes 512 kB."""

    @property
    def path(self) -> Path: ...

    @property
    def calls(self) -> FileCalls:
        """The calls for which the disk is that small."""
        ...

    def enlarge(self) -> None:
        """Make it 16 MB."""
        ...


@define(eq=False)
class MountedDisk:
    """A filesystem of its own, which the kernel keeps to its size."""

    path: Path
    calls: FileCalls = field(factory=FileCalls)

    def enlarge(self) -> None:
        _mount("-o", f"remount,size={LARGE_BYTES}", str(self.path), check=True)


@define(eq=False)
class CountedDisk:
    """A folder whose files are added up before each write: what does not fit is not written."""

    path: Path
    size_bytes: int = SMALL_BYTES
    calls: FileCalls = field(init=False)

    @calls.default
    def _counted(self) -> FileCalls:
        real = FileCalls()

        def write(fd: int, content: Any) -> int:
            return real.write(fd, self._what_fits([content]))

        def writev(fd: int, parts: Sequence[Any]) -> int:
            return real.write(fd, self._what_fits(parts))

        return evolve(real, write=write, writev=writev)

    def enlarge(self) -> None:
        self.size_bytes = LARGE_BYTES

    def _what_fits(self, parts: Sequence[Any]) -> bytes:
        """Return the beginning that there is room for, as a disk takes it."""
        used = sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())
        whole = b"".join(parts)
        room = max(self.size_bytes - used, 0)
        if whole and not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole[:room]


@contextmanager
def mounted_disk(path: Path) -> Iterator[SmallDisk | None]:
    """Mount a small disk for a while; ``None`` where that is not allowed."""
    if os.geteuid() != 0 or which("mount") is None:
        yield None
        return
    options = ("-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tileferry-test", str(path))
    if not _mount(*options, check=False):
        yield None
        return
    try:
        yield MountedDisk(path)
    finally:
        # Lazily: a test that failed may still hold files open.
        subprocess.run(["umount", "--lazy", str(path)], check=True)  # noqa: S603, S607  # our own


def _mount(*arguments: str, check: bool) -> bool:
    done = subprocess.run(["mount", *arguments], check=check, capture_output=True)  # noqa: S603, S607  # our own
    return done.returncode == 0
