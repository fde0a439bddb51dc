"""A folder of captured tiles on a disk."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from attrs import field, frozen

from tileferry.adapters.filesystem.files import translated
from tileferry.application.ports.captures import CaptureFile
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import FACTS_BYTES_MAX, is_litter

_FACTS = "metadata.json"
# O_NONBLOCK: opening a planted FIFO must not wait; regular files do not notice.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NOT_OPENED = {errno.ELOOP, errno.ENXIO}
"""A link, and a socket."""
_DEPTH = 3
"""Of ``z/x/y.<ext>``."""


@frozen
class CaptureFolderFiles:
    """Reads a folder as it lies there. Links are not followed: they may lead anywhere."""

    root: Path
    names_all: bool = False
    """Whether links, devices and folders where only files belong are named as well."""
    check: Callable[[], object] = field(default=lambda: None, kw_only=True)
    """Is called for each file; raises ``KeyboardInterrupt`` for who wants it to end."""

    def facts(self) -> bytes | None:
        """Return what ``metadata.json`` holds, if there is one."""
        path = self.root / _FACTS
        with translated("read", path):
            try:
                descriptor = os.open(path, _OPEN)
            except (FileNotFoundError, NotADirectoryError):  # of the folder, its listing tells
                return None
            except OSError as error:
                if error.errno in _NOT_OPENED:
                    raise _no_file(path) from error
                raise
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise _no_file(path)
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    return file.read(FACTS_BYTES_MAX + 1)
            finally:
                os.close(descriptor)

    def files(self) -> Iterator[CaptureFile]:
        """Yield all other files but litter, folder by folder, in the order of numbers or names."""
        for file in self._below(self.root, ()):
            self.check()
            yield file

    def read(self, file: CaptureFile, *, bytes_max: int) -> bytes:
        """Return a file's bytes, and one more than ``bytes_max`` at most."""
        path = self.root.joinpath(*file.parts)
        with translated("read", path):
            descriptor = os.open(path, _OPEN)
            with os.fdopen(descriptor, "rb") as opened:
                return opened.read(bytes_max + 1)

    def _below(self, folder: Path, parts: tuple[str, ...]) -> Iterator[CaptureFile]:
        with translated("list", folder), os.scandir(folder) as found:
            wanted = (entry for entry in found if not is_litter(entry.name))
            entries = sorted(wanted, key=lambda entry: _in_order(entry.name))
        for entry in entries:
            inner = (*parts, entry.name)
            too_deep = self.names_all and len(inner) >= _DEPTH
            if entry.is_dir(follow_symlinks=False) and not too_deep:
                yield from self._below(folder / entry.name, inner)
                continue
            is_regular = entry.is_file(follow_symlinks=False)
            if inner != (_FACTS,) and (is_regular or self.names_all):
                with translated("look at", folder / entry.name):
                    status = entry.stat(follow_symlinks=False)
                yield CaptureFile(
                    parts=inner,
                    size_bytes=status.st_size,
                    changed_at=datetime.fromtimestamp(status.st_mtime, UTC),
                    is_regular=is_regular,
                )


def _no_file(path: Path) -> InvalidValueError:
    return InvalidValueError(
        field=_FACTS,
        value=str(path),
        problem="is no regular file; links are not followed",
    )


def _in_order(name: str) -> tuple[int, str]:
    """Sort by: of numbers without leading zeros, the longer one is the greater."""
    return len(name.partition(".")[0]), name
