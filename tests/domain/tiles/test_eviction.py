"""The eviction plan: enough, no more than needed, never a pinned tile, or nothing at all."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError, MisuseError
from tileferry.domain.tiles import (
    KEPT_STATUSES,
    CachedTile,
    CacheSpace,
    EvictionResult,
    PruneRule,
    TileId,
    VotingStatus,
    compute_default_budget_bytes,
    compute_default_reserve_bytes,
    plan_eviction,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def make_cached_tile(
    index: int, size: int, *, pinned: bool = False, minute: int | None = None
) -> CachedTile:
    used = NOW + timedelta(minutes=index if minute is None else minute)
    tile_id = TileId(source="sat", zoom=20, x=index, y=0)
    return CachedTile(tile_id=tile_id, size_bytes=size, last_used_at=used, pinned=pinned)


def make_space(budget: int, used: int, *, reserved: int = 0, disk: int = 10**12) -> CacheSpace:
    return CacheSpace(
        budget_bytes=budget, used_bytes=used, reserved_bytes=reserved, free_disk_bytes=disk
    )


spaces = st.builds(
    CacheSpace,
    budget_bytes=st.integers(0, 300),
    used_bytes=st.integers(0, 300),
    reserved_bytes=st.integers(0, 50),
    free_disk_bytes=st.integers(0, 300),
    free_space_reserve_bytes=st.integers(0, 50),
)
caches = st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=10).map(
    lambda items: [
        make_cached_tile(i, size, pinned=pinned) for i, (size, pinned) in enumerate(items)
    ]
)


@given(st.integers(0, 400), spaces, caches)
def test_plan_frees_just_enough_or_nothing(
    needed: int, room: CacheSpace, tiles: list[CachedTile]
) -> None:
    plan = plan_eviction(needed, room, tiles)
    loose = [tile for tile in tiles if not tile.pinned]
    reachable = room.available_bytes + sum(tile.size_bytes for tile in loose)
    if needed == 0 or room.available_bytes >= needed:
        assert (plan.evicted, plan.freed_bytes, plan.insufficient) == ((), 0, False)
    elif reachable < needed:
        assert plan.insufficient
        assert (plan.evicted, plan.freed_bytes) == ((), 0)
        assert (plan.available_bytes, plan.shortfall_bytes) == (reachable, needed - reachable)
    else:
        gone = loose[: plan.evicted_count]
        assert plan.evicted == tuple(tile.tile_id for tile in gone)
        assert plan.freed_bytes == sum(tile.size_bytes for tile in gone)
        assert plan.available_bytes == room.available_bytes + plan.freed_bytes >= needed
        assert plan.available_bytes - gone[-1].size_bytes < needed
        assert plan.shortfall_bytes == 0


@given(spaces)
def test_available_space_respects_budget_disk_and_reservations(room: CacheSpace) -> None:
    left = room.available_bytes
    assert room.used_bytes + room.reserved_bytes + left <= room.budget_bytes
    assert room.free_disk_bytes - room.reserved_bytes - left >= room.free_space_reserve_bytes


def test_least_recently_used_tiles_are_evicted_and_pinned_kept() -> None:
    tiles = [
        make_cached_tile(0, 10),
        make_cached_tile(1, 10, pinned=True),
        make_cached_tile(2, 10),
        make_cached_tile(3, 10),
    ]
    plan = plan_eviction(20, make_space(100, 100), tiles)
    assert [tile.x for tile in plan.evicted] == [0, 2]
    assert (plan.freed_bytes, plan.available_bytes) == (20, 20)


def test_full_disk_evicts_even_with_budget_left() -> None:
    plan = plan_eviction(10, make_space(1000, 0, disk=5), [make_cached_tile(0, 10)])
    assert plan.evicted_count == 1


def test_reserved_space_is_not_available() -> None:
    assert plan_eviction(10, make_space(100, 50, reserved=41), []).shortfall_bytes == 1
    assert not plan_eviction(10, make_space(100, 50, reserved=40), []).insufficient


def test_candidates_are_read_lazily() -> None:
    def endless() -> Iterator[CachedTile]:
        index = 0
        while True:
            yield make_cached_tile(index, 10)
            index += 1
            assert index <= 3, "read on after enough was freed"

    assert plan_eviction(30, make_space(100, 100), endless()).evicted_count == 3


def test_no_candidates_are_read_when_space_suffices() -> None:
    untouched = iter([make_cached_tile(0, 10)])
    plan_eviction(10, make_space(100, 90), untouched)
    assert len(list(untouched)) == 1


def test_oversized_batch_is_insufficient_and_evicts_nothing() -> None:
    tiles = [make_cached_tile(0, 30), make_cached_tile(1, 60, pinned=True)]
    plan = plan_eviction(100, make_space(100, 90), tiles)
    assert plan.insufficient
    assert (plan.evicted, plan.freed_bytes) == ((), 0)
    error = plan.build_error()
    assert error.shortfall_bytes == plan.shortfall_bytes == 60
    assert "raise c6.budget_bytes" in str(error)


def test_disk_limit_error_does_not_suggest_raising_budget() -> None:
    tight = CacheSpace(
        budget_bytes=100, used_bytes=0, free_disk_bytes=5, free_space_reserve_bytes=20
    )
    plan = plan_eviction(10, tight, [])
    error = plan.build_error()
    assert (error.disk_free_bytes, error.disk_reserve_bytes) == (5, 20)
    assert (error.shortfall_bytes, plan.shortfall_bytes) == (25, 25)
    assert "c6.budget_bytes" not in str(error)


def test_cache_over_budget_evicts_down_to_budget_first() -> None:
    plan = plan_eviction(
        10, make_space(100, 120), [make_cached_tile(0, 25), make_cached_tile(1, 25)]
    )
    assert (plan.freed_bytes, plan.available_bytes) == (50, 30)


def test_zero_bytes_fit_even_when_over_budget() -> None:
    plan = plan_eviction(0, make_space(100, 120), [make_cached_tile(0, 25)])
    assert (plan.insufficient, plan.shortfall_bytes, plan.evicted) == (False, 0, ())


@pytest.mark.parametrize("pinned", [False, True])
def test_candidates_out_of_order_are_rejected(pinned: bool) -> None:  # noqa: FBT001  # a parameter
    tiles = [make_cached_tile(0, 1, minute=5, pinned=pinned), make_cached_tile(1, 1, minute=4)]
    with pytest.raises(MisuseError, match="least recently used tile first") as caught:
        plan_eviction(50, make_space(10, 10), tiles)
    assert "tile sat/20/1/0 was used before" in caught.value.problem


def test_tiles_with_equal_last_use_are_accepted() -> None:
    tiles = [make_cached_tile(0, 1, minute=5), make_cached_tile(1, 1, minute=5)]
    assert plan_eviction(2, make_space(10, 10), tiles).evicted_count == 2


def test_insufficient_result_with_evictions_is_rejected() -> None:
    tile = make_cached_tile(0, 1).tile_id
    with pytest.raises(InvalidValueError, match=r"EvictionResult\.evicted"):
        EvictionResult(requested_bytes=9, available_bytes=8, evicted=[tile], freed_bytes=0)
    with pytest.raises(InvalidValueError, match="1 bytes are still missing"):
        EvictionResult(requested_bytes=9, available_bytes=8, freed_bytes=1)


@pytest.mark.parametrize("needed", [-1, True, 1.5])
def test_invalid_requested_bytes_are_rejected(needed: Any) -> None:
    with pytest.raises(InvalidValueError, match="requested_bytes"):
        plan_eviction(needed, make_space(10, 0), [])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tile_id", "sat/1/1/1"),
        ("size_bytes", -1),
        ("last_used_at", NOW.replace(tzinfo=None)),
        ("pinned", 1),
    ],
)
def test_invalid_candidate_is_rejected(field: str, value: Any) -> None:
    fields: dict[str, Any] = {
        "tile_id": make_cached_tile(0, 1).tile_id,
        "size_bytes": 1,
        "last_used_at": NOW,
    }
    with pytest.raises(InvalidValueError, match=f"CachedTile.{field}"):
        CachedTile(**{**fields, field: value})


def test_duplicate_candidate_is_rejected() -> None:
    used = datetime(2026, 1, 1, tzinfo=UTC)
    tile = CachedTile(
        tile_id=TileId(source="sat", zoom=1, x=0, y=0), size_bytes=10, last_used_at=used
    )
    full = CacheSpace(budget_bytes=100, used_bytes=100, free_disk_bytes=1_000)
    with pytest.raises(MisuseError, match=r"candidates: tile .* is listed twice"):
        plan_eviction(20, full, [tile, tile])


def test_tiles_not_yet_uploaded_are_kept() -> None:
    assert {VotingStatus.PENDING, VotingStatus.UPLOAD_GIVEUP} == KEPT_STATUSES


@pytest.mark.parametrize(
    ("disk", "budget", "reserve"),
    [(0, 0, 2**30), (2**40, 2**39, 20 * 2**30), (100 * 2**30, 50 * 2**30, 5 * 2**30)],
)
def test_default_budget_and_reserve_follow_disk_size(disk: int, budget: int, reserve: int) -> None:
    assert compute_default_budget_bytes(disk) == budget
    assert compute_default_reserve_bytes(disk) == reserve


def test_rule_without_criterion_would_remove_everything() -> None:
    with pytest.raises(InvalidValueError, match="would remove every tile"):
        PruneRule()
