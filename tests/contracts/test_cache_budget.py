"""Making room, over every ledger: never more than there is, never what must stay."""

import threading
from datetime import timedelta

import pytest
from attrs import evolve
from support.cache_env import MUCH, NOTE, TILE, CacheEnv, FakeDisk

from tileferry.adapters.postgres import Database, PostgresCacheLedger, PostgresCacheUsage
from tileferry.application.ports import CacheBudgetEnforcer
from tileferry.application.ports.inventory import CacheUsage
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import VotingStatus


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


def test_usage_is_the_tiles_and_the_reservations_of_all(cache_env: CacheEnv) -> None:
    assert cache_env.usage.measure_usage() == CacheUsage(tiles=0, used_bytes=0, reserved_bytes=0)
    cache_env.fill(1, 2)
    cache_env.budget(1_000).reserve_headroom(300)
    cache_env.budget(1_000, "other").reserve_headroom(400)
    found = cache_env.usage.measure_usage()
    assert found == CacheUsage(tiles=2, used_bytes=200, reserved_bytes=700)


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


def test_tiles_used_at_the_same_time_are_evicted_in_order_of_their_ids(
    cache_env: CacheEnv,
) -> None:
    cache_env.fill(3, 1, 2, at_once=True, voting_status=VotingStatus.PENDING)
    for x in (3, 1, 2):  # Postgres moves its row
        cache_env.store.mark_uploaded(evolve(TILE, x=x))
    budget = cache_env.budget(300)
    assert [tile.x for tile in budget.preview_headroom(200).evicted] == [1, 2]
    assert [tile.x for tile in budget.reserve_headroom(200).evicted] == [1, 2]


def test_request_that_cannot_fit_changes_nothing(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 2)
    budget = cache_env.budget(300)
    result = budget.reserve_headroom(301)
    assert (result.insufficient, result.shortfall_bytes) == (True, 1)
    assert cache_env.visible_columns() == [1, 2]
    with cache_env.ledger.begin_transaction() as books:
        assert books.sum_reserved_bytes() == 0


def test_tiles_stored_for_a_pinned_flight_are_not_evicted(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 2)
    cache_env.fill(3, flight_id="F2")
    cache_env.flights.pin_flight("F1", NOTE)
    cache_env.flights.pin_flight("F1", NOTE)
    result = cache_env.budget(300).reserve_headroom(100)
    assert [tile.x for tile in result.evicted] == [3]
    assert cache_env.budget(300, "other").reserve_headroom(100).insufficient
    cache_env.flights.unpin_flight("F1", NOTE)
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
    assert PostgresCacheUsage(database=database).measure_usage().reserved_bytes == 0
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


def test_failed_transaction_changes_nothing(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 2)

    def decide() -> None:
        with cache_env.ledger.begin_transaction() as books:
            books.evict([evolve(TILE, x=1)])
            books.reserve("me", 500)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        decide()
    assert cache_env.visible_columns() == [1, 2]
    with cache_env.ledger.begin_transaction() as books:
        assert (books.sum_used_bytes(), books.sum_reserved_bytes()) == (200, 0)
