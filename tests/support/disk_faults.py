"""The operating system's file calls, of which one fails when it is told to."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any, Protocol

import attrs
from attrs import define, evolve, field

from tileferry.adapters.filesystem.files import FileCalls

UNSYNCED = FileCalls(fsync=lambda _fd: None, fdatasync=lambda _fd: None)
"""For tests of many small files, none of which loses its power."""


class CallLog:
    """Passes calls on and notes them; call number ``fail_at`` (from 0) fails instead.

    With ``permanently`` all later ones fail too: what a killed process leaves. A write that fails
    has written half of its bytes, as on a disk that just got full.
    """

    def __init__(
        self, *, fail_at: int | None = None, code: int = errno.EIO, permanently: bool = False
    ) -> None:
        self.made: list[tuple[str, Any]] = []
        self.paths: list[str] = []
        """Of each call: numbers of descriptors are used again, names of files are not."""
        self._fail_at = fail_at
        self._permanently = permanently
        self._code = code
        real = FileCalls(fsync=lambda _fd: None, fdatasync=lambda _fd: None)
        self.calls = FileCalls(
            **{
                item.name: self._record(item.name, getattr(real, item.name))
                for item in attrs.fields(FileCalls)
            }
        )

    def _record(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            self.made.append((name, args[0]))
            self.paths.append(_resolve_path(args[0]))
            if self._has_failed(len(self.made) - 1):
                if name in {"write", "writev"}:
                    whole = args[1] if name == "write" else b"".join(args[1])
                    os.write(args[0], whole[: len(whole) // 2])
                raise OSError(self._code, os.strerror(self._code))
            return call(*args, **kwargs)

        return noted

    def _has_failed(self, number: int) -> bool:
        if self._fail_at is None or not self._permanently:
            return number == self._fail_at
        return number >= self._fail_at

    def list_done(self) -> list[tuple[str, str]]:
        """Return the calls that did not fail, each with its path."""
        calls = zip(self.made, self.paths, strict=True)
        return [
            (name, path)
            for number, ((name, _), path) in enumerate(calls)
            if not self._has_failed(number)
        ]


def _resolve_path(argument: Any) -> str:
    where = Path(f"/proc/self/fd/{argument}")
    return str(where.readlink() if type(argument) is int else argument)


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
        _run_mount("-o", f"remount,size={LARGE_BYTES}", str(self.path), check=True)


@define(eq=False)
class CountedDisk:
    """A folder whose files are added up before each write: what does not fit is not written."""

    path: Path
    size_bytes: int = SMALL_BYTES
    calls: FileCalls = field(init=False)

    @calls.default
    def _create_calls(self) -> FileCalls:
        real = FileCalls()

        def write(fd: int, content: Any) -> int:
            return real.write(fd, self._truncate_to_free_space([content]))

        def writev(fd: int, parts: Sequence[Any]) -> int:
            return real.write(fd, self._truncate_to_free_space(parts))

        return evolve(real, write=write, writev=writev)

    def enlarge(self) -> None:
        self.size_bytes = LARGE_BYTES

    def _truncate_to_free_space(self, parts: Sequence[Any]) -> bytes:
        """Return the beginning that there is room for, as a disk takes it."""
        used = sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())
        whole = b"".join(parts)
        room = max(self.size_bytes - used, 0)
        if whole and not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole[:room]


@contextmanager
def mount_small_disk(path: Path) -> Iterator[SmallDisk | None]:
    """Mount a small disk for a while; ``None`` where that is not allowed."""
    if os.geteuid() != 0 or which("mount") is None:
        yield None
        return
    options = ("-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tileferry-test", str(path))
    if not _run_mount(*options, check=False):
        yield None
        return
    try:
        yield MountedDisk(path)
    finally:
        # Lazily: a test that failed may still hold files open.
        subprocess.run(["umount", "--lazy", str(path)], check=True)  # noqa: S603, S607  # our own


def _run_mount(*arguments: str, check: bool) -> bool:
    done = subprocess.run(["mount", *arguments], check=check, capture_output=True)  # noqa: S603, S607  # our own
    return done.returncode == 0
