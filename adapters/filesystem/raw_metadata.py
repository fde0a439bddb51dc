"""What the downloader knows of an open raw partition: its rows, seen as metadata and as an index.

To look one tile up reads the file. A download does not do that: it asks for all tiles once, when it
is resumed. What only makes sense in a cache (votes, uploads, eviction) is refused.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import NoReturn

from attrs import define, field

from tileferry.adapters.filesystem.raw_rows import RawRows
from tileferry.application.ports.clock import Clock
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions.manifest import ManifestEntry
from tileferry.domain.runs import RunId
from tileferry.domain.tiles import (
    BBox,
    BlobRef,
    FreshnessLabel,
    FreshnessRule,
    NewTile,
    TileCoverage,
    TileId,
    TileMetadata,
    VotingStatus,
)
from tileferry.domain.tiles.area import Area


@define(kw_only=True, eq=False)
class RawTileMetadata:
    """The metadata store and the blob index of one open raw partition."""

    _rows: RawRows
    _run_id: RunId
    _area: Area
    _clock: Clock
    _freshness: FreshnessRule
    _waiting: list[ManifestEntry] = field(factory=list, init=False)

    def insert_metadata(self, tile: NewTile) -> FreshnessLabel:
        """Label a tile and keep it for the next ``flush``."""
        if tile.voting_status is not VotingStatus.TRUSTED:
            _refuse("insert_metadata", tile.voting_status, "is not of the provider")
        if not self._area.coverage.contains(tile.tile_id):
            _refuse("insert_metadata", str(tile.tile_id), "is not of the run's area")
        label = self._freshness.judge(
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
        """Write what waits, durably."""
        self.detach()()

    def detach(self) -> Callable[[], None]:
        """Set aside what waits; the result writes it."""
        group, self._waiting = self._waiting, []
        return partial(self._rows.append, group)

    def get_metadata(self, tile_id: TileId) -> TileMetadata | None:
        """Look a tile up."""
        if tile_id not in self._rows.visible:
            return None
        found = (entry for entry in self._rows.entries() if entry.tile_id == tile_id)
        return next(map(self._shown, found), None)

    def query_by_bbox(
        self, bbox: BBox, zoom_levels: Sequence[int], *, source: str | None = None
    ) -> Iterator[TileMetadata]:
        """Yield the visible tiles of an area, in the order in which they came."""
        area = TileCoverage(bbox=bbox, zoom_levels=zoom_levels)
        for entry in self._rows.entries():
            if area.contains(entry.tile_id) and source in {None, entry.tile_id.source}:
                yield self._shown(entry)

    def mark_used(self, tile_ids: Sequence[TileId]) -> None:
        """Do nothing: nothing is ever evicted from a raw partition."""

    def pending_uploads(self, flight_id: str) -> Iterator[TileMetadata]:  # noqa: ARG002  # of none
        """Yield nothing: all that is here came from the provider."""
        return iter(())

    def mark_uploaded(self, *tile_ids: TileId) -> None:
        """Refuse."""
        _refuse("mark_uploaded", len(tile_ids), "a raw partition is not uploaded")

    def update_voting_status(self, tile_id: TileId, status: VotingStatus) -> None:
        """Refuse."""
        _refuse("update_voting_status", f"{tile_id} to {status}", "a raw partition has no votes")

    def increment_upload_attempts(self, tile_id: TileId, attempt: str | None = None) -> int:
        """Refuse."""
        value = f"{tile_id}, attempt {attempt}"
        _refuse("increment_upload_attempts", value, "a raw partition is not uploaded")

    # As the index of the store of bytes

    def locate(self, tile_id: TileId) -> BlobRef | None:
        """Return where a visible tile's bytes are."""
        found = self.get_metadata(tile_id)
        return None if found is None else found.blob

    def last_segment(self) -> int:
        """Return the highest number among the segments that rows name; 0 for none."""
        return self._rows.last_segment

    def live_bytes(self) -> Sequence[tuple[int, int]]:
        """Return each segment that has visible blobs, with the sum of their lengths."""
        sums: dict[int, int] = {}
        for entry in self._rows.entries():
            sums[entry.blob.segment] = sums.get(entry.blob.segment, 0) + entry.blob.length
        return sorted(sums.items())

    def blobs_in(
        self, segment: int, *, after_offset: int, limit: int
    ) -> Sequence[tuple[TileId, BlobRef]]:
        """Return visible blobs of a segment beyond an offset, in the order of their offsets."""
        found = [
            (entry.tile_id, entry.blob)
            for entry in self._rows.entries()
            if entry.blob.segment == segment and entry.blob.offset > after_offset
        ]
        return sorted(found, key=lambda item: item[1].offset)[:limit]

    def forget(self, tile_ids: Sequence[TileId]) -> Sequence[BlobRef]:
        """Refuse."""
        _refuse("forget", len(tile_ids), "a raw partition loses no tile")

    def move(self, moves: Sequence[tuple[TileId, BlobRef, BlobRef]]) -> int:
        """Refuse."""
        _refuse("move", len(moves), "a raw partition is not compacted")

    def _shown(self, entry: ManifestEntry) -> TileMetadata:
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
    raise InvalidValueError(field=action, value=value, problem=problem)
