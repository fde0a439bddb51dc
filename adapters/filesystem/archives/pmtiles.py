"""PMTiles version 3 archives: writing in one pass, and reading.

A file is header and root directory, tiles, leaf directories, metadata. The writer keeps no list of
all entries: it encodes each leaf directory as soon as it is full, and collects the leaves in a
separate file until the last tile is written.
"""

import json
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from attrs import define, field, frozen

from tileferry.adapters.filesystem.archives.destination import (
    DRAFT,
    ArchiveWorkspace,
    FileArchiveTarget,
    apply_umask_mode,
    is_regular_file,
)
from tileferry.adapters.filesystem.archives.pmtiles_format import (
    HEADER_BYTES,
    MAGIC,
    ROOT_END,
    ArchiveCounts,
    DirectoryEntry,
    FileLayout,
    FileSection,
    compute_leaf_entries,
    decode_directory,
    decode_header,
    encode_directory,
    encode_header,
    gzip_compress,
)
from tileferry.adapters.filesystem.files import Directory, FileCalls, OpenFile, translate_os_errors
from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.domain.archives import ArchiveDescription, TileOrder, number_to_zxy, zxy_to_number
from tileferry.domain.errors import ArchiveError, InvalidValueError
from tileferry.domain.tiles import TILE_BYTES_MAX, TileId

_LEAVES = "leaves"
_BUFFER_BYTES = 1024 * 1024
_CONTENTS_REMEMBERED = 4_096
"""Duplicates among this many recent contents are written once: water and cloud tiles repeat."""


@frozen(kw_only=True)
class PmtilesTarget(FileArchiveTarget):
    """An export to a ``.pmtiles`` file."""

    @property
    def order(self) -> TileOrder:
        """Along the Hilbert curve, so that the tiles of an area are close together."""
        return TileOrder.CURVE

    @contextmanager
    def open_draft(self) -> "Iterator[_PmtilesDraft]":
        """Start the file in a draft folder next to its path."""
        place = self._workspace(_is_pmtiles)
        with (
            place.folder() as folder,
            folder.create_file(DRAFT) as tiles,
            folder.create_file(_LEAVES) as leaves,
        ):
            yield _PmtilesDraft(
                place=place,
                folder=folder,
                tiles=_BufferedAppender(tiles),
                leaves=_BufferedAppender(leaves),
            )


def _is_pmtiles(path: Path) -> bool:
    """Return whether a file is empty or starts like PMTiles; no other file may be replaced."""
    if not is_regular_file(path):
        return False
    with translate_os_errors("read", path), path.open("rb") as file:
        return file.read(len(MAGIC)) in {b"", MAGIC}


@define
class _BufferedAppender:
    """Appends to a file in large writes."""

    file: OpenFile
    size: int = field(default=0, init=False)
    _parts: list[bytes] = field(factory=list, init=False)
    _waiting: int = field(default=0, init=False)

    def append(self, content: bytes) -> int:
        """Append bytes and return their offset."""
        start = self.size
        self._parts.append(content)
        self.size += len(content)
        self._waiting += len(content)
        if self._waiting >= _BUFFER_BYTES:
            self.write_out()
        return start

    def write_out(self) -> None:
        """Write the buffer to the file."""
        self.file.write_vector(self._parts)
        self._parts, self._waiting = [], 0


