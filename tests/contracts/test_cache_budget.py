"""Making room, over every ledger: never more than there is, never what must stay."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import define, evolve, frozen

from tileferry.adapters.memory import ManualClock, MemoryCacheLedger, MemoryTileMetadataStore
from tileferry.adapters.postgres import Database, PostgresCacheLedger, PostgresTileMetadataStore
from tileferry.application import CacheBudget
from tileferry.application.ports import CacheBudgetEnforcer, CacheLedger, TileMetadataStore
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BlobRef, NewTile, SectorClass, TileId, VotingStatus

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
    """A store, its ledger, and the clock they live by."""

    store: TileMetadataStore
    ledger: CacheLedger
    clock: ManualClock

    def fill(self, *xs: int, size: int = 100, **changes: Any) -> None:
        """Store tiles one after the other, so that each was used later than the one before."""
        for x in xs:
            self.clock.advance(1.0)
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
            self.store.flush()

    def visible_columns(self) -> list[int]:
        """The columns of the tiles that are still there."""
        found = (self.store.get_metadata(evolve(TILE, x=x)) for x in range(10))
        return [tile.tile_id.x for tile in found if tile is not None]

    def budget(self, budget_bytes: int, name: str = "me", **changes: Any) -> CacheBudget:
        """An enforcer over this cache."""
        fields: dict[str, Any] = {
            "disk": FakeDisk(),
            "reclaim": lambda: None,
            "free_space_reserve_bytes": 0,
        }
        return CacheBudget(
            ledger=self.ledger,
            reservation_id=name,
            budget_bytes=budget_bytes,
            **{**fields, **changes},
        )


@pytest.fixture(params=["memory", "postgres"])
def cache_env(request: pytest.FixtureRequest) -> CacheEnv:
    clock = ManualClock(NOW.timestamp())
    if request.param == "memory":
        memory = MemoryTileMetadataStore(clock=clock)
        return CacheEnv(memory, MemoryCacheLedger(tiles=memory), clock)
    database: Database = request.getfixturevalue("database")
    store = PostgresTileMetadataStore(database=database, clock=clock)
    return CacheEnv(store, PostgresCacheLedger(database=database), clock)


def test_budget_implements_enforcer_port(cache_env: CacheEnv) -> None:
    assert isinstance(cache_env.budget(1), CacheBudgetEnforcer)


def test_request_that_fits_is_reserved_without_eviction(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 2)
    budget = cache_env.budget(1_000)
    result = budget.reserve_headroom(800)
    assert (result.insufficient, result.evicted, result.available_bytes) == (False, (), 800)
    with cache_env.ledger.begin_transaction() as books:
        assert (books.sum_used_bytes(), books.sum_reserved_bytes()) == (200, 800)
    assert cache_env.visible_columns() == [1, 2]


def test_least_recently_used_tiles_are_evicted_as_needed(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 2, 3)
    cache_env.clock.advance(1.0)
    cache_env.store.mark_used([evolve(TILE, x=1)])
    reclaimed: list[str] = []
    budget = cache_env.budget(300, reclaim=lambda: reclaimed.append("yes"))
    result = budget.reserve_headroom(150)
    assert [tile.x for tile in result.evicted] == [2, 3]
    assert cache_env.visible_columns() == [1]
    assert reclaimed == ["yes"]


def test_request_that_cannot_fit_changes_nothing(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 2)
    budget = cache_env.budget(300)
    result = budget.reserve_headroom(301)
    assert (result.insufficient, result.shortfall_bytes) == (True, 1)
    assert cache_env.visible_columns() == [1, 2]
    with cache_env.ledger.begin_transaction() as books:
        assert books.sum_reserved_bytes() == 0


def test_tiles_of_pinned_flights_are_not_evicted(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 2)
    cache_env.fill(3, flight_id="F2")
    cache_env.ledger.pin_flight("F1")
    cache_env.ledger.pin_flight("F1")
    assert cache_env.ledger.list_pinned_flights() == ["F1"]
    result = cache_env.budget(300).reserve_headroom(100)
    assert [tile.x for tile in result.evicted] == [3]
    assert cache_env.budget(300, "other").reserve_headroom(100).insufficient
    cache_env.ledger.unpin_flight("F1")
    assert cache_env.ledger.list_pinned_flights() == []
    assert not cache_env.budget(300, "other").reserve_headroom(100).insufficient


@pytest.mark.parametrize("status", [VotingStatus.PENDING, VotingStatus.UPLOAD_GIVEUP])
def test_pending_and_given_up_tiles_are_never_evicted(
    cache_env: CacheEnv, status: VotingStatus
) -> None:
    cache_env.fill(1, voting_status=VotingStatus.PENDING)
    cache_env.store.update_voting_status(evolve(TILE, x=1), status)
    assert cache_env.budget(150).reserve_headroom(100).insufficient
    assert cache_env.visible_columns() == [1]


def test_free_disk_space_limits_reservations(cache_env: CacheEnv) -> None:
    disk = FakeDisk(free=500)
    budget = cache_env.budget(MUCH, disk=disk, free_space_reserve_bytes=450)
    assert budget.reserve_headroom(51).shortfall_bytes == 1
    assert not budget.reserve_headroom(50).insufficient
    assert budget.reserve_headroom(1).insufficient


def test_reservations_add_up_and_can_be_released(cache_env: CacheEnv) -> None:
    mine, yours = cache_env.budget(1_000, "me"), cache_env.budget(1_000, "you")
    assert not mine.reserve_headroom(400).insufficient
    assert not mine.reserve_headroom(100).insufficient
    assert yours.reserve_headroom(501).insufficient
    mine.release_headroom()
    mine.release_headroom()
    assert not yours.reserve_headroom(1_000).insufficient


def test_preview_matches_reservation_and_changes_nothing(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 2, 3)
    budget = cache_env.budget(350)
    previewed = budget.preview_headroom(200)
    assert (previewed.evicted, previewed.freed_bytes) == (
        (evolve(TILE, x=1), evolve(TILE, x=2)),
        200,
    )
    assert budget.preview_headroom(351).insufficient
    assert cache_env.visible_columns() == [1, 2, 3]
    with cache_env.ledger.begin_transaction() as books:
        assert books.sum_reserved_bytes() == 0
    assert budget.reserve_headroom(200) == previewed


def test_negative_request_is_rejected(cache_env: CacheEnv) -> None:
    with pytest.raises(InvalidValueError, match="requested_bytes"):
        cache_env.budget(1_000).reserve_headroom(-1)


def test_concurrent_reservations_do_not_exceed_budget(cache_env: CacheEnv) -> None:
    barrier = threading.Barrier(8)
    granted: list[int] = []

    def ask(number: int) -> None:
        budget = cache_env.budget(1_000, f"worker-{number}")
        barrier.wait()
        granted.extend(1 for _ in range(5) if not budget.reserve_headroom(100).insufficient)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 10
    with cache_env.ledger.begin_transaction() as books:
        assert books.sum_reserved_bytes() == 1_000


def test_reservation_of_dead_process_expires(database: Database) -> None:
    ledger = PostgresCacheLedger(database=database, lapse_after=timedelta(microseconds=1))
    with ledger.begin_transaction() as books:
        books.reserve("dead", 10**9)
    with ledger.begin_transaction() as books:
        assert books.sum_reserved_bytes() == 0


def test_before_eviction_hook_runs_before_eviction(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 2, 3)
    told: list[list[int]] = []
    budget = cache_env.budget(300, before_eviction=lambda: told.append(cache_env.visible_columns()))
    budget.reserve_headroom(0)
    assert told == []
    budget.reserve_headroom(150)
    assert told == [[1, 2, 3]]
    assert cache_env.visible_columns() == [3]


def test_tiles_to_keep_are_not_evicted(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 2)
    cache_env.clock.advance(1.0)
    cache_env.fill(3)
    budget = cache_env.budget(300)
    keep = {evolve(TILE, x=1), evolve(TILE, x=2)}
    assert [tile.x for tile in budget.preview_headroom(100, keep=keep).evicted] == [3]
    assert budget.reserve_headroom(101, keep=keep).insufficient
    assert cache_env.visible_columns() == [1, 2, 3]
    assert [tile.x for tile in budget.reserve_headroom(100, keep=keep).evicted] == [3]
    assert cache_env.visible_columns() == [1, 2]
