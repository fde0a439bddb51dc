"""Gets dead bytes out of the cache: live records move to the newest segment, the old file goes.

Whatever happens in between, each row names a durable record: copies are durable before rows move,
rows have moved durably before a file goes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import define, field, frozen

from tileferry.adapters.filesystem.files import Directory
from tileferry.adapters.filesystem.locations import LocationCache
from tileferry.adapters.filesystem.segment_format import segment_name, segment_number
from tileferry.adapters.filesystem.segment_reader import SegmentReader
from tileferry.adapters.filesystem.segment_writer import SegmentWriter
from tileferry.application.ports.tile_store import BlobIndex
from tileferry.domain.errors import DamagedTileError
from tileferry.domain.tiles import BlobRef, TileId

_PAGE = 256


@frozen(kw_only=True)
class CompactedSegment:
    """What became of one segment."""

    segment: int
    size_bytes: int
    removed: bool
    """A segment with damaged tiles stays: their rows still name it."""
    moved_tiles: int = 0
    moved_bytes: int = 0
    damaged: tuple[DamagedTileError, ...] = field(default=(), eq=False)


@define(kw_only=True, eq=False)
class Compactor:
    """One pass over the segments that an earlier store left."""

    _directory: Directory
    _index: BlobIndex
    _reader: SegmentReader
    _writer: SegmentWriter
    _locations: LocationCache
    _append: Callable[[TileId, bytes], BlobRef]

    def run(self, live_share_min: float) -> list[CompactedSegment]:
        """Remove the dead segments first, for a full disk has no room to copy anything."""
        live = dict(self._index.live_bytes())
        sizes = dict(self._sizes())
        newest = max(sizes, default=0)
        old = [number for number in sizes if not self._writer.is_own(number)]
        dead = [number for number in old if number not in live]
        sparse = [
            number
            for number in old
            if number in live and live[number] < live_share_min * sizes[number]
        ]
        done = [self._compacted(number, sizes) for number in dead if number != newest]
        if newest in dead or sparse:
            # No number may be used twice, so one above the newest is taken before it goes.
            self._writer.ensure_segment()
        if newest in dead:
            done.append(self._compacted(newest, sizes))
        sparse.sort(key=lambda number: live[number])
        return done + [self._compacted(number, sizes) for number in sparse]

    def _sizes(self) -> Iterator[tuple[int, int]]:
        for number in sorted(filter(None, map(segment_number, self._directory.names()))):
            file = self._directory.find_file(segment_name(number))
            if file is not None:
                with file:
                    yield number, file.size()

    def _compacted(self, number: int, sizes: Mapping[int, int]) -> CompactedSegment:
        moved_tiles = moved_bytes = after = 0
        damaged: list[DamagedTileError] = []
        while page := self._index.blobs_in(number, after_offset=after, limit=_PAGE):
            after = page[-1][1].offset
            moves = list(self._copied(page, damaged))
            if not moves:
                continue
            self._writer.flush()
            moved_tiles += self._index.move(moves)
            moved_bytes += sum(blob.length for _, blob, _ in moves)
            self._locations.drop(tile_id for tile_id, _, _ in moves)
        removed = not self._index.blobs_in(number, after_offset=0, limit=1)
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

    def _copied(
        self, page: Iterable[tuple[TileId, BlobRef]], damaged: list[DamagedTileError]
    ) -> Iterator[tuple[TileId, BlobRef, BlobRef]]:
        for tile_id, blob in page:
            try:
                payload = self._reader.read_verified(tile_id, blob)
            except DamagedTileError as error:
                damaged.append(error)
            else:
                yield tile_id, blob, self._append(tile_id, payload)
