"""In-memory raw partitions, with the same manifest format as on disk."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import PurePath

from attrs import define, evolve, field, frozen

from tileferry.adapters.memory.cache import MemoryCacheLock
from tileferry.adapters.memory.tile_store import MemoryTileStore
from tileferry.adapters.memory.tiles import MemoryBlobIndex, MemoryTileMetadataStore
from tileferry.adapters.memory.transfers import MemoryJournalStore, MemorySpoolStore
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.raw_partitions import (
    AsOfClock,
    check_run_id,
    format_manifest_name,
    refuse_changed,
    refuse_other_area,
    refuse_sealed,
)
from tileferry.domain.errors import DamagedTileError
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.partitions.manifest import (
    ManifestEntry,
    PartitionDamage,
    PartitionHeader,
    SealedPartition,
)
from tileferry.domain.partitions.manifest_format import (
    ManifestReader,
    format_manifest,
    parse_sealed_partition,
)
from tileferry.domain.runs import RunId
from tileferry.domain.tiles import (
    BBox,
    DownloadBatchReport,
    FreshnessLabel,
    FreshnessRule,
    NewTile,
    TileId,
    TileMetadata,
)
from tileferry.domain.tiles.area import Area

_Name = tuple[PartitionKey, RunId]


@define(kw_only=True)
class MemoryRawMetadata(MemoryTileMetadataStore):
    """The rows of a raw partition. As on disk, they have no times and no validators."""

    def get_metadata(self, tile_id: TileId) -> TileMetadata | None:
        return self.find_stored([tile_id]).get(tile_id)

    def find_stored(self, tile_ids: Sequence[TileId]) -> dict[TileId, TileMetadata]:
        """Return the visible ones of these tiles, as if they were stored now."""
        now = self._now()
        return {
            tile_id: evolve(row, stored_at=now, last_used_at=now)
            for tile_id, row in super().find_stored(tile_ids).items()
        }

    def query_by_bbox(
        self, bbox: BBox, zoom_levels: Sequence[int], *, source: str | None = None
    ) -> Iterator[TileMetadata]:
        """Yield the visible tiles of an area, in the order of arrival."""
        wanted = {row.tile_id for row in super().query_by_bbox(bbox, zoom_levels, source=source)}
        return iter(self.find_stored([tile for tile in self._tiles if tile in wanted]).values())

    def mark_used(self, tile_ids: Sequence[TileId], *, confirmed: bool = False) -> None:
        """Do nothing: tiles are never evicted from a raw partition."""

    def _show(self, group: list[tuple[NewTile, FreshnessLabel]]) -> None:
        for tile, label in group:
            self._tiles.pop(tile.tile_id, None)  # the last row of a tile is the valid one
            super()._show([(evolve(tile, validators=None), label)])


@define(kw_only=True, eq=False)
class MemoryOpenPartition:
    """A run's raw partition. Its content is kept when it is closed, as on disk."""

    root: PurePath
    tile_store: MemoryTileStore
    tile_metadata_store: MemoryRawMetadata
    lock: MemoryCacheLock
    journals: MemoryJournalStore = field(factory=MemoryJournalStore)
    spools: MemorySpoolStore = field(factory=MemorySpoolStore)
    manifest: bytes = b""
    """Empty until the partition is sealed."""
    contents: dict[TileId, bytes] = field(factory=dict)
    """Copies of the sealed tiles, so that later changes to the stores do not affect them."""
    _key: PartitionKey
    _run_id: RunId
    area: Area
    _imagery_date: date | None

    def seal(self, report: DownloadBatchReport, *, at: datetime) -> SealedPartition:
        """Write the manifest; a sealed partition cannot be opened again."""
        if not self.manifest:
            self.tile_metadata_store.flush()
            self.tile_store.flush()
            header = PartitionHeader(
                key=self._key,
                run_id=self._run_id,
                area=self.area,
                tiles_listed=report.tiles_requested,
                tally=report.tally,
                sealed_at=at.astimezone(UTC),
                imagery_date=self._imagery_date,
            )
            entries = list(self._entries())
            for entry in entries:
                self.contents[entry.tile_id] = self.tile_store.read_tile(entry.tile_id)
            self.manifest = b"".join(format_manifest(header, entries))
        return self.read_sealed()

    def read_sealed(self) -> SealedPartition:
        """Return the sealed partition, as parsed from the manifest."""
        return parse_sealed_partition(
            self.manifest, self.manifest, name=format_manifest_name(self._run_id)
        )

    def _entries(self) -> Iterator[ManifestEntry]:
        for tile in self.tile_metadata_store.all_tiles():
            yield ManifestEntry(
                tile_id=tile.tile_id,
                blob=tile.blob,
                resolution_m_per_px=tile.resolution_m_per_px,
                produced_at=tile.produced_at.astimezone(UTC),
                freshness=tile.freshness,
            )


