"""A database is one cache's, unless it has nothing to lose."""

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.bound_cache import (
    BoundCache,
    CacheFit,
    CacheId,
    cache_fit,
    cache_id_from,
)

OURS, THEIRS = CacheId("0" * 32), CacheId("1" * 32)
BOUND = BoundCache(cache_id=OURS, place="a:/cache")


@pytest.mark.parametrize("own", [None, OURS, THEIRS])
@pytest.mark.parametrize("is_empty", [True, False])
def test_a_database_without_a_cache_takes_any(own: CacheId | None, *, is_empty: bool) -> None:
    assert cache_fit(own, None, is_empty=lambda: is_empty) is CacheFit.FREE


@pytest.mark.parametrize("is_empty", [True, False])
def test_the_same_cache_is_bound_wherever_it_is(*, is_empty: bool) -> None:
    assert cache_fit(OURS, BOUND, is_empty=lambda: is_empty) is CacheFit.BOUND


@pytest.mark.parametrize("own", [None, THEIRS])
def test_another_cache_fits_only_where_nothing_can_be_lost(own: CacheId | None) -> None:
    assert cache_fit(own, BOUND, is_empty=lambda: False) is CacheFit.FOREIGN
    assert cache_fit(own, BOUND, is_empty=lambda: True) is CacheFit.FREE


def test_an_id_is_read_whole_or_not_at_all() -> None:
    assert cache_id_from(OURS) == OURS
    for text in ("", "0" * 31, "0" * 33, "0" * 32 + "\n", "X" * 32):
        assert cache_id_from(text) is None


def test_a_place_is_named() -> None:
    with pytest.raises(InvalidValueError, match="place"):
        BoundCache(cache_id=OURS, place="")