@define(kw_only=True)
class _PmtilesDraft:
    """A PMTiles file being written."""

    place: ArchiveWorkspace
    folder: Directory
    tiles: _BufferedAppender
    leaves: _BufferedAppender
    _entries: list[DirectoryEntry] = field(factory=list, init=False)
    """Entries of the current leaf directory."""
    _root: list[DirectoryEntry] = field(factory=list, init=False)
    _seen: OrderedDict[str, tuple[int, int]] = field(factory=OrderedDict, init=False)
    _tile_count: int = field(default=0, init=False)
    _entry_count: int = field(default=0, init=False)
    _content_count: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.tiles.append(bytes(ROOT_END))  # reserved for header and root, which are written last

    def add(self, tile: ArchivedTile) -> None:
        """Write a tile's bytes, unless the same bytes were written recently, and add its entry."""
        tile_id = tile.tile_id
        number = zxy_to_number(tile_id.zoom, tile_id.x, tile_id.y)
        offset, length = self._store(tile)
        self._tile_count += 1
        last = self._entries[-1] if self._entries else None
        if last is not None and last.offset == offset and last.number + last.run == number:
            self._entries[-1] = DirectoryEntry(last.number, offset, length, last.run + 1)
            return
        if len(self._entries) == compute_leaf_entries(len(self._root)):
            self._finish_leaf()
        self._entries.append(DirectoryEntry(number, offset, length, 1))
        self._entry_count += 1

    def _store(self, tile: ArchivedTile) -> tuple[int, int]:
        key = tile.facts.sha256 or sha256(tile.content).hexdigest()
        found = self._seen.get(key)
        if found is None:
            offset = self.tiles.append(tile.content) - ROOT_END
            found = offset, len(tile.content)
            self._content_count += 1
            if len(self._seen) >= _CONTENTS_REMEMBERED:
                self._seen.popitem(last=False)
        self._seen[key] = found
        self._seen.move_to_end(key)
        return found

    def _finish_leaf(self) -> None:
        encoded = encode_directory(self._entries)
        offset = self.leaves.append(encoded)
        self._root.append(DirectoryEntry(self._entries[0].number, offset, len(encoded), 0))
        self._entries = []

    def seal(self, about: ArchiveDescription) -> "PmtilesSource":
        """Write leaf directories and metadata, then header and root."""
        tiles = FileSection(ROOT_END, self.tiles.size - ROOT_END)
        root = self._build_root()
        leaves = FileSection(self.tiles.size, self.leaves.size)
        self._copy_leaves()
        told = gzip_compress(json.dumps(about.to_json(), ensure_ascii=False).encode())
        metadata = FileSection(self.tiles.append(told), len(told))
        self.tiles.write_out()
        sections = FileLayout(
            root=FileSection(HEADER_BYTES, len(root)), metadata=metadata, leaves=leaves, tiles=tiles
        )
        counts = ArchiveCounts(
            tiles=self._tile_count, entries=self._entry_count, contents=self._content_count
        )
        file = self.tiles.file
        file.rewind()
        file.write_all(encode_header(sections, counts, about) + root)
        apply_umask_mode(file)
        file.fdatasync()
        return PmtilesSource(self.folder.path / DRAFT, calls=file.calls)

    def _build_root(self) -> bytes:
        """Return the root directory: all entries if they fit, otherwise those of the leaves."""
        if not self._root:
            root = encode_directory(self._entries)
            if HEADER_BYTES + len(root) <= ROOT_END:
                return root
        self._finish_leaf()
        return encode_directory(self._root)

    def _copy_leaves(self) -> None:
        self.leaves.write_out()
        for offset in range(0, self.leaves.size, _BUFFER_BYTES):
            self.tiles.append(self.leaves.file.pread(_BUFFER_BYTES, offset))

    def publish(self) -> None:
        """Move the file to its path."""
        self.place.publish(self.folder)


@frozen
class PmtilesSource:
    """Reads a ``.pmtiles`` file from its first tile to its last."""

    path: Path
    calls: FileCalls = field(factory=FileCalls, kw_only=True)

    def tiles(self, source: str) -> Iterator[ArchivedTile | RefusedEntry]:
        """Yield the tiles in the order of the Hilbert curve."""
        with self._open() as file:
            start = _read_sections(file).tiles.offset
            for entry in _read_entries(file):
                if entry.length > TILE_BYTES_MAX:
                    yield RefusedEntry(place=str(entry.number), problem="is too large for a tile")
                    continue
                content = file.pread(entry.length, start + entry.offset)
                for number in range(entry.number, entry.number + entry.run):
                    yield ArchivedTile(tile_id=_tile_id_for(number, source), content=content)

    @contextmanager
    def _open(self) -> Iterator[OpenFile]:
        with Directory.open_root(self.path.parent, self.calls) as folder:
            file = folder.find_file(self.path.name)
        if file is None:
            raise ArchiveError(
                path=str(self.path), problem="does not exist", remedy="check the path"
            )
        with file:
            try:
                yield file
            except InvalidValueError as error:
                raise ArchiveError(
                    path=str(self.path), problem=str(error), remedy="get the archive again"
                ) from error


def _read_sections(file: OpenFile) -> FileLayout:
    return decode_header(file.pread(HEADER_BYTES, 0))[0]


def _read_entries(file: OpenFile) -> Iterator[DirectoryEntry]:
    """Yield the entries of all tiles, from the root or from its leaves."""
    sections = _read_sections(file)
    for entry in decode_directory(file.pread(sections.root.length, sections.root.offset)):
        if entry.run:
            yield entry
        else:
            leaf = file.pread(entry.length, sections.leaves.offset + entry.offset)
            yield from decode_directory(leaf)


def _tile_id_for(number: int, source: str) -> TileId:
    zoom, x, y = number_to_zxy(number)
    return TileId(source=source, zoom=zoom, x=x, y=y)
