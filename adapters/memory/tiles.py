"""In-memory blob index, absent tiles and tile metadata store."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any

from attrs import define, evolve, field

from tileferry.application.ports.clock import Clock
from tileferry.application.ports.inventory import TileGroup, TileKey
from tileferry.application.ports.tiles import TileMetadataStore
from tileferry.domain.errors import TileNotFoundError
from tileferry.domain.tiles import (
    BBox,
    BlobRef,
    FreshnessLabel,
    FreshnessRule,
    NewTile,
    SectorClass,
    TileCoverage,
    TileId,
    TileMetadata,
    VotingStatus,
    build_capture_source,
    move_status,
    replaces,
)
from tileferry.domain.tiles.origin import TileOrigin
from tileferry.domain.tiles.refusal import Gate, Refusal


@define(eq=False)
class MemoryBlobIndex:
    """Blob index without a database; ``add`` corresponds to the commit of a row."""

    _blobs: dict[TileId, BlobRef] = field(factory=dict, init=False)
    _lock: Lock = field(factory=Lock, init=False)
    envelope_segments: Sequence[int] = ()

    def list_envelope_segments(self) -> Sequence[int]:
        """Return ``envelope_segments``: there are no envelopes here."""
        return self.envelope_segments

    def add(self, tile_id: TileId, blob: BlobRef) -> None:
        """Make a tile visible, or replace its blob."""
        with self._lock:
            self._blobs[tile_id] = blob

    def locate(self, tile_id: TileId) -> BlobRef | None:
        """Return the location of a visible tile's bytes."""
        return self._blobs.get(tile_id)

    def forget(self, tile_ids: Sequence[TileId]) -> Sequence[BlobRef]:
        """Make tiles invisible; return their blobs."""
        with self._lock:
            return [self._blobs.pop(tile_id) for tile_id in tile_ids if tile_id in self._blobs]

    def list_blobs(
        self, segment: int, *, after_offset: int, limit: int
    ) -> Sequence[tuple[TileId, BlobRef]]:
        """Return the visible blobs of a segment after an offset, sorted by offset."""
        with self._lock:
            blobs = list(self._blobs.items())
        return _list_blobs(blobs, segment, after_offset, limit)

    def get_last_segment(self) -> int:
        """Return the highest segment number with visible blobs; 0 if there are none."""
        return max((segment for segment, _ in self.sum_live_bytes()), default=0)

    def sum_live_bytes(self) -> Sequence[tuple[int, int]]:
        """Return each segment's number and total size of visible blobs."""
        with self._lock:
            return _sum_live_bytes(self._blobs.values())

    def move(self, moves: Sequence[tuple[TileId, BlobRef, BlobRef]]) -> int:
        """Move tiles to new locations unless they left the old one; return how many moved."""
        moved = 0
        with self._lock:
            for tile_id, old, new in moves:
                if self._blobs.get(tile_id) == old:
                    self._blobs[tile_id] = new
                    moved += 1
        return moved


@define
class MemoryAbsentTiles:
    """Absent tiles in a dictionary."""

    _absent: dict[TileId, datetime] = field(factory=dict, init=False)

    def find_absent(self, tile_ids: Sequence[TileId]) -> dict[TileId, datetime]:
        """Return when each of these tiles was last absent."""
        return {tile_id: self._absent[tile_id] for tile_id in tile_ids if tile_id in self._absent}

    def query_absent(
        self, coverage: TileCoverage, *, source: str
    ) -> Iterator[tuple[TileId, datetime]]:
        """Yield the absent tiles of an area."""
        for tile_id, at in sorted(self._absent.items()):
            if tile_id.source == source and coverage.contains(tile_id):
                yield tile_id, at

    def record_absent(self, tile_ids: Sequence[TileId], *, at: datetime) -> None:
        """Record that the provider did not have these tiles."""
        self._absent |= dict.fromkeys(tile_ids, at)

    def forget_absent(self, tile_ids: Sequence[TileId]) -> None:
        """Forget that these tiles were absent."""
        for tile_id in tile_ids:
            self._absent.pop(tile_id, None)


