"""What the memory adapters keep when a simulated disk loses its power."""

import pytest

from tileferry.adapters.memory import (
    ManualClock,
    MemoryBlobIndex,
    MemoryCacheLock,
    MemoryFdrClient,
    MemoryJournalStore,
    MemoryTileStore,
)
from tileferry.domain.errors import CacheLockError, DamagedTileError
from tileferry.domain.tiles import TileId

TILES = [TileId(source="sat", zoom=5, x=x, y=0) for x in range(4)]
NAME = "F1__0123456789abcdef.json"
LOST, TORN, KEPT = 0.0, 0.5, 0.99


@pytest.mark.parametrize(("drawn", "is_whole"), [(LOST, False), (TORN, False), (KEPT, True)])
def test_unflushed_bytes_may_be_lost_or_torn(drawn: float, *, is_whole: bool) -> None:
    index = MemoryBlobIndex()
    store = MemoryTileStore(index)
    for tile in TILES[:2]:
        index.add(tile, store.write_tile(tile, b"bytes"))
        if tile == TILES[0]:
            store.flush()
    first, second = (index.locate(tile) for tile in TILES[:2])
    assert first is not None
    assert second is not None
    assert (store.is_durable(first), store.is_durable(second)) == (True, False)
    store.lose_power(lambda: drawn)
    assert store.read_tile(TILES[0]) == b"bytes"
    assert store.has_bytes(TILES[1], second) == store.is_durable(second) == is_whole
    if not is_whole:
        with pytest.raises(DamagedTileError):
            store.read_tile(TILES[1])


def test_deleted_tile_has_nothing_to_lose() -> None:
    index = MemoryBlobIndex()
    store = MemoryTileStore(index)
    index.add(TILES[0], store.write_tile(TILES[0], b"bytes"))
    store.delete_tile(TILES[0])
    store.lose_power(lambda: LOST)
    assert not store.tile_exists(TILES[0])


@pytest.mark.parametrize(("drawn", "left"), [(LOST, 4), (KEPT, 2)])
def test_unflushed_journal_records_may_be_lost(drawn: float, left: int) -> None:
    journals = MemoryJournalStore()
    journal = journals.open(NAME)
    journal.append(TILES[:2])
    journal.flush()
    journal.append(TILES[2:])
    assert journals.list_durable(NAME) == TILES[:2]
    journals.lose_power(lambda: drawn)
    assert journals.open(NAME).count == len(journals.list_durable(NAME)) == left


def test_complete_journal_survives() -> None:
    journals = MemoryJournalStore()
    journal = journals.open(NAME)
    journal.append(TILES)
    journal.finish()
    journals.lose_power(lambda: LOST)
    assert (journals.open(NAME).complete, journals.open(NAME).count) == (True, 4)
    assert journals.list_names(complete=True) == [NAME]


@pytest.mark.parametrize(("drawn", "left"), [(0.0, 1), (0.5, 2), (0.99, 3)])
def test_last_records_may_be_lost_but_no_durable_one(drawn: float, left: int) -> None:
    recorder = MemoryFdrClient(clock=ManualClock())
    recorder.record("a.b", {}, durable=True)
    recorder.record("a.b", {})
    recorder.record("a.b", {})
    recorder.lose_power(lambda: drawn)
    assert [record.sequence for record in recorder.records()] == list(range(1, left + 1))
    recorder.record("a.b", {})
    assert [record.sequence for record in recorder.records()][-1] == left + 1


def test_lock_belongs_to_its_owner() -> None:
    holders: dict[str, str] = {}
    mine = MemoryCacheLock(holders=holders, owner="me")
    mine.acquire()
    mine.check_held()
    with pytest.raises(CacheLockError, match="me holds it"):
        MemoryCacheLock(holders=holders, owner="you").acquire()
    with pytest.raises(CacheLockError, match="does not hold"):
        MemoryCacheLock(holders=holders, owner="you").check_held()
