"""Pruning and compaction: confirmed, under the lock, and reported."""

import pytest
from attrs import define, field, frozen
from support.cache_env import CacheEnv, create_memory_cache_env

from tileferry.adapters.memory import MemoryCacheLock
from tileferry.application.cache.maintenance import CacheMaintenance, CompactionReport
from tileferry.domain.errors import CacheLockError, ConfirmationNeededError, DamagedTileError
from tileferry.domain.tiles import PrunedTiles, PruneRule

RULE = PruneRule(source="sat")


@frozen
class File:
    """A file that was compacted."""

    size_bytes: int
    removed: bool
    moved_tiles: int = 0
    moved_bytes: int = 0
    damaged: tuple[DamagedTileError, ...] = ()


@define
class ScriptedStore:
    """Says what it compacted."""

    files: list[File] = field(factory=list)
    calls: list[str] = field(factory=list)

    def forget_locations(self) -> None:
        self.calls.append("forget")

    def compact(self, *, live_share_min: float = 0.5) -> list[File]:
        self.calls.append(f"compact {live_share_min}")
        return self.files


@pytest.fixture
def env() -> CacheEnv:
    return create_memory_cache_env()


def create(env: CacheEnv, store: ScriptedStore, told: list[str]) -> CacheMaintenance:
    lock = MemoryCacheLock()
    lock.acquire()
    return CacheMaintenance(
        ledger=env.ledger,
        lock=lock,
        store=lambda: store,
        before_removal=lambda: told.append("journals"),
    )


def test_few_tiles_are_pruned_without_confirmation(env: CacheEnv) -> None:
    env.fill(1, 2)
    store = ScriptedStore()
    told: list[str] = []
    maintenance = create(env, store, told)
    assert maintenance.preview_prune(RULE) == PrunedTiles(tiles=2, size_bytes=200)
    assert maintenance.prune(RULE, confirmed=None).tiles == 2
    assert (store.calls, told) == (["forget", "compact 0.9"], ["journals"])
    assert maintenance.prune(RULE, confirmed=None).tiles == 0
    assert told == ["journals"]


def test_many_tiles_need_the_right_count(env: CacheEnv) -> None:
    env.fill(*range(10))
    maintenance = create(env, ScriptedStore(), [])
    for confirmed in (None, 9):
        with pytest.raises(ConfirmationNeededError, match="this affects 10 tiles"):
            maintenance.prune(RULE, confirmed=confirmed)
    assert len(env.visible_columns()) == 10
    assert maintenance.prune(RULE, confirmed=10).tiles == 10


def test_compaction_reports_freed_bytes_and_damage(env: CacheEnv) -> None:
    damaged = DamagedTileError(tile="sat/1/0/0", problem="its checksum is wrong")
    files = [
        File(size_bytes=100, removed=True, moved_tiles=1, moved_bytes=30),
        File(size_bytes=50, removed=False, moved_tiles=2, moved_bytes=9, damaged=(damaged,)),
    ]
    assert create(env, ScriptedStore(files), []).compact() == CompactionReport(
        segments_removed=1, tiles_moved=3, freed_bytes=70, damaged_tiles=["sat/1/0/0"]
    )


def test_both_need_the_lock(env: CacheEnv) -> None:
    maintenance = create(env, ScriptedStore(), [])
    maintenance.lock.release()
    with pytest.raises(CacheLockError):
        maintenance.compact()
    with pytest.raises(CacheLockError):
        maintenance.prune(RULE, confirmed=None)
