"""What every JournalStore must do."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tileferry.adapters.filesystem.journal.store import FileJournalStore
from tileferry.adapters.memory import MemoryJournalStore
from tileferry.application.ports.journal import Journal, JournalStore
from tileferry.domain.errors import InvalidValueError, StorageError
from tileferry.domain.tiles import (
    BBox,
    DownloadRequest,
    SectorClass,
    TileCoverage,
    TileId,
    TileSet,
)

AREA = TileCoverage(bbox=BBox(west=36.0, south=49.0, east=37.0, north=50.0), zoom_levels=[11, 12])
TILES = list(AREA.tiles("sat"))
NAME = "flight-7__0123456789abcdef.json"


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> JournalStore:
    if request.param == "memory":
        return MemoryJournalStore()
    return FileJournalStore(root=tmp_path, logger=logging.getLogger("test"))


@pytest.fixture
def journal(store: JournalStore) -> Iterator[Journal]:
    opened = store.open(NAME)
    yield opened
    opened.close()


def read_tiles(journal: Journal) -> list[TileId]:
    found = TileSet(AREA)
    journal.read_into(found)
    return [tile for tile in TILES if tile in found]


def reopen(store: JournalStore, journal: Journal) -> Journal:
    journal.close()
    return store.open(NAME)


def test_new_journal_is_empty(journal: Journal) -> None:
    assert (journal.complete, journal.count, read_tiles(journal)) == (False, 0, [])


@pytest.mark.parametrize("groups", [[TILES[:1]], [TILES[:5], TILES[5:6], TILES[6:]]])
def test_appended_tiles_are_read_back_before_and_after_reopening(
    store: JournalStore, journal: Journal, groups: Sequence[Sequence[TileId]]
) -> None:
    appended = [tile for group in groups for tile in group]
    for group in groups:
        journal.append(group)
        journal.flush()
    assert (journal.count, read_tiles(journal)) == (len(appended), appended)
    again = reopen(store, journal)
    assert (again.complete, again.count, read_tiles(again)) == (False, len(appended), appended)
    again.close()


def test_reopened_journal_continues_appending(store: JournalStore, journal: Journal) -> None:
    for first in range(4):
        journal.append(TILES[first : first + 1])
        journal.flush()
        journal = reopen(store, journal)
    assert read_tiles(journal) == TILES[:4]
    journal.append(TILES[4:5])
    assert journal.count == 5
    journal.close()


def test_appending_nothing_changes_nothing(journal: Journal) -> None:
    journal.append([])
    journal.flush()
    assert journal.count == 0


def test_group_may_mix_sources_and_zoom_levels(journal: Journal) -> None:
    journal.append([TILES[0], TileId(source="b", zoom=21, x=2**21 - 1, y=0), TILES[-1]])
    assert journal.count == 3
    assert read_tiles(journal) == [TILES[0], TILES[-1]]


def test_large_group_is_appended_completely(store: JournalStore, journal: Journal) -> None:
    area = TileCoverage(bbox=BBox(west=36.0, south=49.0, east=37.0, north=50.0), zoom_levels=[15])
    tiles = list(area.tiles("sat"))
    assert len(tiles) > 10_000
    journal.append(tiles)
    journal.flush()
    again, found = reopen(store, journal), TileSet(area)
    again.read_into(found)
    assert again.count == len(found) == len(tiles)
    again.close()


def test_journals_are_independent(store: JournalStore, journal: Journal) -> None:
    journal.append(TILES[:3])
    other = store.open("flight-8__0123456789abcdef.json")
    assert other.count == 0
    other.close()


def test_finished_journal_is_complete_and_keeps_count(
    store: JournalStore, journal: Journal
) -> None:
    journal.append(TILES[:100])
    journal.finish()
    assert (journal.complete, journal.count) == (True, 100)
    again = reopen(store, journal)
    assert (again.complete, again.count) == (True, 100)
    again.close()


def test_finished_journal_lists_no_tiles(store: JournalStore, journal: Journal) -> None:
    journal.append(TILES[:3])
    journal.finish()
    assert read_tiles(journal) == []
    again = reopen(store, journal)
    assert read_tiles(again) == []
    again.close()


def test_finished_journal_rejects_tiles_and_finish_is_idempotent(
    store: JournalStore, journal: Journal
) -> None:
    journal.append(TILES[:3])
    journal.finish()
    with pytest.raises(StorageError, match="complete"):
        journal.append(TILES[3:4])
    journal.append([])
    journal.flush()
    journal.finish()
    again = reopen(store, journal)
    with pytest.raises(StorageError, match="complete"):
        again.append(TILES[3:4])
    again.finish()
    assert again.count == 3
    again.close()


def test_empty_journal_can_be_finished(store: JournalStore, journal: Journal) -> None:
    journal.finish()
    again = reopen(store, journal)
    assert (again.complete, again.count) == (True, 0)
    again.close()


def test_closed_journal_raises(journal: Journal) -> None:
    journal.append(TILES[:1])
    journal.close()
    journal.close()
    with pytest.raises(StorageError, match="closed"):
        journal.append(TILES[1:2])
    for call in (journal.flush, journal.finish):
        with pytest.raises(StorageError, match="closed"):
            call()
    with pytest.raises(StorageError, match="closed"):
        read_tiles(journal)


def test_journal_name_of_request_is_accepted(store: JournalStore) -> None:
    request = DownloadRequest(
        flight_id="F" * 64,
        bbox=AREA.bbox,
        zoom_levels=[11],
        sector_class=SectorClass.STABLE_REAR,
        cache_root=Path("cache"),
    )
    store.open(request.journal_name("ab" * 32)).close()


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "flight-7.json",
        "__0123456789abcdef.json",
        "../x__0123456789abcdef.json",
        "/x__0123456789abcdef.json",
        "a/b__0123456789abcdef.json",
        "a..b__0123456789abcdef.json",
        ".a__0123456789abcdef.json",
        "a\0__0123456789abcdef.json",
        "a\n__0123456789abcdef.json",
        "a__0123456789abcdef.json\n",
        "a__0123456789abcdef.json.tmp",
        "a__0123456789ABCDEF.json",
        "a__0123456789abcde.json",
        "ä__0123456789abcdef.json",
        "a" * 65 + "__0123456789abcdef.json",
        None,
        b"a__0123456789abcdef.json",
    ],
)
def test_invariant_26_invalid_journal_name_is_rejected(store: JournalStore, name: Any) -> None:
    with pytest.raises(InvalidValueError, match="journal name"):
        store.open(name)


def test_discarded_journal_starts_empty(store: JournalStore, journal: Journal) -> None:
    journal.append(TILES[:3])
    journal.flush()
    journal.close()
    store.discard(NAME)
    store.discard(NAME)  # there is none any more
    again = store.open(NAME)
    assert (again.complete, again.count, read_tiles(again)) == (False, 0, [])
    again.close()


def test_discard_complete_keeps_unfinished_journals(store: JournalStore) -> None:
    other = "flight-8__0123456789abcdef.json"
    for name in (NAME, other):
        journal = store.open(name)
        journal.append(TILES[:3])
        journal.flush()
        if name == NAME:
            journal.finish()
        journal.close()
    store.discard_complete()
    done, begun = store.open(NAME), store.open(other)
    assert (done.complete, done.count) == (False, 0)
    assert read_tiles(begun) == TILES[:3]
    done.close()
    begun.close()