@define
class MemoryRefusedTiles:
    """Refused tiles in a dictionary."""

    _refused: dict[tuple[TileId, SectorClass], Refusal] = field(factory=dict, init=False)

    def find_refused(self, tile_ids: Sequence[TileId]) -> Sequence[Refusal]:
        """Return the refusals of these tiles, sorted by tile and sector."""
        return [self._refused[key] for key in sorted(self._refused) if key[0] in tile_ids]

    def query_refused(
        self, coverage: TileCoverage, *, source: str, sector: SectorClass
    ) -> Iterator[Refusal]:
        """Yield the refusals of an area that concern a sector."""
        for (tile_id, refused_for), one in sorted(self._refused.items()):
            concerns = one.gate is Gate.RESOLUTION or refused_for is sector
            if tile_id.source == source and coverage.contains(tile_id) and concerns:
                yield one

    def record_refused(self, refusals: Sequence[Refusal]) -> None:
        """Record refusals; the last one of a tile and a sector replaces earlier ones."""
        self._refused |= {(one.tile_id, one.sector_class): one for one in refusals}


@define(eq=False)
class MemoryTileOrigins:
    """Origins in a dictionary."""

    _origins: dict[TileId, TileOrigin] = field(factory=dict, init=False)

    def find_origins(self, tile_ids: Sequence[TileId]) -> Mapping[TileId, TileOrigin]:
        """Return the recorded origins of these tiles."""
        return {tile: self._origins[tile] for tile in tile_ids if tile in self._origins}

    def record_origins(self, origins: Sequence[TileOrigin]) -> None:
        """Record origins; the last one of a tile replaces earlier ones."""
        self._origins |= {one.tile_id: one for one in origins}


@define(kw_only=True, eq=False)
class MemoryTileTables:
    """What a database would hold: stores with the same tables are clients of one database."""

    tiles: dict[TileId, TileMetadata] = field(factory=dict)
    last_attempts: dict[TileId, str | None] = field(factory=dict)
    clock: Clock | None = None
    """Says when a tile was stored or used; without it, the clock of each client does."""


def _commit_at_once(work: Callable[[], None]) -> None:
    work()


