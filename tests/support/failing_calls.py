"""The operating system's file calls, of which one fails when it is told to."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from tileferry.adapters.filesystem.files import FileCalls

UNSYNCED = FileCalls(fsync=lambda _fd: None, fdatasync=lambda _fd: None)
"""For tests of many small files, none of which loses its power."""


class CallLog:
    """Passes calls on and notes them; call number ``fail_at`` (from 0) fails instead.

    A write that fails has written half of its bytes, as on a disk that just got full.
    """

    def __init__(self, *, fail_at: int | None = None, code: int = errno.EIO) -> None:
        self.made: list[tuple[str, Any]] = []
        self.paths: list[str] = []
        """Of each call: numbers of descriptors are used again, names of files are not."""
        self._fail_at = fail_at
        self._code = code
        real = FileCalls(fsync=lambda _fd: None, fdatasync=lambda _fd: None)
        self.calls = FileCalls(
            **{
                item.name: self._noting(item.name, getattr(real, item.name))
                for item in attrs.fields(FileCalls)
            }
        )

    def _noting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            self.made.append((name, args[0]))
            self.paths.append(_path(args[0]))
            if len(self.made) - 1 == self._fail_at:
                if name in {"write", "writev"}:
                    whole = args[1] if name == "write" else b"".join(args[1])
                    os.write(args[0], whole[: len(whole) // 2])
                raise OSError(self._code, os.strerror(self._code))
            return call(*args, **kwargs)

        return noted


def _path(argument: Any) -> str:
    where = Path(f"/proc/self/fd/{argument}")
    return str(where.readlink() if type(argument) is int else argument)
