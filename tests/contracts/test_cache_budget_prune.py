"""Pruning, over every ledger: what matches the rule, and never what must stay."""

from datetime import timedelta

import pytest
from attrs import evolve
from support.cache_env import NOTE, NOW, TILE, CacheEnv, area_of

from tileferry.domain.tiles import PrunedTiles, PruneRule, VotingStatus

ALL = NOW + timedelta(days=36_500)


def prune(cache_env: CacheEnv, rule: PruneRule) -> PrunedTiles:
    with cache_env.ledger.begin_transaction() as books:
        previewed = books.measure_prunable(rule)
    with cache_env.ledger.begin_transaction() as books:
        assert books.prune(rule) == previewed
        assert books.measure_prunable(rule) == PrunedTiles()
    return previewed


def test_tiles_of_no_flight_are_pruned(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 2, 3, flight_id="gone")
    cache_env.fill(4, flight_id="F2")
    cache_env.flights.add_area("F1", area_of(15, [2]))
    cache_env.flights.add_flight("F2")
    assert prune(cache_env, PruneRule(unowned=True)) == PrunedTiles(tiles=2, size_bytes=200)
    assert cache_env.visible_columns() == [2, 4]


def test_tiles_of_a_source_are_pruned(cache_env: CacheEnv) -> None:
    cache_env.fill(1)
    cache_env.fill(2, tile_id=evolve(TILE, source="old", x=2))
    assert prune(cache_env, PruneRule(source="old")).tiles == 1
    assert cache_env.visible_columns() == [1]


def test_unused_tiles_are_pruned(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 2)
    assert prune(cache_env, PruneRule(unused_since=NOW - timedelta(days=36_500))).tiles == 0
    assert prune(cache_env, PruneRule(unused_since=ALL, source="other")).tiles == 0
    assert prune(cache_env, PruneRule(unused_since=ALL)).tiles == 2


@pytest.mark.parametrize("status", [VotingStatus.PENDING, VotingStatus.UPLOAD_GIVEUP])
def test_captured_and_pinned_tiles_are_never_pruned(
    cache_env: CacheEnv, status: VotingStatus
) -> None:
    cache_env.fill(1, voting_status=VotingStatus.PENDING)
    cache_env.store.update_voting_status(evolve(TILE, x=1), status)
    cache_env.fill(2, flight_id="gone")
    cache_env.flights.add_area("F1", area_of(15, [2]))
    cache_env.flights.pin_flight("F1", NOTE)
    assert prune(cache_env, PruneRule(unused_since=ALL)).tiles == 0
    cache_env.flights.unpin_flight("F1", NOTE)
    assert prune(cache_env, PruneRule(unused_since=ALL)).tiles == 1
    assert cache_env.visible_columns() == [1]
