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
class Cache:
    """A store, its ledger, and the clock they live by."""

    store: TileMetadataStore
    ledger: CacheLedger
    clock: ManualClock

    def fill(self, *xs: int, size: int = 100, **changes: Any) -> None:
        """Store tiles one after the other, so that each was used later than the one before."""
        for x in xs:
            self.clock.pass_time(1.0)
            blob = BlobRef(segment=1, offset=x, length=size, sha256="ab" * 32)
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

    def visible(self) -> list[int]:
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
def cache(request: pytest.FixtureRequest) -> Cache:
    clock = ManualClock(NOW.timestamp())
    if request.param == "memory":
        memory = MemoryTileMetadataStore(clock=clock)
        return Cache(memory, MemoryCacheLedger(tiles=memory), clock)
    database: Database = request.getfixturevalue("database")
    store = PostgresTileMetadataStore(database=database, clock=clock)
    return Cache(store, PostgresCacheLedger(database=database), clock)


def test_it_is_an_enforcer(cache: Cache) -> None:
    assert isinstance(cache.budget(1), CacheBudgetEnforcer)


def test_what_fits_evicts_nothing_and_is_promised(cache: Cache) -> None:
    cache.fill(1, 2)
    budget = cache.budget(1_000)
    result = budget.reserve_headroom(800)
    assert (result.insufficient, result.evicted, result.available_bytes) == (False, (), 800)
    with cache.ledger.exclusively() as books:
        assert (books.used_bytes(), books.reserved_bytes()) == (200, 800)
    assert cache.visible() == [1, 2]


def test_the_least_recently_used_go_first_and_only_as_many_as_needed(cache: Cache) -> None:
    cache.fill(1, 2, 3)
    cache.clock.pass_time(1.0)
    cache.store.mark_used([evolve(TILE, x=1)])
    reclaimed: list[str] = []
    budget = cache.budget(300, reclaim=lambda: reclaimed.append("yes"))
    result = budget.reserve_headroom(150)
    assert [tile.x for tile in result.evicted] == [2, 3]
    assert cache.visible() == [1]
    assert reclaimed == ["yes"]


def test_spec5_ac9_what_cannot_fit_changes_nothing(cache: Cache) -> None:
    cache.fill(1, 2)
    budget = cache.budget(300)
    result = budget.reserve_headroom(301)
    assert (result.insufficient, result.shortfall_bytes) == (True, 1)
    assert cache.visible() == [1, 2]
    with cache.ledger.exclusively() as books:
        assert books.reserved_bytes() == 0


def test_pinned_flights_stay(cache: Cache) -> None:
    cache.fill(1, 2)
    cache.fill(3, flight_id="F2")
    cache.ledger.pin_flight("F1")
    cache.ledger.pin_flight("F1")
    assert cache.ledger.pinned_flights() == ["F1"]
    result = cache.budget(300).reserve_headroom(100)
    assert [tile.x for tile in result.evicted] == [3]
    assert cache.budget(300, "other").reserve_headroom(100).insufficient
    cache.ledger.unpin_flight("F1")
    assert cache.ledger.pinned_flights() == []
    assert not cache.budget(300, "other").reserve_headroom(100).insufficient


@pytest.mark.parametrize("status", [VotingStatus.PENDING, VotingStatus.UPLOAD_GIVEUP])
def test_what_nobody_else_has_is_never_evicted(cache: Cache, status: VotingStatus) -> None:
    cache.fill(1, voting_status=VotingStatus.PENDING)
    cache.store.update_voting_status(evolve(TILE, x=1), status)
    assert cache.budget(150).reserve_headroom(100).insufficient
    assert cache.visible() == [1]


def test_the_disk_counts_as_well_as_the_budget(cache: Cache) -> None:
    disk = FakeDisk(free=500)
    budget = cache.budget(MUCH, disk=disk, free_space_reserve_bytes=450)
    assert budget.reserve_headroom(51).shortfall_bytes == 1
    assert not budget.reserve_headroom(50).insufficient
    assert budget.reserve_headroom(1).insufficient


def test_promises_add_up_and_are_given_back(cache: Cache) -> None:
    mine, yours = cache.budget(1_000, "me"), cache.budget(1_000, "you")
    assert not mine.reserve_headroom(400).insufficient
    assert not mine.reserve_headroom(100).insufficient
    assert yours.reserve_headroom(501).insufficient
    mine.release_headroom()
    mine.release_headroom()
    assert not yours.reserve_headroom(1_000).insufficient


def test_a_preview_says_what_reserving_would_come_to_and_changes_nothing(cache: Cache) -> None:
    cache.fill(1, 2, 3)
    budget = cache.budget(350)
    previewed = budget.preview_headroom(200)
    assert (previewed.evicted, previewed.freed_bytes) == (
        (evolve(TILE, x=1), evolve(TILE, x=2)),
        200,
    )
    assert budget.preview_headroom(351).insufficient
    assert cache.visible() == [1, 2, 3]
    with cache.ledger.exclusively() as books:
        assert books.reserved_bytes() == 0
    assert budget.reserve_headroom(200) == previewed


def test_a_negative_request_is_refused(cache: Cache) -> None:
    with pytest.raises(InvalidValueError, match="requested_bytes"):
        cache.budget(1_000).reserve_headroom(-1)


def test_concurrent_reservations_do_not_overshoot(cache: Cache) -> None:
    barrier = threading.Barrier(8)
    granted: list[int] = []

    def ask(number: int) -> None:
        budget = cache.budget(1_000, f"worker-{number}")
        barrier.wait()
        granted.extend(1 for _ in range(5) if not budget.reserve_headroom(100).insufficient)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 10
    with cache.ledger.exclusively() as books:
        assert books.reserved_bytes() == 1_000


def test_a_promise_of_a_dead_process_lapses(database: Database) -> None:
    ledger = PostgresCacheLedger(database=database, lapse_after=timedelta(microseconds=1))
    with ledger.exclusively() as books:
        books.reserve("dead", 10**9)
    with ledger.exclusively() as books:
        assert books.reserved_bytes() == 0


def test_somebody_hears_of_an_eviction_before_it_counts(cache: Cache) -> None:
    cache.fill(1, 2, 3)
    told: list[list[int]] = []
    budget = cache.budget(300, before_eviction=lambda: told.append(cache.visible()))
    budget.reserve_headroom(0)
    assert told == []
    budget.reserve_headroom(150)
    assert told == [[1, 2, 3]]
    assert cache.visible() == [3]


def test_what_is_kept_for_the_batch_itself_stays(cache: Cache) -> None:
    cache.fill(1, 2)
    cache.clock.pass_time(1.0)
    cache.fill(3)
    budget = cache.budget(300)
    keep = {evolve(TILE, x=1), evolve(TILE, x=2)}
    assert [tile.x for tile in budget.preview_headroom(100, keep=keep).evicted] == [3]
    assert budget.reserve_headroom(101, keep=keep).insufficient
    assert cache.visible() == [1, 2, 3]
    assert [tile.x for tile in budget.reserve_headroom(100, keep=keep).evicted] == [3]
    assert cache.visible() == [1, 2]
