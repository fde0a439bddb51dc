"""An assembled cache for tests: real parts, and tiles whose bytes tell which version they are."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from attrs import frozen

from support.disk_faults import UNSYNCED
from support.segments import list_damages
from tileferry.adapters.filesystem.files import FileCalls
from tileferry.adapters.filesystem.journal.store import FileJournal, FileJournalStore
from tileferry.adapters.filesystem.segments.store import SegmentTileStore
from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import Database, PostgresBlobIndex, PostgresTileMetadataStore
from tileferry.adapters.system.clock import SystemClock
from tileferry.application.cache.group_commit import GroupCommit, GroupLimits, TileBatch
from tileferry.application.ports.clock import Background
from tileferry.domain.tiles import (
    BBox,
    SectorClass,
    TileCoverage,
    TileId,
    TileMetadata,
    TileSet,
)

AREA = TileCoverage(bbox=BBox(west=36.0, south=49.0, east=36.4, north=49.3), zoom_levels=[14])
TILES = list(AREA.tiles("sat"))
_FIRST = datetime(2026, 6, 1, tzinfo=UTC)
_VERSION = timedelta(minutes=1)


def content(tile_id: TileId, version: int) -> bytes:
    """Return bytes that no other tile and no other version has."""
    digest = sha256(f"{tile_id} {version}".encode()).digest()
    return (digest * 128)[: 200 + int.from_bytes(digest[:2], "big") % 3_000]


def get_version(tile: TileMetadata) -> int:
    return round((tile.produced_at - _FIRST) / _VERSION)


def journal_name(version: int) -> str:
    return f"flight-{version}__{version:016x}.json"


@frozen(kw_only=True)
class Cache:
    """What a download of one version of the area writes to."""

    store: SegmentTileStore
    journal: FileJournal
    group: GroupCommit
    version: int

    def missing(self) -> Iterator[TileId]:
        """Yield what an earlier run has not journaled."""
        if self.journal.complete:
            return iter(())
        done = TileSet(AREA)
        self.journal.read_into(done)
        return done.iter_missing("sat")

    def add(self, tile_id: TileId) -> None:
        written = content(tile_id, self.version)
        batch = TileBatch(flight_id=f"flight-{self.version}", sector_class=SectorClass.STABLE_REAR)
        batch.append(
            tile_id,
            written,
            digest=sha256(written).digest(),
            produced_at=_FIRST + self.version * _VERSION,
            resolution_m_per_px=0.6,
        )
        self.group.add(batch)


@contextmanager
def open_cache(
    root: Path,
    database: Database,
    *,
    version: int = 0,
    limits: GroupLimits | None = None,
    background: Background | None = None,
    calls: FileCalls | None = None,
) -> Iterator[Cache]:
    """Open a cache with small segments and a small buffer, so that little work does much."""
    calls = calls or FileCalls()
    with ExitStack() as stack:
        store = SegmentTileStore(
            root=root,
            index=PostgresBlobIndex(database),
            segment_bytes_max=100_000,
            buffer_bytes_max=12_000,
            calls=calls,
        )
        stack.callback(store.close)
        journals = FileJournalStore(root=root, logger=logging.getLogger("test"), calls=calls)
        journal = journals.open(journal_name(version))
        stack.callback(journal.close)
        group = GroupCommit(
            tile_store=store,
            metadata_store=PostgresTileMetadataStore(database=database, clock=SystemClock()),
            journal=journal,
            clock=SystemClock(),
            limits=limits or GroupLimits(),
            background=background,
        )
        yield Cache(store=store, journal=journal, group=group, version=version)


def read_journaled_tiles(root: Path, version: int) -> set[TileId]:
    """Return the tiles that the journal of a version vouches for."""
    journals = FileJournalStore(root=root, logger=logging.getLogger("test"), calls=UNSYNCED)
    journal = journals.open(journal_name(version))
    try:
        done = TileSet(AREA)
        journal.read_into(done)
        return set(TILES) if journal.complete else {tile for tile in TILES if tile in done}
    finally:
        journal.close()


def check_cache(root: Path, database: Database, versions: Iterable[int] = (0,)) -> set[TileId]:
    """Hold a cache that nobody writes to to invariants 1, 2, 3 and 6.

    Return the tiles that are journaled in the last of ``versions``.
    """
    metadata = PostgresTileMetadataStore(database=database, clock=ManualClock())
    rows = {row.tile_id: row for row in metadata.query_by_bbox(AREA.bbox, AREA.zoom_levels)}
    done: set[TileId] = set()
    last = 0
    for last in versions:
        done = read_journaled_tiles(root, last)
        older = [tile for tile in done if tile not in rows or get_version(rows[tile]) < last]
        assert older == [], "journaled, and its row is missing"
    with SegmentTileStore(root=root, index=PostgresBlobIndex(database), calls=UNSYNCED) as store:
        for number, (tile_id, row) in enumerate(rows.items()):
            # The row says where the bytes are; to have the store look it up costs most of the time.
            found = store.read_tile(tile_id, blob=row.blob if number % 10 else None)
            assert len(found) == row.blob.length
            assert sha256(found).hexdigest() == row.blob.sha256
            assert get_version(row) <= last
            assert found == content(tile_id, get_version(row))
        assert list_damages(store.verify()) == []
    return done
