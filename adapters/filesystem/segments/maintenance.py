"""Compaction and verification of segments.

Compaction copies live records to the newest segment and removes the old file. Every row always
refers to a durable record: copies are durable before rows change, and the changed rows are durable
before a file is removed.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

from attrs import define, evolve, field, frozen

from tileferry.adapters.filesystem.files import Directory
from tileferry.adapters.filesystem.segments.format import (
    FILE_HEADER,
    parse_segment_number,
    record_size,
    segment_name,
)
from tileferry.adapters.filesystem.segments.reader import LocationCache, SegmentReader
from tileferry.adapters.filesystem.segments.writer import SegmentWriter
from tileferry.application.ports.inventory import (
    DamagedBlob,
    DamagedSegment,
    SegmentTally,
    VerificationFinding,
)
from tileferry.application.ports.tiles import SegmentIndex
from tileferry.domain.errors import DamagedTileError, StorageError
from tileferry.domain.tiles import BlobLocation, BlobRef, TileId

_COMPACTION_PAGE = 256


@frozen(kw_only=True)
class CompactedSegment:
    """The result of compacting one segment."""

    segment: int
    size_bytes: int
    removed: bool
    """A segment with damaged tiles is kept, because their rows still refer to it."""
    moved_tiles: int = 0
    moved_bytes: int = 0
    damaged: tuple[DamagedTileError, ...] = field(default=(), eq=False)


@define(kw_only=True, eq=False)
class Compactor:
    """One compaction of the segments that earlier stores wrote."""

    _directory: Directory
    _index: SegmentIndex
    _reader: SegmentReader
    _writer: SegmentWriter
    _locations: LocationCache
    _append: Callable[[Sequence[TileId], Sequence[bytes], Sequence[bytes]], list[BlobLocation]]
    """Appends tiles with these bytes and digests."""

    def run(self, live_share_min: float) -> list[CompactedSegment]:
        """Remove dead segments, then compact sparse ones: a full disk has no room for copies."""
        live = dict(self._index.sum_live_bytes())
        sizes = dict(self._list_sizes())
        newest = max(sizes, default=0)
        # An open envelope is repeated with the bytes that were signed, also if its tiles were
        # captured again: nothing refers to these bytes but the envelope.
        needed = set(self._index.list_envelope_segments())
        old = [
            number
            for number in sizes
            if number not in needed and not self._writer.is_own_segment(number)
        ]
        dead = [number for number in old if number not in live]
        sparse = [
            number
            for number in old
            if number in live and live[number] < live_share_min * sizes[number]
        ]
        done = [self._compact_segment(number, sizes) for number in dead if number != newest]
        if newest in dead or sparse:
            # A segment number must not be reused, so create a higher one before removing the
            # newest.
            self._writer.ensure_segment()
        if newest in dead:
            done.append(self._compact_segment(newest, sizes))
        sparse.sort(key=lambda number: live[number])
        return done + [self._compact_segment(number, sizes) for number in sparse]

    def _list_sizes(self) -> Iterator[tuple[int, int]]:
        for number in sorted(filter(None, map(parse_segment_number, self._directory.names()))):
            file = self._directory.find_file(segment_name(number))
            if file is not None:
                with file:
                    yield number, file.size()

    def _compact_segment(self, number: int, sizes: Mapping[int, int]) -> CompactedSegment:
        moved_tiles = moved_bytes = after = 0
        damaged: list[DamagedTileError] = []
        while page := self._index.list_blobs(number, after_offset=after, limit=_COMPACTION_PAGE):
            after = page[-1][1].location[1]
            moves = list(self._copy_live(page, damaged))
            if not moves:
                continue
            self._writer.flush()
            moved_tiles += self._index.move(moves)
            moved_bytes += sum(blob.length for _, blob, _ in moves)
            self._locations.drop(tile_id for tile_id, _, _ in moves)
        removed = not self._index.list_blobs(number, after_offset=0, limit=1)
        if removed:
            self._directory.unlink(segment_name(number))
            self._directory.sync()
            self._reader.forget(number)
        return CompactedSegment(
            segment=number,
            size_bytes=sizes[number],
            removed=removed,
            moved_tiles=moved_tiles,
            moved_bytes=moved_bytes,
            damaged=tuple(damaged),
        )

    def _copy_live(
        self, page: Iterable[tuple[TileId, BlobRef]], damaged: list[DamagedTileError]
    ) -> Iterator[tuple[TileId, BlobRef, BlobRef]]:
        for tile_id, blob in page:
            try:
                payload = self._reader.read_verified(tile_id, blob)
            except DamagedTileError as error:
                damaged.append(error)
            else:
                (location,) = self._append([tile_id], [payload], [bytes.fromhex(blob.sha256)])
                yield tile_id, blob, evolve(blob, location=location)


_PAGE = 256


def verify_segments(
    *, directory: Directory, index: SegmentIndex, read: Callable[[TileId, BlobRef], bytes]
) -> Iterator[VerificationFinding]:
    """Yield the damage of each segment, then its totals; memory holds one page of rows.

    Other processes may write meanwhile. Segments that they create are checked too, since tiles
    move there.
    """
    checked: set[int] = set()
    while True:
        on_disk = set(filter(None, map(parse_segment_number, directory.names())))
        with_rows = {segment for segment, _ in index.sum_live_bytes()}
        new = (on_disk | with_rows) - checked
        if not new:
            return
        checked |= new
        yield from _verify_some(sorted(new), with_rows, directory, index, read)


def _verify_some(
    segments: Iterable[int],
    with_rows: Container[int],
    directory: Directory,
    index: SegmentIndex,
    read: Callable[[TileId, BlobRef], bytes],
) -> Iterator[VerificationFinding]:
    for segment in segments:
        live_tiles = live_bytes = record_bytes_sum = 0
        for tile_id, blob in _iter_blobs(index, segment):
            problem = find_problem(tile_id, blob, read)
            if problem is None:
                live_tiles += 1
                live_bytes += blob.length
                record_bytes_sum += record_size(tile_id, blob)
            elif index.locate(tile_id) == blob:  # otherwise it was moved or deleted in the meantime
                yield DamagedBlob(tile_id=tile_id, segment=segment, problem=problem)
        try:
            header, size_bytes = _read_header_and_size(directory, segment)
        except StorageError as error:
            yield DamagedSegment(segment=segment, problem=str(error))
            continue
        # A new segment without rows is the remains of a crash: dead, not damaged.
        if segment in with_rows and size_bytes and header != FILE_HEADER:
            yield DamagedSegment(segment=segment, problem="its file header is damaged")
        yield SegmentTally(
            segment=segment,
            size_bytes=size_bytes,
            live_tiles=live_tiles,
            live_bytes=live_bytes,
            dead_bytes=max(0, size_bytes - len(FILE_HEADER) - record_bytes_sum),
        )


def _iter_blobs(index: SegmentIndex, segment: int) -> Iterator[tuple[TileId, BlobRef]]:
    after = 0
    while page := index.list_blobs(segment, after_offset=after, limit=_PAGE):
        yield from page
        after = page[-1][1].location[1]


def find_problem(
    tile_id: TileId, blob: BlobRef, read: Callable[[TileId, BlobRef], bytes]
) -> str | None:
    """Return why a tile is damaged; ``None`` if it is intact."""
    try:
        read(tile_id, blob)
    except DamagedTileError as error:
        return error.problem
    except StorageError as error:
        return str(error)
    return None


def _read_header_and_size(directory: Directory, segment: int) -> tuple[bytes, int]:
    """Return ``b""`` and 0 for a missing file: it is reported for each of its tiles."""
    file = directory.find_file(segment_name(segment))
    if file is None:
        return b"", 0
    with file:
        return file.pread(len(FILE_HEADER), 0), file.size()
