"""Tree archives, ``z/x/y.<ext>`` with facts in ``tiles.jsonl``: writing and reading."""

import ctypes
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field, frozen

from tileferry.adapters.filesystem.archives.destination import (
    DRAFT,
    ArchiveWorkspace,
    FileArchiveTarget,
)
from tileferry.adapters.filesystem.archives.facts_lines import (
    TileFactsReader,
    format_facts_line,
)
from tileferry.adapters.filesystem.files import (
    Directory,
    FileCalls,
    OpenFile,
    close_after_reading,
    translate_os_errors,
)
from tileferry.adapters.filesystem.operator_files import CaptureFolderFiles
from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.application.ports.captures import CaptureFile
from tileferry.domain.archives import (
    DESCRIPTION_BYTES_MAX,
    ArchiveDescription,
    TileFacts,
    TileOrder,
    detect_tile_kind,
    is_archive_description,
)
from tileferry.domain.errors import ArchiveError, InvalidValueError
from tileferry.domain.tiles import TILE_BYTES_MAX, CaptureFacts, TileId, parse_tile_path
from tileferry.domain.tiles.capture import TileScheme

FACTS_FILE = "tiles.jsonl"
ABOUT = "archive.json"
_BUFFER_LINES = 4_096


@frozen(kw_only=True)
class TreeTarget(FileArchiveTarget):
    """An export to a directory tree."""

    @property
    def order(self) -> TileOrder:
        """Column by column, as the folders are created."""
        return TileOrder.COLUMNS

    @contextmanager
    def open_draft(self) -> "Iterator[_TreeDraft]":
        """Start the tree in a draft folder next to its path."""
        place = self._workspace(_is_tree_archive)
        with place.folder() as folder:
            root = folder.path / DRAFT
            with translate_os_errors("create", root):
                root.mkdir()
            with _create_file(root / FACTS_FILE, self.calls) as facts:
                yield _TreeDraft(place=place, folder=folder, root=root, facts=facts)


def _is_tree_archive(path: Path) -> bool:
    """Return whether a folder is empty or an export; no other folder may be removed."""
    if not path.is_dir():
        return False
    about = path / ABOUT
    with translate_os_errors("read", about):
        if about.is_symlink() or not about.is_file():
            return next(path.iterdir(), None) is None
        with about.open("rb") as file:
            return is_archive_description(file.read(DESCRIPTION_BYTES_MAX + 1))


@define(kw_only=True)
class _TreeDraft:
    """A tree archive being written."""

    place: ArchiveWorkspace
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
            with translate_os_errors("create", column):
                column.mkdir(parents=True, exist_ok=True)
            self._column = column
        path = column / f"{tile_id.y}.{detect_tile_kind(tile.content)}"
        with _create_file(path, self.place.calls) as file:
            file.write_all(tile.content)
        self._lines.append(format_facts_line(tile_id, tile.facts))
        if len(self._lines) >= _BUFFER_LINES:
            self._write_lines()

    def _write_lines(self) -> None:
        self.facts.write_vector(self._lines)
        self._lines = []

    def seal(self, about: ArchiveDescription) -> "TreeSource":
        """Write the description, and sync the whole filesystem: syncing each file is far slower."""
        self._write_lines()
        with _create_file(self.root / ABOUT, self.place.calls) as file:
            description = json.dumps(about.to_json(), ensure_ascii=False, indent=2) + "\n"
            file.write_all(description.encode())
        with translate_os_errors("make durable", self.root):
            _sync_filesystem(self.folder.fd)
        return TreeSource(self.root)

    def publish(self) -> None:
        """Move the folder to its path."""
        self.place.publish(self.folder)


@contextmanager
def _create_file(path: Path, calls: FileCalls) -> Iterator[OpenFile]:
    """Create a file in our own folder, with the mode that the umask gives to new files."""
    with translate_os_errors("create", path):
        fd = calls.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with OpenFile(fd=fd, path=path, calls=calls) as file:
        yield file


def _sync_filesystem(fd: int) -> None:
    """Call ``syncfs``, which Python lacks: return once the filesystem of ``fd`` is durable."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@frozen
class TreeSource:
    """Reads a folder of tiles; links are reported and not followed."""

    root: Path
    check: Callable[[], object] = field(default=lambda: None, kw_only=True)
    """Called for each file; raises ``KeyboardInterrupt`` to cancel."""
    scheme: TileScheme | None = field(default=None, kw_only=True)
    """How rows are counted; ``None``: from the north, unless the folder looks otherwise."""

    def iter_sizes(self, source: str) -> Iterator[tuple[TileId, int]]:
        """Yield the id and size of each tile, from file names and sizes."""
        for file, tile_id in self._walk_files(source):
            # Too large files are refused later, so no space is needed for them.
            if isinstance(tile_id, TileId) and file.size_bytes <= TILE_BYTES_MAX:
                yield tile_id, file.size_bytes

    def tiles(self, source: str) -> Iterator[ArchivedTile | RefusedEntry]:
        """Yield the tiles column by column, each with its own facts or the common ones."""
        folder = self._folder()
        with self._open_facts(source, self._read_common_facts(folder)) as lines:
            for file, tile_id in self._walk_files(source):
                if not isinstance(tile_id, TileId):
                    yield RefusedEntry(place=file.path, problem=tile_id)
                elif file.size_bytes > TILE_BYTES_MAX:
                    yield RefusedEntry(place=file.path, problem="is too large for a tile")
                else:
                    content = folder.read(file, bytes_max=TILE_BYTES_MAX)
                    facts = lines.find(tile_id)
                    yield ArchivedTile(tile_id=tile_id, content=content, facts=facts)

    @contextmanager
    def _open_facts(self, source: str, of_all: TileFacts) -> Iterator[TileFactsReader]:
        with Directory.open_root(self.root, FileCalls()) as folder:
            found = folder.find_file(FACTS_FILE)
        with close_after_reading(None if found is None else os.fdopen(found.fd, "rb")) as file:
            yield TileFactsReader(
                file=file, place=self.root / FACTS_FILE, source=source, of_all=of_all
            )

    def _walk_files(self, source: str) -> Iterator[tuple[CaptureFile, TileId | str]]:
        """Yield each file with its tile id, or with the reason why it has none."""
        for file in self._folder().iter_files():
            if file.parts in {(ABOUT,), (FACTS_FILE,)}:
                continue
            if not file.is_regular:
                yield file, "is not a regular file; links are not followed"
                continue
            try:
                yield file, parse_tile_path(file.parts, source, file.scheme)
            except InvalidValueError as error:
                yield file, str(error)

    def _folder(self) -> CaptureFolderFiles:
        return CaptureFolderFiles(self.root, names_all=True, check=self.check, scheme=self.scheme)

    def _read_common_facts(self, folder: CaptureFolderFiles) -> TileFacts:
        """Return the facts in ``metadata.json``, which has the same format as for captures."""
        try:
            content = folder.read_facts()
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
