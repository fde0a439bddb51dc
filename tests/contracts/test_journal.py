"""What every JournalStore must do."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tileferry.adapters.filesystem.journal import FileJournalStore
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


def tiles_in(journal: Journal) -> list[TileId]:
    found = TileSet(AREA)
    journal.read_into(found)
    return [tile for tile in TILES if tile in found]


def reopened(store: JournalStore, journal: Journal) -> Journal:
    journal.close()
    return store.open(NAME)


def test_a_new_journal_is_empty(journal: Journal) -> None:
    assert (journal.complete, journal.count, tiles_in(journal)) == (False, 0, [])


@pytest.mark.parametrize("groups", [[TILES[:1]], [TILES[:5], TILES[5:6], TILES[6:]]])
def test_what_was_appended_is_read_back_now_and_after_opening_again(
    store: JournalStore, journal: Journal, groups: Sequence[Sequence[TileId]]
) -> None:
    appended = [tile for group in groups for tile in group]
    for group in groups:
        journal.append(group)
        journal.flush()
    assert (journal.count, tiles_in(journal)) == (len(appended), appended)
    again = reopened(store, journal)
    assert (again.complete, again.count, tiles_in(again)) == (False, len(appended), appended)
    again.close()


def test_a_later_run_goes_on_where_the_earlier_stopped(
    store: JournalStore, journal: Journal
) -> None:
    for first in range(4):
        journal.append(TILES[first : first + 1])
        journal.flush()
        journal = reopened(store, journal)
    assert tiles_in(journal) == TILES[:4]
    journal.append(TILES[4:5])
    assert journal.count == 5
    journal.close()


def test_appending_nothing_changes_nothing(journal: Journal) -> None:
    journal.append([])
    journal.flush()
    assert journal.count == 0


def test_a_group_may_be_of_several_sources_and_levels(journal: Journal) -> None:
    journal.append([TILES[0], TileId(source="b", zoom=21, x=2**21 - 1, y=0), TILES[-1]])
    assert journal.count == 3
    assert tiles_in(journal) == [TILES[0], TILES[-1]]


def test_a_large_group_is_taken_whole(store: JournalStore, journal: Journal) -> None:
    area = TileCoverage(bbox=BBox(west=36.0, south=49.0, east=37.0, north=50.0), zoom_levels=[15])
    tiles = list(area.tiles("sat"))
    assert len(tiles) > 10_000
    journal.append(tiles)
    journal.flush()
    again, found = reopened(store, journal), TileSet(area)
    again.read_into(found)
    assert again.count == len(found) == len(tiles)
    again.close()


def test_journals_do_not_mix(store: JournalStore, journal: Journal) -> None:
    journal.append(TILES[:3])
    other = store.open("flight-8__0123456789abcdef.json")
    assert other.count == 0
    other.close()


def test_spec5_ac8_a_finished_journal_says_so_and_keeps_the_count(
    store: JournalStore, journal: Journal
) -> None:
    journal.append(TILES[:100])
    journal.finish()
    assert (journal.complete, journal.count) == (True, 100)
    again = reopened(store, journal)
    assert (again.complete, again.count) == (True, 100)
    again.close()


def test_a_finished_journal_lists_no_tiles(store: JournalStore, journal: Journal) -> None:
    journal.append(TILES[:3])
    journal.finish()
    assert tiles_in(journal) == []
    again = reopened(store, journal)
    assert tiles_in(again) == []
    again.close()


def test_a_finished_journal_takes_no_tiles_but_may_be_finished_again(
    store: JournalStore, journal: Journal
) -> None:
    journal.append(TILES[:3])
    journal.finish()
    with pytest.raises(StorageError, match="complete"):
        journal.append(TILES[3:4])
    journal.append([])
    journal.flush()
    journal.finish()
    again = reopened(store, journal)
    with pytest.raises(StorageError, match="complete"):
        again.append(TILES[3:4])
    again.finish()
    assert again.count == 3
    again.close()


def test_a_request_without_tiles_can_be_complete(store: JournalStore, journal: Journal) -> None:
    journal.finish()
    again = reopened(store, journal)
    assert (again.complete, again.count) == (True, 0)
    again.close()


def test_a_closed_journal_refuses_to_work(journal: Journal) -> None:
    journal.append(TILES[:1])
    journal.close()
    journal.close()
    with pytest.raises(StorageError, match="closed"):
        journal.append(TILES[1:2])
    for call in (journal.flush, journal.finish):
        with pytest.raises(StorageError, match="closed"):
            call()
    with pytest.raises(StorageError, match="closed"):
        tiles_in(journal)


def test_the_name_that_a_request_gives_is_taken(store: JournalStore) -> None:
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
def test_invariant_26_only_a_plain_name_of_the_agreed_form_is_taken(
    store: JournalStore, name: Any
) -> None:
    with pytest.raises(InvalidValueError, match="journal name"):
        store.open(name)


def test_a_discarded_journal_begins_anew(store: JournalStore, journal: Journal) -> None:
    journal.append(TILES[:3])
    journal.flush()
    journal.close()
    store.discard(NAME)
    store.discard(NAME)  # there is none any more
    again = store.open(NAME)
    assert (again.complete, again.count, tiles_in(again)) == (False, 0, [])
    again.close()


def test_complete_journals_are_discarded_and_others_are_not(store: JournalStore) -> None:
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
    assert tiles_in(begun) == TILES[:3]
    done.close()
    begun.close()
