"""What ties a cache and a database, over every form of either."""

from pathlib import Path

import pytest

from tileferry.adapters.filesystem import FileCacheMark
from tileferry.adapters.memory import MemoryCacheBindings, MemoryCacheMark
from tileferry.adapters.postgres import PostgresCacheBindings
from tileferry.application.ports import CacheBindings, CacheMark
from tileferry.domain.tiles.bound_cache import BoundCache, CacheId

ONE = BoundCache(cache_id=CacheId("1" * 32), place="a:/cache")
TWO = BoundCache(cache_id=CacheId("2" * 32), place="b:/cache")


@pytest.fixture(params=["memory", "file"])
def mark(request: pytest.FixtureRequest, tmp_path: Path) -> CacheMark:
    if request.param == "memory":
        return MemoryCacheMark()
    return FileCacheMark(root=tmp_path / "cache")


@pytest.fixture(params=["memory", "postgres"])
def bindings(request: pytest.FixtureRequest) -> CacheBindings:
    if request.param == "memory":
        return MemoryCacheBindings()
    return PostgresCacheBindings(database=request.getfixturevalue("database"))


def test_a_cache_keeps_its_id(mark: CacheMark) -> None:
    assert mark.read() is None
    mark.write(ONE.cache_id)
    assert [mark.read(), mark.read()] == [ONE.cache_id] * 2


def test_the_first_cache_is_remembered(bindings: CacheBindings) -> None:
    assert bindings.bound() is None
    assert bindings.bind(ONE, instead_of=None)
    assert bindings.bound() == ONE


def test_a_cache_is_not_replaced_by_who_did_not_know_of_it(bindings: CacheBindings) -> None:
    bindings.bind(ONE, instead_of=None)
    assert not bindings.bind(TWO, instead_of=None)
    assert not bindings.bind(TWO, instead_of=TWO.cache_id)
    assert bindings.bound() == ONE


def test_a_cache_is_replaced_by_who_did(bindings: CacheBindings) -> None:
    bindings.bind(ONE, instead_of=None)
    moved = BoundCache(cache_id=ONE.cache_id, place="a:/moved")
    assert bindings.bind(moved, instead_of=ONE.cache_id)
    assert bindings.bound() == moved
    assert bindings.bind(TWO, instead_of=ONE.cache_id)
    assert bindings.bound() == TWO
