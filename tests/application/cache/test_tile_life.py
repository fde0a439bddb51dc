"""The life of one tile."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from attrs import define, evolve, field
from support.audit_events import create_retry_attempted, event_time
from support.pictures import make_picture

from tileferry.adapters.memory import (
    ManualClock,
    MemoryAbsentTiles,
    MemoryAuditSink,
    MemoryBlobIndex,
    MemoryFlightBook,
    MemoryMapIndex,
    MemoryRefusedTiles,
    MemoryTileMetadataStore,
    MemoryTileOrigins,
    MemoryTileStore,
)
from tileferry.application import RetryManager
from tileferry.application.audit import AuditTrail
from tileferry.application.audit_reader import AuditReader
from tileferry.application.cache import tile_life
from tileferry.application.cache.map_service import MapService, MissingReason
from tileferry.application.cache.readiness import ReadinessCheck
from tileferry.application.cache.tile_life import TileLives
from tileferry.application.ports.inventory import VerificationFinding
from tileferry.application.ports.progress import NULL_LISTENER, ProgressListener
from tileferry.domain.audit import TileGivenUp
from tileferry.domain.tiles import (
    Area,
    BBox,
    BlobRef,
    DownloadRequest,
    FlightArea,
    FreshnessRule,
    NewTile,
    ResolutionGate,
    SectorClass,
    TileId,
)
from tileferry.domain.tiles.origin import TileOrigin
from tileferry.domain.tiles.refusal import Gate, Refusal

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
AREA = Area(
    bbox=BBox(west=36.0, south=50.0, east=36.1, north=50.1),
    zoom_levels=[10, 12],
    sector_class=SectorClass.ACTIVE_CONFLICT,
)
TILE = next(AREA.coverage.tiles("sat"))
PLACE = (TILE.zoom, TILE.x, TILE.y)
KEY_HASH = "k" * 64


@define
class _CheckedStore(MemoryTileStore):
    """A store that finds the damage that a test planted."""

    damaged: set[TileId] = field(factory=set)

    def find_problem(self, tile_id: TileId, blob: BlobRef) -> str | None:  # noqa: ARG002  # as the port has it
        return "its checksum differs" if tile_id in self.damaged else None

    def verify(self, progress: ProgressListener = NULL_LISTENER) -> Iterator[VerificationFinding]:
        raise NotImplementedError


@define
class LifeEnv:
    clock: ManualClock = field(factory=lambda: ManualClock(NOW.timestamp()))
    blobs: MemoryBlobIndex = field(factory=MemoryBlobIndex)
    absent: MemoryAbsentTiles = field(factory=MemoryAbsentTiles)
    refused: MemoryRefusedTiles = field(factory=MemoryRefusedTiles)
    origins: MemoryTileOrigins = field(factory=MemoryTileOrigins)
    log: MemoryAuditSink = field(factory=MemoryAuditSink)
    tiles: MemoryTileMetadataStore = field(init=False)
    store: _CheckedStore = field(init=False)
    flights: MemoryFlightBook = field(init=False)
    lives: TileLives = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.tiles = MemoryTileMetadataStore(clock=self.clock, index=self.blobs)
        self.store = _CheckedStore(index=self.blobs)
        self.flights = MemoryFlightBook(tiles=self.tiles, clock=self.clock)
        trail = AuditTrail(logger=logging.getLogger("test"))
        manager = RetryManager(
            clock=self.clock, new_id=lambda: "id", audit=trail, sleep=self.clock.sleep_async
        )
        self.lives = TileLives(
            map_service=MapService(
                index=MemoryMapIndex(tiles=self.tiles, flights=self.flights),
                store=self.store,
                absent_tiles=self.absent,
                refused_tiles=self.refused,
                clock=self.clock,
            ),
            flights=self.flights,
            readiness=ReadinessCheck(
                tile_metadata_store=self.tiles,
                freshness=FreshnessRule(),
                resolution=ResolutionGate(),
                store=lambda: self.store,
                check_cache=lambda: None,
                clock=self.clock,
                absent_tiles=self.absent,
            ),
            tile_origins=self.origins,
            store=self.store,
            audit=AuditReader(log=self.log, retries=manager),
            cache_root=Path("/cache"),
            find_key_hash=lambda: KEY_HASH,
        )

    def add(self, tile_id: TileId, *, days_old: int = 1) -> None:
        blob = self.store.write_tile(tile_id, make_picture(str(tile_id)))
        self.store.flush()
        self.tiles.insert_metadata(
            NewTile(
                tile_id=tile_id,
                flight_id="F1",
                produced_at=NOW - timedelta(days=days_old),
                resolution_m_per_px=0.6,
                sector_class=SectorClass.STABLE_REAR,
                blob=blob,
            )
        )
        self.tiles.flush()

    def add_flight(self, flight_id: str, area: Area = AREA, source: str = "sat") -> None:
        item = FlightArea(source=source, area=area, added_at=NOW)
        self.flights.add_area(flight_id, item)


@pytest.fixture
def env() -> LifeEnv:
    return LifeEnv()


def test_nothing_is_known_of_an_unrequested_place(env: LifeEnv) -> None:
    life = env.lives.read("merged", 3, 2, 1)
    assert life.name == "3/2/1"
    assert [life.versions, life.needs, life.absent, life.entries] == [[], [], {}, []]
    assert life.missing is not None
    assert life.missing.reason is MissingReason.NEVER_REQUESTED


def test_versions_of_all_sources_are_shown_freshest_first(env: LifeEnv) -> None:
    other = evolve(TILE, source="other")
    env.add(TILE, days_old=3)
    env.add(other, days_old=2)
    env.store.damaged = {other}
    found = env.lives.read("merged", *PLACE).versions
    assert [(one.tile.tile_id, one.problem) for one in found] == [
        (other, "its checksum differs"),
        (TILE, None),
    ]
    (only,) = env.lives.read("sat", *PLACE).versions
    assert only.tile.tile_id == TILE


def test_origin_is_shown_for_the_version_that_it_was_recorded_for(env: LifeEnv) -> None:
    env.add(TILE)
    (own,) = env.lives.read("sat", *PLACE).versions
    assert own.origin == "sat"
    for digest, expected in (("0" * 64, "sat"), (own.tile.blob.sha256, "xyz-other")):
        record = TileOrigin(tile_id=TILE, sha256=digest, origin="xyz-other")
        env.origins.record_origins([record])
        (found,) = env.lives.read("sat", *PLACE).versions
        assert found.origin == expected


def test_each_flight_judges_the_tile_by_its_own_sector(env: LifeEnv) -> None:
    env.add(TILE, days_old=200)
    env.add_flight("F1")
    env.add_flight("F2", evolve(AREA, sector_class=SectorClass.STABLE_REAR))
    env.add_flight("F2", source="other")
    env.add_flight("F3", evolve(AREA, zoom_levels=[12]))
    found = env.lives.read("sat", *PLACE).needs
    assert [(need.flight_id, str(need.report.verdict)) for need in found] == [
        ("F1", "NO-GO"),
        ("F2", "GO"),
    ]
    assert "200 days old" in found[0].report.examples[0].detail
    merged = env.lives.read("merged", *PLACE).needs
    assert [(need.flight_id, need.item.source) for need in merged] == [
        ("F1", "sat"),
        ("F2", "sat"),
        ("F2", "other"),
    ]


def test_flight_removed_meanwhile_is_left_out(
    env: LifeEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.add_flight("F1")
    monkeypatch.setattr(MemoryFlightBook, "find_flight", lambda *_: None)
    assert env.lives.read("sat", *PLACE).needs == []


def test_absence_at_the_provider_is_shown_with_its_date(env: LifeEnv) -> None:
    env.add_flight("F1")
    env.absent.record_absent([TILE], at=NOW)
    life = env.lives.read("sat", *PLACE)
    assert life.absent == {TILE: NOW}
    assert life.missing is not None
    assert life.missing.reason is MissingReason.ABSENT


def test_refusals_are_shown(env: LifeEnv) -> None:
    env.add_flight("F1")
    refusal = Refusal(
        tile_id=TILE,
        gate=Gate.FRESHNESS,
        sector_class=SectorClass.ACTIVE_CONFLICT,
        produced_at=NOW - timedelta(days=400),
        resolution_m_per_px=0.6,
        refused_at=NOW,
    )
    env.refused.record_refused([refusal])
    assert env.lives.read("merged", *PLACE).refusals == [refusal]


def test_attempts_of_the_downloads_and_the_giveup_are_found(env: LifeEnv) -> None:
    env.add_flight("F1")
    request = DownloadRequest(flight_id="F1", area=AREA, cache_root=Path("/elsewhere"))
    calls = request.get_correlation_id(KEY_HASH)
    attempt = create_retry_attempted(1, correlation_id=calls)
    given_up = TileGivenUp(
        timestamp=event_time(2),
        tenant_id=None,
        correlation_id=None,
        trace_id=None,
        tile_id=str(TILE),
        flight_id="F1",
        attempts=5,
        last_rejection_reason="blurred",
    )
    env.log.emit(
        [
            given_up,
            evolve(attempt, operation=f"GET tile {TILE}"),
            evolve(attempt, operation=f"GET tile {TILE}0"),  # another tile of the same download
            evolve(attempt, operation=f"GET tile {TILE}", correlation_id="F1/another"),
        ]
    )
    assert [read.entry.sequence for read in env.lives.read("sat", *PLACE).entries] == [1, 2]
    env.lives.find_key_hash = lambda: None
    assert [read.entry.sequence for read in env.lives.read("sat", *PLACE).entries] == [1]


def test_many_entries_are_cut_to_the_newest(env: LifeEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_life, "ENTRIES_MAX", 2)
    env.add_flight("F1")
    calls = DownloadRequest(flight_id="F1", area=AREA, cache_root=Path("/c"))
    attempt = create_retry_attempted(1, correlation_id=calls.get_correlation_id(KEY_HASH))
    env.log.emit([evolve(attempt, operation=f"GET tile {TILE}")] * 4)
    assert [read.entry.sequence for read in env.lives.read("sat", *PLACE).entries] == [3, 4]
