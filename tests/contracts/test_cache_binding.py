"""What ties a cache and a database, over every form of either."""

from pathlib import Path

import pytest

from tileferry.adapters.filesystem import FileCacheMark
from tileferry.adapters.memory import MemoryCacheBindings, MemoryCacheMark
from tileferry.adapters.postgres import PostgresCacheBindings
from tileferry.application.ports import CacheBindings, CacheMark
from tileferry.domain.tiles.cache_binding import CacheBinding, CacheId

ONE = CacheBinding(cache_id=CacheId("1" * 32), place="a:/cache")
TWO = CacheBinding(cache_id=CacheId("2" * 32), place="b:/cache")


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


def test_cache_id_is_persistent(mark: CacheMark) -> None:
    assert mark.read() is None
    mark.write(ONE.cache_id)
    assert [mark.read(), mark.read()] == [ONE.cache_id] * 2


def test_first_cache_is_bound(bindings: CacheBindings) -> None:
    assert bindings.find_bound() is None
    assert bindings.bind(ONE, instead_of=None)
    assert bindings.find_bound() == ONE


def test_binding_with_wrong_expected_cache_is_refused(bindings: CacheBindings) -> None:
    bindings.bind(ONE, instead_of=None)
    assert not bindings.bind(TWO, instead_of=None)
    assert not bindings.bind(TWO, instead_of=TWO.cache_id)
    assert bindings.find_bound() == ONE


def test_binding_with_expected_cache_replaces_it(bindings: CacheBindings) -> None:
    bindings.bind(ONE, instead_of=None)
    moved = CacheBinding(cache_id=ONE.cache_id, place="a:/moved")
    assert bindings.bind(moved, instead_of=ONE.cache_id)
    assert bindings.find_bound() == moved
    assert bindings.bind(TWO, instead_of=ONE.cache_id)
    assert bindings.find_bound() == TWO
