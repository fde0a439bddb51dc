"""A folder of tiles, ``z/x/y.<ext>``, as web servers and many viewers take it.

Beside the tiles lie ``archive.json``, which describes them, and ``tiles.jsonl``, which has a line
for each in the order of zoom, column and row: neither side of an exchange holds more than a line.
"""

import ctypes
import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from attrs import define, field, frozen

from tileferry.adapters.filesystem.archives.fact_lines import FACTS, FactLines
from tileferry.adapters.filesystem.archives.place import DRAFT, ArchivePath, ArchivePlace
from tileferry.adapters.filesystem.captures import CaptureFolderFiles
from tileferry.adapters.filesystem.files import Directory, FileCalls, OpenFile, translated
from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.application.ports.captures import CaptureFile
from tileferry.domain.archives import (
    ABOUT_BYTES_MAX,
    ArchiveAbout,
    TileFacts,
    TileOrder,
    describes_archive,
    facts_line,
    kind_of,
)
from tileferry.domain.errors import ArchiveError, InvalidValueError
from tileferry.domain.tiles import TILE_BYTES_MAX, CaptureFacts, TileId, tile_of_path

ABOUT = "archive.json"
_BUFFER_LINES = 4_096


@frozen(kw_only=True)
class TreeTarget(ArchivePath):
    """A folder to be."""

    @property
    def order(self) -> TileOrder:
        """As folders are made: column by column."""
        return TileOrder.COLUMNS

    @contextmanager
    def draft(self) -> "Iterator[_TreeDraft]":
        """Begin the folder, inside one beside it."""
        place = self._space(_is_ours)
        with place.folder() as folder:
            root = folder.path / DRAFT
            with translated("create", root):
                root.mkdir()
            with _created(root / FACTS, self.calls) as facts:
                yield _TreeDraft(place=place, folder=folder, root=root, facts=facts)


def _is_ours(path: Path) -> bool:
    """Tell whether a folder is an export, or empty: any other is not for us to remove."""
    if not path.is_dir():
        return False
    about = path / ABOUT
    with translated("read", about):
        if about.is_symlink() or not about.is_file():
            return next(path.iterdir(), None) is None
        with about.open("rb") as file:
            return describes_archive(file.read(ABOUT_BYTES_MAX + 1))


@define(kw_only=True)
class _TreeDraft:
    """The folder while it is filled."""

    place: ArchivePlace
    folder: Directory
    root: Path
    facts: OpenFile
    _column: Path | None = field(default=None, init=False)
    _lines: list[bytes] = field(factory=list, init=False)

    def add(self, tile: ArchivedTile) -> None:
        """Write a tile's file and its line."""
        tile_id = tile.tile_id
        column = self.root / str(tile_id.zoom) / str(tile_id.x)
        if column != self._column:
            with translated("create", column):
                column.mkdir(parents=True, exist_ok=True)
            self._column = column
        path = column / f"{tile_id.y}.{kind_of(tile.content)}"
        with _created(path, self.place.calls) as file:
            file.write_all(tile.content)
        self._lines.append(facts_line(tile_id, tile.facts))
        if len(self._lines) >= _BUFFER_LINES:
            self._write_lines()

    def _write_lines(self) -> None:
        self.facts.write_vector(self._lines)
        self._lines = []

    def seal(self, about: ArchiveAbout) -> "TreeSource":
        """Describe it, and sync all of the filesystem at once: one by one would take far longer."""
        self._write_lines()
        with _created(self.root / ABOUT, self.place.calls) as file:
            told = json.dumps(about.json(), ensure_ascii=False, indent=2) + "\n"
            file.write_all(told.encode())
        with translated("make durable", self.root):
            _sync_filesystem(self.folder.fd)
        return TreeSource(self.root)

    def publish(self) -> None:
        """Give the folder its name."""
        self.place.publish(self.folder)


@contextmanager
def _created(path: Path, calls: FileCalls) -> Iterator[OpenFile]:
    """Make a file in our own folder, with the mode that new files of this user have."""
    with translated("create", path):
        fd = calls.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with OpenFile(fd=fd, path=path, calls=calls) as file:
        yield file


def _sync_filesystem(fd: int) -> None:
    """Return once everything on the disk of ``fd`` is durable; Python has no call for it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@frozen
class TreeSource:
    """Reads a folder of tiles; links are named and not followed."""

    root: Path
    check: Callable[[], object] = field(default=lambda: None, kw_only=True)
    """Is called for each file; raises ``KeyboardInterrupt`` for who wants it to end."""

    def sizes(self, source: str) -> Iterator[tuple[TileId, int]]:
        """Yield what the names say."""
        for file, tile_id in self._files(source):
            # What is too large is refused later: no tile makes room for it.
            if isinstance(tile_id, TileId) and file.size_bytes <= TILE_BYTES_MAX:
                yield tile_id, file.size_bytes

    def tiles(self, source: str) -> Iterator[ArchivedTile | RefusedEntry]:
        """Yield the tiles column by column, each with its line or with what is said of all."""
        folder = self._folder()
        lines = FactLines(root=self.root, source=source, of_all=self._facts_of_all(folder))
        with closing(lines):
            for file, tile_id in self._files(source):
                if not isinstance(tile_id, TileId):
                    yield RefusedEntry(place=file.path, problem=tile_id)
                elif file.size_bytes > TILE_BYTES_MAX:
                    yield RefusedEntry(place=file.path, problem="is too large for a tile")
                else:
                    content = folder.read(file, bytes_max=TILE_BYTES_MAX)
                    facts = lines.of(tile_id)
                    yield ArchivedTile(tile_id=tile_id, content=content, facts=facts)

    def _files(self, source: str) -> Iterator[tuple[CaptureFile, TileId | str]]:
        """Yield each file with its tile, or with why it is none."""
        for file in self._folder().files():
            if file.parts in {(ABOUT,), (FACTS,)}:
                continue
            if not file.is_regular:
                yield file, "is no regular file; links are not followed"
                continue
            try:
                yield file, tile_of_path(file.parts, source)
            except InvalidValueError as error:
                yield file, str(error)

    def _folder(self) -> CaptureFolderFiles:
        return CaptureFolderFiles(self.root, names_all=True, check=self.check)

    def _facts_of_all(self, folder: CaptureFolderFiles) -> TileFacts:
        """Return what ``metadata.json`` says, as ``tileferry ingest`` reads it too."""
        try:
            content = folder.facts()
            if content is None:
                return TileFacts()
            facts = CaptureFacts.parse(content)
        except InvalidValueError as error:
            raise ArchiveError(
                path=str(self.root), problem=str(error), remedy="correct that file or remove it"
            ) from error
        return TileFacts(
            produced_at=facts.captured_at, resolution_m_per_px=facts.resolution_m_per_px
        )
