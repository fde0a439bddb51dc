"""PMTiles version 3 archives: writing in one pass, and reading.

The facts of the tiles are in a file next to the archive, because PMTiles has no place for them.

A file is header and root directory, tiles, leaf directories, metadata. The writer keeps no list of
all entries: it encodes each leaf directory as soon as it is full, and collects the leaves in a
separate file until the last tile is written.
"""

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
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
from tileferry.adapters.filesystem.archives.facts_lines import (
    LINE_BYTES_MAX,
    TileFactsReader,
    format_facts_line,
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
from tileferry.adapters.filesystem.files import (
    Directory,
    FileCalls,
    OpenFile,
    close_after_reading,
    translate_os_errors,
)
from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.domain.archives import (
    ArchiveDescription,
    TileOrder,
    get_level_start,
    number_to_zxy,
    zxy_to_number,
)
from tileferry.domain.errors import ArchiveError, InvalidValueError
from tileferry.domain.tiles import TILE_BYTES_MAX, ZOOM_MAX, TileId
from tileferry.domain.tiles.limits import AREA_TILES_MAX

_LEAVES = "leaves"
_SIDECAR_START = b'{"archive":"'
_FACTS = f"{DRAFT}.tiles.jsonl"
_BUFFER_BYTES = 1024 * 1024
_DIRECTORY_BYTES_MAX = 64 * 1024 * 1024
_OFFSET_MAX = 2**63 - 1
"""The system reads no byte beyond."""
_DEPTH_MAX = 4
"""Levels of directories that readers must support, by the specification."""
_NUMBERS_MAX = get_level_start(ZOOM_MAX + 1)
"""The first number beyond the highest zoom level of a tile id."""
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
        _check_sidecar(build_sidecar_path(self.path))
        with (
            place.folder() as folder,
            folder.create_file(DRAFT) as tiles,
            folder.create_file(_LEAVES) as leaves,
            folder.create_file(_FACTS) as facts,
        ):
            yield _PmtilesDraft(
                place=place,
                folder=folder,
                tiles=_BufferedAppender(tiles),
                leaves=_BufferedAppender(leaves),
                facts=_BufferedAppender(facts),
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
    facts: _BufferedAppender
    _entries: list[DirectoryEntry] = field(factory=list, init=False)
    """Entries of the current leaf directory."""
    _root: list[DirectoryEntry] = field(factory=list, init=False)
    _seen: OrderedDict[str, tuple[int, int]] = field(factory=OrderedDict, init=False)
    _tile_count: int = field(default=0, init=False)
    _entry_count: int = field(default=0, init=False)
    _content_count: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        # Both are rewritten last: header and root, and the line that names them by their digest.
        self.tiles.append(bytes(ROOT_END))
        self.facts.append(_build_sidecar_head(b""))

    def add(self, tile: ArchivedTile) -> None:
        """Write a tile's bytes, unless the same bytes were written recently, and add its entry."""
        tile_id = tile.tile_id
        number = zxy_to_number(tile_id.zoom, tile_id.x, tile_id.y)
        offset, length = self._store(tile)
        self.facts.append(format_facts_line(tile_id, tile.facts))
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
        # Not "tiles": TileJSON readers take that for a list of URLs.
        described = {**about.to_texts(), "tile_kinds": dict(sorted(about.kinds.items()))}
        encoded = gzip_compress(json.dumps(described, ensure_ascii=False).encode())
        metadata = FileSection(self.tiles.append(encoded), len(encoded))
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
        self._seal_facts(file.pread(ROOT_END, 0))
        return PmtilesSource(self.folder.path / DRAFT, calls=file.calls)

    def _seal_facts(self, start: bytes) -> None:
        self.facts.write_out()
        file = self.facts.file
        file.rewind()
        file.write_all(_build_sidecar_head(start))
        apply_umask_mode(file)
        file.fdatasync()

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
        """Move both files to their paths."""
        sidecar = build_sidecar_path(self.place.path)
        _check_sidecar(sidecar)
        self.place.publish(self.folder, sidecar=(_FACTS, sidecar))


@frozen
class PmtilesSource:
    """Reads a ``.pmtiles`` file from its first tile to its last."""

    path: Path
    check: Callable[[], object] = field(default=lambda: None, kw_only=True)
    """Called for each entry; raises ``KeyboardInterrupt`` to cancel."""
    calls: FileCalls = field(factory=FileCalls, kw_only=True)

    def iter_sizes(self, source: str) -> Iterator[tuple[TileId, int]]:
        """Yield the id and size of each tile, from the directories."""
        with self._open() as file:
            for entry in self._iter_entries(file):
                if _find_problem(entry) is None:
                    for number in range(entry.number, entry.number + entry.run):
                        yield _tile_id_for(number, source), entry.length

    def tiles(self, source: str) -> Iterator[ArchivedTile | RefusedEntry]:
        """Yield the tiles in the order of the Hilbert curve, with the facts of the sidecar."""
        with self._open() as file, self._open_facts(file, source) as facts:
            start = _read_sections(file).tiles.offset
            for entry in self._iter_entries(file):
                if (problem := _find_problem(entry)) is not None:
                    place = "/".join(map(str, number_to_zxy(entry.number)))
                    yield RefusedEntry(place=place, problem=problem)
                    continue
                content = _read_section(file, FileSection(start + entry.offset, entry.length))
                for number in range(entry.number, entry.number + entry.run):
                    tile = _tile_id_for(number, source)
                    yield ArchivedTile(tile_id=tile, content=content, facts=facts.find(tile))

    def _iter_entries(self, file: OpenFile) -> Iterator[DirectoryEntry]:
        """Yield the entries of all tiles, in ascending order, up to a limit."""
        tiles = following = 0
        for entry in _read_entries(file):
            self.check()
            tiles += entry.run
            if entry.number < following:
                raise _build_error("has entries that overlap or are not sorted")
            if tiles > AREA_TILES_MAX:
                raise _build_error(f"has more than {AREA_TILES_MAX:,} tiles")
            following = entry.number + entry.run
            yield entry

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
                    path=str(self.path),
                    problem=str(error),
                    remedy="get the archive again; tiles imported so far are kept",
                ) from error

    @contextmanager
    def _open_facts(self, file: OpenFile, source: str) -> Iterator[TileFactsReader]:
        path = build_sidecar_path(self.path)
        is_there = path.is_file() and not path.is_symlink()
        with translate_os_errors("open", path):
            found = path.open("rb") if is_there else None
        with close_after_reading(found) as lines:
            with translate_os_errors("read", path):
                head = b"" if lines is None else lines.readline(LINE_BYTES_MAX)
            is_ours = head == _build_sidecar_head(file.pread(ROOT_END, 0))
            yield TileFactsReader(
                file=lines if is_ours else None,  # it may belong to another archive of this name
                place=path,
                source=source,
                get_position=_get_curve_position,
            )


def _find_problem(entry: DirectoryEntry) -> str | None:
    """Return why the tiles of an entry are refused, from its directory."""
    if entry.length > TILE_BYTES_MAX:
        return f"has {entry.length} bytes, too many for a tile"
    if entry.number + entry.run > _NUMBERS_MAX:
        return f"is beyond zoom level {ZOOM_MAX}"
    return None


def build_sidecar_path(path: Path) -> Path:
    """Return the path of the file with the facts of an archive's tiles."""
    return path.with_name(f"{path.name}.tiles.jsonl")


def _check_sidecar(path: Path) -> None:
    """Reject a file that no export has written, because the facts would replace it."""
    if not os.path.lexists(path):
        return
    if is_regular_file(path):
        with translate_os_errors("read", path), path.open("rb") as file:
            if file.read(len(_SIDECAR_START)) == _SIDECAR_START:
                return
    raise ArchiveError(
        path=str(path),
        problem="exists and does not hold the facts of an archive, so it is not replaced",
        remedy="choose another name, or remove it yourself",
    )


def _build_sidecar_head(start: bytes) -> bytes:
    """Return the first line, which names the archive by the sha256 of its header and root."""
    return _SIDECAR_START + b'%b"}\n' % sha256(start).hexdigest().encode()


def _get_curve_position(tile: TileId) -> int:
    return zxy_to_number(tile.zoom, tile.x, tile.y)


def _read_sections(file: OpenFile) -> FileLayout:
    return decode_header(file.pread(HEADER_BYTES, 0))[0]


def _read_section(file: OpenFile, section: FileSection) -> bytes:
    end = section.offset + section.length
    content = file.pread(section.length, section.offset) if end <= _OFFSET_MAX else b""
    if len(content) != section.length:
        raise _build_error(f"ends before byte {end}")
    return content


def _read_entries(file: OpenFile) -> Iterator[DirectoryEntry]:
    """Yield the entries of all tiles, from the root and its leaves."""
    sections = _read_sections(file)

    def read_directory(section: FileSection, depth: int) -> Iterator[DirectoryEntry]:
        if section.length > _DIRECTORY_BYTES_MAX or depth > _DEPTH_MAX:
            raise _build_error("has a directory that is too large or too deep")
        for entry in decode_directory(_read_section(file, section)):
            if entry.run:
                yield entry
            else:
                leaf = FileSection(sections.leaves.offset + entry.offset, entry.length)
                yield from read_directory(leaf, depth + 1)

    return read_directory(sections.root, 1)


def _tile_id_for(number: int, source: str) -> TileId:
    zoom, x, y = number_to_zxy(number)
    return TileId(source=source, zoom=zoom, x=x, y=y)


def _build_error(problem: str) -> InvalidValueError:
    return InvalidValueError(field="PMTiles", value=None, problem=problem)
