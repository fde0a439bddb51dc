"""The tiles of an open raw partition: rows in an append-only file, and the store on top of it.

A row is a checksummed line with the tile's manifest entry. Memory holds one bit per tile. A tile
that was fetched again after a crash has several rows, of which the last one counts.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from logging import Logger
from typing import NoReturn

from attrs import define, field, frozen

from tileferry.adapters.filesystem.checksummed_lines import frame_line, read_lines
from tileferry.adapters.filesystem.files import Directory, OpenFile
from tileferry.adapters.filesystem.segments.format import record_size
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.tiles import TileCatalogue
from tileferry.domain.errors import InvalidValueError, MisuseError, StorageError
from tileferry.domain.partitions.manifest import ManifestEntry
from tileferry.domain.partitions.manifest_format import format_entry, parse_entry
from tileferry.domain.runs import RunId
from tileferry.domain.text import quote_value
from tileferry.domain.tiles import (
    BBox,
    BlobRef,
    FreshnessLabel,
    FreshnessRule,
    NewTile,
    TileCoverage,
    TileId,
    TileMetadata,
    TileSet,
    VotingStatus,
)
from tileferry.domain.tiles.area import Area

_NAME = "rows"


@frozen
class _Row:
    start: int
    end: int
    entry: ManifestEntry | None
    """``None`` if the line is damaged."""


@define(kw_only=True, eq=False)
class RawRows:
    """The file of rows. Call ``load`` before any other method."""

    _directory: Directory
    _coverage: TileCoverage
    _segment_sizes: Mapping[int, int]
    """Size of each segment when the partition was opened."""
    visible: TileSet = field(init=False)
    last_segment: int = field(default=0, init=False)
    """The highest segment number in any row, even if the segment's bytes are missing."""
    _foreign_segments: int | None = field(default=None, init=False)
    """The last segment of earlier attempts; ``None`` until all rows have been read."""
    _last_rows: dict[TileId, int] = field(factory=dict, init=False)
    """Offset of the valid row, for tiles with several rows."""
    _end: int = field(default=0, init=False)
    _file: OpenFile | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.visible = TileSet(self._coverage)

    def load(self, logger: Logger) -> None:
        """Read the rows of earlier attempts, and open the file for appending."""
        lost = 0
        for row in self._rows():
            self._end = row.end
            if row.entry is not None:
                self.last_segment = max(self.last_segment, row.entry.blob.location[0])
            if row.entry is not None and self._has_bytes(row.entry):
                self._note(row.entry, row.start)
            else:
                lost += 1
        if lost:
            logger.warning(
                "%s: %d rows are damaged or lack their bytes; their tiles are fetched again",
                self._directory.path,
                lost,
                extra={"kind": "partition.rows_lost", "rows": lost},
            )
        self._foreign_segments = max(self.last_segment, *self._segment_sizes, 0)
        self._file = self._directory.open_file(_NAME, create=True)
        self._directory.sync()
        self._file.truncate(self._end)  # a torn tail was never confirmed
        os.lseek(self._file.fd, self._end, os.SEEK_SET)

    def entries(self) -> Iterator[ManifestEntry]:
        """Yield each visible tile once, in the order of arrival."""
        for row in self._rows():
            entry = row.entry
            if entry is None or not self._has_bytes(entry):
                continue
            if self._last_rows.get(entry.tile_id, row.start) == row.start:
                yield entry

    def append(self, entries: Sequence[ManifestEntry]) -> None:
        """Append rows durably. After an error the file's state is unknown, so it is closed."""
        if self._file is None:
            raise StorageError(
                action="write to",
                path=str(self._directory.path / _NAME),
                problem="it is closed, or an earlier write to it failed",
                remedy="reopen the raw partition: confirmed tiles are kept",
            )
        if not entries:
            return
        lines = [frame_line(format_entry(entry).removesuffix(b"\n")) for entry in entries]
        try:
            self._file.write_vector(lines)
            self._file.fdatasync()
        except BaseException:
            self.close()
            raise
        for entry, line in zip(entries, lines, strict=True):
            self._note(entry, self._end)
            self._end += len(line)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _rows(self) -> Iterator[_Row]:
        file = self._directory.find_file(_NAME)
        if file is None:
            return
        with file:
            for line in read_lines(file):
                yield _Row(line.start, line.end, self._parse_entry(line.content))

    def _parse_entry(self, content: bytes | None) -> ManifestEntry | None:
        try:
            entry = None if content is None else parse_entry(content + b"\n", "row")
        except InvalidValueError:
            return None
        return entry if entry is not None and self._coverage.contains(entry.tile_id) else None

    def _has_bytes(self, entry: ManifestEntry) -> bool:
        """Return whether a tile's record lies within its segment, judging by sizes only."""
        blob = entry.blob
        segment, offset = blob.location
        if self._foreign_segments is not None and segment > self._foreign_segments:
            return True  # written by this attempt, before its row
        size = self._segment_sizes.get(segment, 0)
        return offset + record_size(entry.tile_id, blob) <= size

    def _note(self, entry: ManifestEntry, start: int) -> None:
        if entry.tile_id in self.visible:
            self._last_rows[entry.tile_id] = start
        self.visible.add(entry.tile_id)
        self.last_segment = max(self.last_segment, entry.blob.location[0])


