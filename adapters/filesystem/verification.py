"""Checks every bit that a row vouches for, and counts the bytes that none does."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from attrs import frozen

from tileferry.adapters.filesystem.files import Directory
from tileferry.adapters.filesystem.segment_format import (
    FILE_HEADER,
    record_bytes,
    segment_name,
    segment_number,
)
from tileferry.application.ports.tile_store import BlobIndex
from tileferry.domain.errors import DamagedTileError, StorageError
from tileferry.domain.tiles import BlobRef, TileId

_PAGE = 256


@frozen(kw_only=True)
class DamagedBlob:
    """A visible tile that cannot be read as it was stored."""

    tile_id: TileId
    blob: BlobRef
    problem: str


@frozen(kw_only=True)
class DamagedSegment:
    """A segment whose file is not as it was made; its tiles are judged one by one."""

    segment: int
    problem: str


@frozen(kw_only=True)
class SegmentTally:
    """What a segment holds; dead bytes are of tiles deleted, replaced, or never confirmed."""

    segment: int
    size_bytes: int
    live_tiles: int
    live_bytes: int
    dead_bytes: int


Finding: TypeAlias = DamagedBlob | DamagedSegment | SegmentTally


def verify_segments(
    *, directory: Directory, index: BlobIndex, read: Callable[[TileId, BlobRef], bytes]
) -> Iterator[Finding]:
    """Yield what is wrong with each segment, then its tally; memory holds one page of rows."""
    on_disk = set(filter(None, map(segment_number, directory.names())))
    with_rows = {segment for segment, _ in index.live_bytes()}
    for segment in sorted(on_disk | with_rows):
        live_tiles = live_bytes = record_bytes_sum = 0
        for tile_id, blob in _blobs(index, segment):
            problem = problem_of(tile_id, blob, read)
            if problem is None:
                live_tiles += 1
                live_bytes += blob.length
                record_bytes_sum += record_bytes(tile_id, blob)
            elif index.locate(tile_id) == blob:  # else it was moved or deleted meanwhile
                yield DamagedBlob(tile_id=tile_id, blob=blob, problem=problem)
        try:
            header, size_bytes = _header_and_size(directory, segment)
        except StorageError as error:
            yield DamagedSegment(segment=segment, problem=str(error))
            continue
        # Without rows it is what a crash leaves of a new segment: dead, not damaged.
        if segment in with_rows and size_bytes and header != FILE_HEADER:
            yield DamagedSegment(segment=segment, problem="its file header is damaged")
        yield SegmentTally(
            segment=segment,
            size_bytes=size_bytes,
            live_tiles=live_tiles,
            live_bytes=live_bytes,
            dead_bytes=max(0, size_bytes - len(FILE_HEADER) - record_bytes_sum),
        )


def _blobs(index: BlobIndex, segment: int) -> Iterator[tuple[TileId, BlobRef]]:
    after = 0
    while page := index.blobs_in(segment, after_offset=after, limit=_PAGE):
        yield from page
        after = page[-1][1].offset


def problem_of(
    tile_id: TileId, blob: BlobRef, read: Callable[[TileId, BlobRef], bytes]
) -> str | None:
    """Return why a tile cannot be read as it was stored; ``None`` when it can."""
    try:
        read(tile_id, blob)
    except DamagedTileError as error:
        return error.problem
    except StorageError as error:
        return str(error)
    return None


def _header_and_size(directory: Directory, segment: int) -> tuple[bytes, int]:
    """Return nothing and 0 of a file that is missing: its tiles say so."""
    file = directory.find_file(segment_name(segment))
    if file is None:
        return b"", 0
    with file:
        return file.pread(len(FILE_HEADER), 0), file.size()