@define(kw_only=True)
class MemoryTileMetadataStore(TileMetadataStore):
    """Tile metadata in a dictionary. Inserted tiles become visible with ``flush``."""

    clock: Clock
    freshness: FreshnessRule = field(factory=FreshnessRule)
    index: MemoryBlobIndex | None = None
    """Index to which the blobs of visible tiles are added."""
    tables: MemoryTileTables = field(factory=MemoryTileTables)
    commit: Callable[[Callable[[], None]], None] = _commit_at_once
    """Runs the commit of a group. It may raise before or after, as a lost connection does."""
    _waiting: list[tuple[NewTile, FreshnessLabel]] = field(factory=list, init=False)
    _tiles: dict[TileId, TileMetadata] = field(init=False)
    _last_attempts: dict[TileId, str | None] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._tiles, self._last_attempts = self.tables.tiles, self.tables.last_attempts

    def insert_metadata(self, tile: NewTile) -> FreshnessLabel:
        """Buffer a tile for the next ``flush``; return its freshness label."""
        label = self.freshness.judge(
            tile.tile_id, tile.sector_class, produced_at=tile.produced_at, now=_read(self.clock)
        )
        self._waiting.append((tile, label))
        return label

    def flush(self) -> None:
        """Make the buffered tiles visible."""
        self.detach()()

    def detach(self) -> Callable[[], None]:
        """Take the buffered tiles; return a function that makes them visible."""
        group, self._waiting = self._waiting, []
        return partial(self._write, group)

    def _write(self, group: list[tuple[NewTile, FreshnessLabel]]) -> None:
        if not group:
            return
        try:
            self.commit(partial(self._show, group))
        except BaseException:
            self._waiting = group + self._waiting
            raise

    def _show(self, group: list[tuple[NewTile, FreshnessLabel]]) -> None:
        for tile, label in group:
            existing = self._tiles.get(tile.tile_id)
            if existing is None or replaces(tile, existing):
                self._tiles[tile.tile_id] = self._to_metadata(tile, label, existing)
                if self.index is not None:
                    self.index.add(tile.tile_id, tile.blob)

    def _to_metadata(
        self, tile: NewTile, label: FreshnessLabel, existing: TileMetadata | None
    ) -> TileMetadata:
        now = self._now()
        return TileMetadata(
            tile_id=tile.tile_id,
            flight_id=tile.flight_id,
            produced_at=tile.produced_at,
            resolution_m_per_px=tile.resolution_m_per_px,
            sector_class=tile.sector_class,
            freshness=label,
            blob=tile.blob,
            voting_status=tile.voting_status,
            upload_attempts=0 if existing is None else existing.upload_attempts,
            stored_at=now,
            last_used_at=now,
            validators=tile.validators,
        )

    def get_metadata(self, tile_id: TileId) -> TileMetadata | None:
        return self._tiles.get(tile_id)

    def all_tiles(self) -> list[TileMetadata]:
        return list(self._tiles.values())

    def query_by_bbox(
        self, bbox: BBox, zoom_levels: Sequence[int], *, source: str | None = None
    ) -> Iterator[TileMetadata]:
        """Yield the visible tiles of an area."""
        area = TileCoverage(bbox=bbox, zoom_levels=zoom_levels)
        for tile in sorted(self._tiles, key=lambda tile: (tile.zoom, tile.x, tile.y, tile.source)):
            if area.contains(tile) and source in {None, tile.source}:
                yield self._tiles[tile]

    def find_stored(self, tile_ids: Sequence[TileId]) -> dict[TileId, TileMetadata]:
        """Return the visible ones of these tiles."""
        return {tile_id: self._tiles[tile_id] for tile_id in tile_ids if tile_id in self._tiles}

    def pending_uploads(self, flight_id: str) -> Iterator[TileMetadata]:
        """Yield a flight's pending tiles."""
        for tile_id in sorted(self._tiles):
            tile = self._tiles[tile_id]
            if tile.flight_id == flight_id and tile.voting_status is VotingStatus.PENDING:
                yield tile

    def mark_uploaded(self, *tile_ids: TileId) -> None:
        """Mark tiles as uploaded; idempotent."""
        moved = {
            tile_id: move_status(
                tile_id, self._get_tile(tile_id).voting_status, VotingStatus.UPLOADED
            )
            for tile_id in tile_ids
        }
        for tile_id, status in moved.items():
            self.update_voting_status(tile_id, status)

    def update_voting_status(self, tile_id: TileId, status: VotingStatus) -> None:
        """Change a tile's status if the domain allows it."""
        tile = self._get_tile(tile_id)
        moved = move_status(tile_id, tile.voting_status, status)
        self._tiles[tile_id] = evolve(tile, voting_status=moved)

    def increment_upload_attempts(self, tile_id: TileId, attempt: str | None = None) -> int:
        """Count a rejected upload; return the new count. The same ``attempt`` is counted once."""
        tile = self._get_tile(tile_id)
        is_new = attempt is None or self._last_attempts.get(tile_id) != attempt
        self._last_attempts[tile_id] = attempt
        counted = evolve(tile, upload_attempts=tile.upload_attempts + is_new)
        self._tiles[tile_id] = counted
        return counted.upload_attempts

    def mark_used(self, tile_ids: Sequence[TileId], *, confirmed: bool = False) -> None:
        """Set the tiles' last use, and their confirmation if there was one, to now."""
        now = self._now()
        for tile_id in tile_ids:
            tile = self._tiles.get(tile_id)
            if tile is not None:
                at = now if confirmed else tile.reconfirmed_at
                self._tiles[tile_id] = evolve(tile, last_used_at=now, reconfirmed_at=at)

    # Inventory

    def count(self) -> int:
        """Return the number of visible tiles."""
        return len(self._tiles)

    def count_by(self, key: TileKey) -> Sequence[TileGroup]:
        """Return the number and size of the tiles, by source or by zoom level, sorted."""
        groups: defaultdict[Any, list[int]] = defaultdict(list)
        for tile in self._tiles.values():
            groups[getattr(tile.tile_id, key.value)].append(tile.blob.length)
        return [
            TileGroup(name=str(name), tiles=len(sizes), size_bytes=sum(sizes))
            for name, sizes in sorted(groups.items())
        ]

    def count_pending(self, flight_id: str) -> int:
        """Return the number of a flight's pending tiles."""
        return sum(1 for _ in self.pending_uploads(flight_id))

    def count_captured(self, flight_id: str) -> dict[VotingStatus, int]:
        """Return the number of tiles a flight captured, by voting status."""
        source = build_capture_source(flight_id)
        return dict(
            Counter(t.voting_status for t in self._tiles.values() if t.tile_id.source == source)
        )

    def find_given_up(
        self, flight_id: str | None = None, *, after: tuple[str, TileId] | None = None
    ) -> Iterator[TileMetadata]:
        """Yield the given-up tiles of one flight or of all, sorted by flight and tile."""
        for tile in sorted(self._tiles.values(), key=lambda t: (t.flight_id, t.tile_id)):
            is_wanted = flight_id in {None, tile.flight_id}
            is_later = after is None or (tile.flight_id, tile.tile_id) > after
            if tile.voting_status is VotingStatus.UPLOAD_GIVEUP and is_wanted and is_later:
                yield tile

    # Blob index

    def locate(self, tile_id: TileId) -> BlobRef | None:
        """Return the location of a visible tile's bytes."""
        tile = self._tiles.get(tile_id)
        return None if tile is None else tile.blob

    def forget(self, tile_ids: Sequence[TileId]) -> Sequence[BlobRef]:
        """Make tiles invisible; return their blobs."""
        gone = [self._tiles.pop(tile_id, None) for tile_id in tile_ids]
        return [tile.blob for tile in gone if tile is not None]

    def list_blobs(
        self, segment: int, *, after_offset: int, limit: int
    ) -> Sequence[tuple[TileId, BlobRef]]:
        """Return the visible blobs of a segment after an offset, sorted by offset."""
        blobs = [(tile_id, tile.blob) for tile_id, tile in self._tiles.items()]
        return _list_blobs(blobs, segment, after_offset, limit)

    def get_last_segment(self) -> int:
        """Return the highest segment number with visible blobs; 0 if there are none."""
        return max((segment for segment, _ in self.sum_live_bytes()), default=0)

    def sum_live_bytes(self) -> Sequence[tuple[int, int]]:
        """Return each segment's number and total size of visible blobs."""
        return _sum_live_bytes(tile.blob for tile in self._tiles.values())

    def list_envelope_segments(self) -> Sequence[int]:
        """Return nothing: bytes in memory are not compacted."""
        return ()

    def move(self, moves: Sequence[tuple[TileId, BlobRef, BlobRef]]) -> int:
        """Move tiles to new locations unless they left the old one; return how many moved."""
        moved = 0
        for tile_id, old, new in moves:
            tile = self._tiles.get(tile_id)
            if tile is not None and tile.blob == old:
                self._tiles[tile_id] = evolve(tile, blob=new)
                moved += 1
        return moved

    def _get_tile(self, tile_id: TileId) -> TileMetadata:
        if tile_id not in self._tiles:
            raise TileNotFoundError(tile=str(tile_id))
        return self._tiles[tile_id]

    def _now(self) -> datetime:
        return _read(self.tables.clock or self.clock)


def _read(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock.now(), UTC)


def _list_blobs(
    blobs: Iterable[tuple[TileId, BlobRef]], segment: int, after_offset: int, limit: int
) -> list[tuple[TileId, BlobRef]]:
    found = [
        item for item in blobs if (segment, after_offset) < item[1].location < (segment + 1, 0)
    ]
    return sorted(found, key=lambda item: item[1].location)[:limit]


def _sum_live_bytes(blobs: Iterable[BlobRef]) -> list[tuple[int, int]]:
    sums: defaultdict[int, int] = defaultdict(int)
    for blob in blobs:
        sums[blob.location[0]] += blob.length
    return sorted(sums.items())