@define(kw_only=True, eq=False)
class RawTileMetadata(TileCatalogue):
    """The metadata store and the blob index of one open raw partition."""

    _rows: RawRows
    _run_id: RunId
    _area: Area
    _clock: Clock
    freshness: FreshnessRule
    _waiting: list[ManifestEntry] = field(factory=list, init=False)

    def insert_metadata(self, tile: NewTile) -> FreshnessLabel:
        """Label a tile and buffer it until the next ``flush``."""
        if tile.voting_status is not VotingStatus.TRUSTED:
            _refuse("insert_metadata", tile.voting_status, "is not a tile of the provider")
        if not self._area.coverage.contains(tile.tile_id):
            _refuse("insert_metadata", str(tile.tile_id), "is not in the run's area")
        label = self.freshness.judge(
            tile.tile_id, tile.sector_class, produced_at=tile.produced_at, now=self._now()
        )
        entry = ManifestEntry(
            tile_id=tile.tile_id,
            blob=tile.blob,
            resolution_m_per_px=tile.resolution_m_per_px,
            produced_at=tile.produced_at.astimezone(UTC),
            freshness=label,
        )
        self._waiting.append(entry)
        return label

    def flush(self) -> None:
        """Write the buffered tiles, durably."""
        self.detach()()

    def detach(self) -> Callable[[], None]:
        """Take the buffered tiles; return a function that writes them."""
        group, self._waiting = self._waiting, []
        return partial(self._rows.append, group)

    def get_metadata(self, tile_id: TileId) -> TileMetadata | None:
        if tile_id not in self._rows.visible:
            return None
        found = (entry for entry in self._rows.entries() if entry.tile_id == tile_id)
        return next(map(self._to_metadata, found), None)

    def query_by_bbox(
        self, bbox: BBox, zoom_levels: Sequence[int], *, source: str | None = None
    ) -> Iterator[TileMetadata]:
        """Yield the visible tiles of an area, in the order of arrival."""
        area = TileCoverage(bbox=bbox, zoom_levels=zoom_levels)
        for entry in self._rows.entries():
            if area.contains(entry.tile_id) and source in {None, entry.tile_id.source}:
                yield self._to_metadata(entry)

    def find_stored(self, tile_ids: Sequence[TileId]) -> dict[TileId, TileMetadata]:
        """Return the visible ones of these tiles."""
        wanted = {tile_id for tile_id in tile_ids if tile_id in self._rows.visible}
        if not wanted:  # most downloads are new, and reading the rows takes time
            return {}
        found = (entry for entry in self._rows.entries() if entry.tile_id in wanted)
        return {entry.tile_id: self._to_metadata(entry) for entry in found}

    def mark_used(self, tile_ids: Sequence[TileId], *, confirmed: bool = False) -> None:
        """Do nothing: tiles are never evicted from a raw partition, which is written once."""

    # The segment index

    def locate(self, tile_id: TileId) -> BlobRef | None:
        """Return the location of a visible tile's bytes."""
        found = self.get_metadata(tile_id)
        return None if found is None else found.blob

    def get_last_segment(self) -> int:
        """Return the highest segment number in any row; 0 if there are no rows."""
        return self._rows.last_segment

    def list_envelope_segments(self) -> Sequence[int]:
        """Return nothing: a raw partition has no uploads."""
        return ()

    def sum_live_bytes(self) -> Sequence[tuple[int, int]]:
        """Return each segment with visible blobs, and the sum of their lengths."""
        sums: dict[int, int] = {}
        for entry in self._rows.entries():
            segment = entry.blob.location[0]
            sums[segment] = sums.get(segment, 0) + entry.blob.length
        return sorted(sums.items())

    def list_blobs(
        self, segment: int, *, after_offset: int, limit: int
    ) -> Sequence[tuple[TileId, BlobRef]]:
        """Return visible blobs of a segment after an offset, sorted by offset."""
        found = [
            (entry.tile_id, entry.blob)
            for entry in self._rows.entries()
            if (segment, after_offset) < entry.blob.location < (segment + 1, 0)
        ]
        return sorted(found, key=lambda item: item[1].location)[:limit]

    def forget(self, tile_ids: Sequence[TileId]) -> Sequence[BlobRef]:
        _refuse("forget", len(tile_ids), "tiles cannot be removed from a raw partition")

    def move(self, moves: Sequence[tuple[TileId, BlobRef, BlobRef]]) -> int:
        _refuse("move", len(moves), "a raw partition is not compacted")

    def _to_metadata(self, entry: ManifestEntry) -> TileMetadata:
        now = self._now()
        return TileMetadata(
            tile_id=entry.tile_id,
            flight_id=self._run_id,
            produced_at=entry.produced_at,
            resolution_m_per_px=entry.resolution_m_per_px,
            sector_class=self._area.sector_class,
            freshness=entry.freshness,
            blob=entry.blob,
            voting_status=VotingStatus.TRUSTED,
            stored_at=now,
            last_used_at=now,
        )

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now(), UTC)


def _refuse(action: str, value: object, problem: str) -> NoReturn:
    raise MisuseError(what=action, problem=f"{problem} (got {quote_value(value)})")
