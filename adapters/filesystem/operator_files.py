"""A folder of captured tiles on a disk."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from attrs import field, frozen

from tileferry.adapters.filesystem.atomic_files import replace_file
from tileferry.adapters.filesystem.files import Directory, FileCalls, translate_os_errors
from tileferry.application.ports.captures import CaptureFile
from tileferry.domain.errors import InvalidValueError, Remedy
from tileferry.domain.partitions import PLAN_BYTES_MAX
from tileferry.domain.tiles import (
    FACTS_BYTES_MAX,
    FlightRecord,
    FlightState,
    TileId,
    detect_image_kind,
    is_system_file,
)

_FACTS_FILE = "metadata.json"
# O_NONBLOCK: opening a planted FIFO must not wait; regular files do not notice.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NOT_OPENABLE_ERRORS = {errno.ELOOP, errno.ENXIO}
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

    def read_facts(self) -> bytes | None:
        """Return what ``metadata.json`` holds, if there is one."""
        path = self.root / _FACTS_FILE
        with translate_os_errors("read", path):
            try:
                descriptor = os.open(path, _OPEN)
            except (FileNotFoundError, NotADirectoryError):  # of the folder, its listing tells
                return None
            except OSError as error:
                if error.errno in _NOT_OPENABLE_ERRORS:
                    raise _not_a_file_error(path) from error
                raise
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise _not_a_file_error(path)
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    return file.read(FACTS_BYTES_MAX + 1)
            finally:
                os.close(descriptor)

    def iter_files(self) -> Iterator[CaptureFile]:
        """Yield all other files but litter, folder by folder, in the order of numbers or names."""
        for file in self._walk(self.root, ()):
            self.check()
            yield file

    def read(self, file: CaptureFile, *, bytes_max: int) -> bytes:
        """Return a file's bytes, and one more than ``bytes_max`` at most."""
        path = self.root.joinpath(*file.parts)
        with translate_os_errors("read", path):
            descriptor = os.open(path, _OPEN)
            with os.fdopen(descriptor, "rb") as opened:
                return opened.read(bytes_max + 1)

    def _walk(self, folder: Path, parts: tuple[str, ...]) -> Iterator[CaptureFile]:
        with translate_os_errors("list", folder), os.scandir(folder) as found:
            wanted = (entry for entry in found if not is_system_file(entry.name))
            entries = sorted(wanted, key=lambda entry: _sort_key(entry.name))
        for entry in entries:
            inner = (*parts, entry.name)
            too_deep = self.names_all and len(inner) >= _DEPTH
            if entry.is_dir(follow_symlinks=False) and not too_deep:
                yield from self._walk(folder / entry.name, inner)
                continue
            is_regular = entry.is_file(follow_symlinks=False)
            if inner != (_FACTS_FILE,) and (is_regular or self.names_all):
                with translate_os_errors("look at", folder / entry.name):
                    status = entry.stat(follow_symlinks=False)
                yield CaptureFile(
                    parts=inner,
                    size_bytes=status.st_size,
                    changed_at=datetime.fromtimestamp(status.st_mtime, UTC),
                    is_regular=is_regular,
                )


def _not_a_file_error(path: Path) -> InvalidValueError:
    return InvalidValueError(
        field=_FACTS_FILE,
        value=str(path),
        problem="is not a regular file; links are not followed",
    )


def _sort_key(name: str) -> tuple[int, str]:
    """Sort by: of numbers without leading zeros, the longer one is the greater."""
    return len(name.partition(".")[0]), name


_RECORD_BYTES_MAX = 65_537


@frozen(kw_only=True)
class FlightRecordFile:
    """Reads the file each time it is asked: it may have changed."""

    path: Path | None

    def get_current(self) -> FlightRecord:
        """Return what the file says now."""
        if self.path is None:
            raise InvalidValueError(
                field="c11.flight_record_file",
                value=None,
                problem="is not set, so it is unknown whether the aircraft has landed",
                remedy=Remedy.CONFIRM_LANDING,
            )
        with translate_os_errors("read", self.path), self.path.open("rb") as file:
            content = file.read(_RECORD_BYTES_MAX)
        return FlightRecord.parse(content)


@frozen(kw_only=True)
class OperatorConfirmation:
    """An operator confirms that the aircraft has landed."""

    flight_id: str
    said_at: datetime

    def get_current(self) -> FlightRecord:
        """Return what was said."""
        return FlightRecord(
            flight_id=self.flight_id, state=FlightState.ON_GROUND, recorded_at=self.said_at
        )


@frozen
class TileImageFolder:
    """Writes tiles to ``<root>/.c11/pictures``; they are copies, and may be removed at any time."""

    root: Path

    def extract(self, tile_id: TileId, content: bytes) -> Path:
        """Write a tile, and return where it is."""
        try:
            kind = detect_image_kind(content)
        except InvalidValueError:
            kind = "bin"  # which may be why nobody wanted it
        name = f"{str(tile_id).replace('/', '_')}.{kind}"
        with (
            Directory.open_root(self.root, FileCalls()) as top,
            top.subdirectory(".c11") as ours,
            ours.subdirectory("pictures") as pictures,
        ):
            replace_file(pictures, name, content)
            return pictures.path / name


def read_plan_file(path: Path) -> bytes:
    """Return what is in a file, up to a little more than any plan has."""
    with translate_os_errors("read", path), path.open("rb") as file:
        return file.read(PLAN_BYTES_MAX + 1)
