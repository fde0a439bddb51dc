"""A database is one cache's, unless it has nothing to lose."""

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.cache_binding import (
    CacheBinding,
    CacheFit,
    CacheId,
    check_cache_fit,
    parse_cache_id,
)

OURS, THEIRS = CacheId("0" * 32), CacheId("1" * 32)
BOUND = CacheBinding(cache_id=OURS, place="a:/cache")


@pytest.mark.parametrize("own", [None, OURS, THEIRS])
@pytest.mark.parametrize("is_empty", [True, False])
def test_unbound_database_accepts_any_cache(own: CacheId | None, *, is_empty: bool) -> None:
    assert check_cache_fit(own, None, is_empty=lambda: is_empty) is CacheFit.FREE


@pytest.mark.parametrize("is_empty", [True, False])
def test_same_cache_id_is_bound(*, is_empty: bool) -> None:
    assert check_cache_fit(OURS, BOUND, is_empty=lambda: is_empty) is CacheFit.BOUND


@pytest.mark.parametrize("own", [None, THEIRS])
def test_other_cache_is_accepted_only_if_database_is_empty(own: CacheId | None) -> None:
    assert check_cache_fit(own, BOUND, is_empty=lambda: False) is CacheFit.FOREIGN
    assert check_cache_fit(own, BOUND, is_empty=lambda: True) is CacheFit.FREE


def test_malformed_cache_id_returns_none() -> None:
    assert parse_cache_id(OURS) == OURS
    for text in ("", "0" * 31, "0" * 33, "0" * 32 + "\n", "X" * 32):
        assert parse_cache_id(text) is None


def test_empty_place_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match="place"):
        CacheBinding(cache_id=OURS, place="")
