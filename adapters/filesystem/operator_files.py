"""Files that operators provide or look at: capture folders, flight records, plans, tile images."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from attrs import field, frozen

from tileferry.adapters.filesystem.atomic_files import replace_file
from tileferry.adapters.filesystem.files import (
    Directory,
    FileCalls,
    close_after_reading,
    translate_os_errors,
)
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
from tileferry.domain.tiles.capture import TMS_FILE, TileScheme

_FACTS_FILE = "metadata.json"
# O_NONBLOCK: opening a planted FIFO must not block; it has no effect on regular files.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NOT_OPENABLE_ERRORS = {errno.ELOOP, errno.ENXIO}
"""Raised for a symbolic link and for a socket."""
_DEPTH = 3
"""Folder depth of ``z/x/y.<ext>``."""


@frozen
class CaptureFolderFiles:
    """Reads a folder of captured tiles. Links are not followed, because they may lead anywhere."""

    root: Path
    names_all: bool = False
    """Whether to include links, devices, and folders at the level of files."""
    check: Callable[[], object] = field(default=lambda: None, kw_only=True)
    """Called for each file; raises ``KeyboardInterrupt`` to cancel."""
    scheme: TileScheme | None = field(default=None, kw_only=True)
    """How rows are counted; ``None``: from the north, unless the folder looks otherwise."""

    def read_facts(self) -> bytes | None:
        """Return the content of ``metadata.json``, if it exists."""
        path = self.root / _FACTS_FILE
        with translate_os_errors("read", path):
            try:
                descriptor = os.open(path, _OPEN)
            except (
                FileNotFoundError,
                NotADirectoryError,
            ):  # a missing folder is reported when it is listed
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
        """Yield the other files except litter, folder by folder, in numeric or name order."""
        scheme = self._choose_scheme()
        for file in self._walk(self.root, (), scheme):
            self.check()
            yield file

    def _choose_scheme(self) -> TileScheme:
        """Return how rows are counted; do not guess for a tree of gdal2tiles."""
        if self.scheme is None and (self.root / TMS_FILE).exists():
            raise InvalidValueError(
                field="scheme",
                value=None,
                problem=f"is not given, and the folder has a {TMS_FILE}: its rows are probably "
                "counted from the south",
                remedy=Remedy.NAME_SCHEME,
            )
        return self.scheme or TileScheme.XYZ

    def read(self, file: CaptureFile, *, bytes_max: int) -> bytes:
        """Return a file's bytes, at most ``bytes_max`` + 1 of them."""
        path = self.root.joinpath(*file.parts)
        with translate_os_errors("read", path):
            descriptor = os.open(path, _OPEN)
            with os.fdopen(descriptor, "rb") as opened:
                return opened.read(bytes_max + 1)

    def _walk(
        self, folder: Path, parts: tuple[str, ...], scheme: TileScheme
    ) -> Iterator[CaptureFile]:
        with translate_os_errors("list", folder), os.scandir(folder) as found:
            wanted = (entry for entry in found if not is_system_file(entry.name))
            entries = sorted(wanted, key=lambda entry: _sort_key(entry.name))
        for entry in entries:
            inner = (*parts, entry.name)
            too_deep = self.names_all and len(inner) >= _DEPTH
            if entry.is_dir(follow_symlinks=False) and not too_deep:
                yield from self._walk(folder / entry.name, inner, scheme)
                continue
            is_regular = entry.is_file(follow_symlinks=False)
            if inner != (_FACTS_FILE,) and (is_regular or self.names_all):
                with translate_os_errors("inspect", folder / entry.name):
                    status = entry.stat(follow_symlinks=False)
                yield CaptureFile(
                    parts=inner,
                    size_bytes=status.st_size,
                    changed_at=datetime.fromtimestamp(status.st_mtime, UTC),
                    scheme=scheme,
                    is_regular=is_regular,
                )


def _not_a_file_error(path: Path) -> InvalidValueError:
    return InvalidValueError(
        field=_FACTS_FILE,
        value=str(path),
        problem="is not a regular file; links are not followed",
    )


def _sort_key(name: str) -> tuple[int, str]:
    """Return a key that sorts numbers by value: without leading zeros, a longer one is greater."""
    return len(name.partition(".")[0]), name


_RECORD_BYTES_MAX = 65_537


@frozen(kw_only=True)
class FlightRecordFile:
    """A flight record in a file, which is read for each call because it may change."""

    path: Path | None

    def get_current(self) -> FlightRecord:
        """Return the current content of the file."""
        if self.path is None:
            raise InvalidValueError(
                field="c11.flight_record_file",
                value=None,
                problem="is not set, so it is unknown whether the aircraft has landed",
                remedy=Remedy.CONFIRM_LANDING,
            )
        return FlightRecord.parse(_read_start(self.path, _RECORD_BYTES_MAX))


@frozen(kw_only=True)
class OperatorConfirmation:
    """The operator's confirmation that the aircraft has landed."""

    flight_id: str
    said_at: datetime

    def get_current(self) -> FlightRecord:
        """Return the confirmed state."""
        return FlightRecord(
            flight_id=self.flight_id, state=FlightState.ON_GROUND, recorded_at=self.said_at
        )


@frozen
class TileImageFolder:
    """Writes copies of tiles to ``<root>/.c11/pictures``; they may be removed at any time."""

    root: Path

    def extract(self, tile_id: TileId, content: bytes) -> Path:
        """Write a tile and return its path."""
        try:
            kind = detect_image_kind(content)
        except InvalidValueError:
            kind = "bin"  # not an image, which may be why the tile was rejected
        name = f"{str(tile_id).replace('/', '_')}.{kind}"
        with (
            Directory.open_root(self.root, FileCalls()) as top,
            top.subdirectory(".c11") as ours,
            ours.subdirectory("pictures") as pictures,
        ):
            replace_file(pictures, name, content)
            return pictures.path / name


def read_plan_file(path: Path) -> bytes:
    """Return the content of a plan file, at most one byte more than the maximum size."""
    return _read_start(path, PLAN_BYTES_MAX + 1)


def _read_start(path: Path, size: int) -> bytes:
    with translate_os_errors("read", path), close_after_reading(path.open("rb")) as file:
        return file.read(size)