@frozen(kw_only=True)
class MemoryPartitionReader:
    """Reads a sealed partition."""

    header: PartitionHeader
    _raw: MemoryOpenPartition
    _name: str

    def iter_entries(self) -> Iterator[ManifestEntry]:
        """Yield the manifest entries."""
        return ManifestReader.from_chunks([self._raw.manifest], name=self._name).entries()

    def read_tile(self, entry: ManifestEntry) -> bytes:
        """Return the bytes of a tile; raise if their sha256 differs."""
        content = self._raw.contents.get(entry.tile_id, b"")
        if sha256(content).hexdigest() != entry.blob.sha256:
            problem = "its bytes do not match their sha256"
            raise DamagedTileError(tile=str(entry.tile_id), problem=problem)
        return content

    def verify(self) -> Iterator[PartitionDamage]:
        """Read every tile; yield the damaged ones."""
        for entry in self.iter_entries():
            try:
                self.read_tile(entry)
            except DamagedTileError as error:
                yield PartitionDamage(subject=str(entry.tile_id), problem=error.problem)


@define(kw_only=True, eq=False)
class MemoryRawSink:
    """Stores raw partitions in memory."""

    clock: Clock
    freshness: FreshnessRule = field(factory=FreshnessRule)
    _partitions: dict[_Name, MemoryOpenPartition] = field(factory=dict, init=False)
    _locks: dict[str, str] = field(factory=dict, init=False)

    @contextmanager
    def open(
        self, key: PartitionKey, run_id: RunId, area: Area, *, imagery_date: date | None = None
    ) -> Iterator[MemoryOpenPartition]:
        """Create a run's raw partition, or resume an unfinished one; raise if it is sealed."""
        check_run_id(run_id)
        raw = self._partitions.get((key, run_id)) or self._create_partition(
            key, run_id, area, imagery_date
        )
        raw.lock.acquire()
        try:
            if raw.manifest:
                refuse_sealed(raw.root)
            if raw.area != area:
                refuse_other_area(run_id, area)
            # What an earlier process had buffered ended with it.
            raw.tile_metadata_store = evolve(raw.tile_metadata_store)
            self._partitions[key, run_id] = raw
            yield raw
        finally:
            raw.lock.release()

    def find(self, key: PartitionKey, run_id: RunId) -> SealedPartition | None:
        """Return a run's sealed partition, if there is one."""
        check_run_id(run_id)
        raw = self._partitions.get((key, run_id))
        return raw.read_sealed() if raw is not None and raw.manifest else None

    def find_newest(self, key: PartitionKey) -> SealedPartition | None:
        """Return the sealed raw partition of the newest run that has one."""
        found = [self.find(key, run_id) for known, run_id in self._partitions if known == key]
        sealed = [one for one in found if one is not None]
        return max(sealed, key=lambda one: (one.sealed_at, one.run_id), default=None)

    @contextmanager
    def open_reader(self, sealed: SealedPartition) -> Iterator[MemoryPartitionReader]:
        """Open a sealed partition for reading; raise if the stored one differs from ``sealed``."""
        if self.find(sealed.key, sealed.run_id) != sealed:
            refuse_changed(sealed)
        raw = self._partitions[sealed.key, sealed.run_id]
        name = format_manifest_name(sealed.run_id)
        header = ManifestReader.from_chunks([raw.manifest], name=name).header
        yield MemoryPartitionReader(header=header, raw=raw, name=name)

    def lose_power(self, random: Callable[[], float]) -> None:
        """Lose any unflushed part of the unsealed partitions; ``random`` returns 0 to 1."""
        for raw in self._partitions.values():
            if not raw.manifest:
                raw.tile_store.lose_power(random)
                raw.journals.lose_power(random)

    def _create_partition(
        self, key: PartitionKey, run_id: RunId, area: Area, imagery_date: date | None
    ) -> MemoryOpenPartition:
        index = MemoryBlobIndex()
        clock = self.clock if imagery_date is None else AsOfClock(self.clock, imagery_date)
        return MemoryOpenPartition(
            root=PurePath("/memory", str(key), run_id),
            tile_store=MemoryTileStore(index),
            tile_metadata_store=MemoryRawMetadata(
                clock=clock, freshness=self.freshness, index=index
            ),
            lock=MemoryCacheLock(name=f"{key}/{run_id}", holders=self._locks),
            key=key,
            run_id=run_id,
            area=area,
            imagery_date=imagery_date,
        )
