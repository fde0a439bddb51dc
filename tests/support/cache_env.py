"""A cache without bytes: rows, the ledger that makes room in it, and its flights."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from attrs import define, evolve, frozen

from tileferry.adapters.memory import (
    ManualClock,
    MemoryCacheLedger,
    MemoryFlightBook,
    MemoryTileMetadataStore,
)
from tileferry.adapters.postgres import (
    Database,
    PostgresAuditLog,
    PostgresCacheLedger,
    PostgresCacheUsage,
    PostgresFlightBook,
    PostgresTileMetadataStore,
)
from tileferry.application import CacheBudget
from tileferry.application.ports import CacheLedger, TileMetadataStore
from tileferry.application.ports.flights import FlightBook
from tileferry.application.ports.inventory import CacheUsageReader
from tileferry.domain.audit import AuditEvent, StateChanged
from tileferry.domain.audit.events import event_from_bytes
from tileferry.domain.tiles import (
    Area,
    BlobRef,
    FlightArea,
    NewTile,
    OperatorNote,
    SectorClass,
    TileId,
    TileRange,
)

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
TILE = TileId(source="sat", zoom=15, x=0, y=0)
MUCH = 10**12


@define
class FakeDisk:
    """A disk of which the test says how full it is."""

    free: int = MUCH

    def free_bytes(self) -> int:
        """What is free."""
        return self.free

    def total_bytes(self) -> int:
        """Its size."""
        return MUCH


@frozen
class CacheEnv:
    """A store, its ledger, its flights, and the clock they live by."""

    store: TileMetadataStore
    ledger: CacheLedger
    flights: FlightBook
    clock: ManualClock
    usage: CacheUsageReader

    def fill(self, *xs: int, size: int = 100, at_once: bool = False, **changes: Any) -> None:
        """Store tiles one after the other, so that each was used later than the one before."""
        for x in xs:
            self.clock.advance(0.0 if at_once else 1.0)
            blob = BlobRef(location=(1, x), length=size, sha256="ab" * 32)
            tile = NewTile(
                tile_id=evolve(TILE, x=x),
                flight_id="F1",
                produced_at=NOW - timedelta(days=1),
                resolution_m_per_px=0.6,
                sector_class=SectorClass.STABLE_REAR,
                blob=blob,
            )
            self.store.insert_metadata(evolve(tile, **changes))
            if not at_once:
                self.store.flush()
        self.store.flush()

    def visible_columns(self) -> list[int]:
        """The columns of the tiles that are still there."""
        found = (self.store.get_metadata(evolve(TILE, x=x)) for x in range(10))
        return [tile.tile_id.x for tile in found if tile is not None]

    def read_flight_events(self) -> list[StateChanged]:
        """The audit events of flights."""
        if isinstance(self.flights, MemoryFlightBook):
            found: list[AuditEvent] = self.flights.events
        else:
            assert isinstance(self.flights, PostgresFlightBook)
            log = PostgresAuditLog(database=self.flights.database)
            found = [event_from_bytes(entry.body) for entry in log.iter_entries()]
        return [event for event in found if isinstance(event, StateChanged)]

    def budget(self, budget_bytes: int, name: str = "me", **changes: Any) -> CacheBudget:
        """An enforcer over this cache."""
        fields: dict[str, Any] = {
            "disk": FakeDisk(),
            "reclaim": lambda: None,
            "free_space_reserve_bytes": 0,
        }
        return CacheBudget(
            ledger=self.ledger,
            find_reservation_id=lambda: name,
            budget_bytes=budget_bytes,
            **{**fields, **changes},
        )


NOTE = OperatorNote(by="ann@desk", reason="test")


def area_of(zoom: int, xs: Iterable[int], ys: Iterable[int] = (0,), **changes: Any) -> FlightArea:
    """Return an area that has exactly these columns and rows of tiles."""
    columns, rows = list(xs), list(ys)
    span = TileRange(
        zoom=zoom, x_min=min(columns), x_max=max(columns), y_min=min(rows), y_max=max(rows)
    )
    area = Area(bbox=span.bounds, zoom_levels=[zoom], sector_class=SectorClass.STABLE_REAR)
    return evolve(FlightArea(source=TILE.source, area=area, added_at=NOW), **changes)


def create_memory_cache_env() -> CacheEnv:
    clock = ManualClock(NOW.timestamp())
    rows = MemoryTileMetadataStore(clock=clock)
    flights = MemoryFlightBook(tiles=rows, clock=clock)
    ledger = MemoryCacheLedger(tiles=rows, flights=flights)
    return CacheEnv(rows, ledger, flights, clock, ledger)


def create_postgres_cache_env(database: Database) -> CacheEnv:
    clock = ManualClock(NOW.timestamp())
    rows = PostgresTileMetadataStore(database=database, clock=clock)
    ledger = PostgresCacheLedger(database=database)
    usage = PostgresCacheUsage(database=database)
    return CacheEnv(rows, ledger, PostgresFlightBook(database=database), clock, usage)
