"""Importing into a cache in memory: gates, what is there already, and what an end leaves."""

from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve
from support.archives import NOW, MemoryCache, archived, offered, picture, place

from tileferry.adapters.memory import MemoryArchive
from tileferry.application.cache import first_few, known_tiles
from tileferry.application.cache.archive_import import ImportReport, ImportRequest
from tileferry.application.cache.group_commit import GroupLimits
from tileferry.application.cache.known_tiles import StoredTiles
from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.domain.archives import TileFacts
from tileferry.domain.errors import CacheBudgetExceededError, CacheLockError, InvalidValueError
from tileferry.domain.tiles import FreshnessLabel, SectorClass, TileId, VotingStatus

PLACES = [place(15, 19_000 + x, 11_000 + y) for x in range(3) for y in range(4)]
ALONE = place(12, 7, 7)


@pytest.fixture
def cache() -> MemoryCache:
    cache = MemoryCache()
    cache.lock.acquire()
    return cache


@pytest.fixture
def archive() -> MemoryArchive:
    return MemoryArchive(items=[archived(tile) for tile in [ALONE, *PLACES]])


def take(
    cache: MemoryCache, archive: MemoryArchive, request: ImportRequest | None = None
) -> ImportReport:
    return cache.importer().import_archive(archive, request or offered())


def without_facts(tile: TileId) -> ArchivedTile:
    return ArchivedTile(tile_id=tile, content=picture(str(tile)))


def test_tiles_come_in_with_what_is_known_of_them(
    cache: MemoryCache, archive: MemoryArchive
) -> None:
    report = take(cache, archive)
    assert report.tiles_imported == 13
    assert report.bytes_imported == sum(len(picture(str(tile))) for tile in [ALONE, *PLACES])
    assert (report.tiles_unchanged, report.entries_refused, report.refused) == (0, 0, ())
    row = cache.row(ALONE)
    assert cache.content(ALONE) == picture(str(ALONE))
    assert TileFacts.of(row) == archived(ALONE).facts
    assert (row.flight_id, row.voting_status) == ("import", VotingStatus.TRUSTED)
    assert cache.ledger.reserved_bytes() == 0


def test_a_second_import_changes_nothing(cache: MemoryCache, archive: MemoryArchive) -> None:
    take(cache, archive)
    before = cache.rows.all_tiles()
    report = take(cache, archive)
    assert (report.tiles_imported, report.tiles_unchanged) == (0, 13)
    assert cache.rows.all_tiles() == before


def test_it_needs_the_lock(archive: MemoryArchive) -> None:
    with pytest.raises(CacheLockError):
        take(MemoryCache(), archive)


def test_it_needs_room_for_what_is_not_there_yet(
    cache: MemoryCache, archive: MemoryArchive
) -> None:
    size = sum(size for _, size in archive.sizes("sat"))
    cache.budget_bytes = size - 1
    with pytest.raises(CacheBudgetExceededError):
        take(cache, archive)
    assert cache.rows.all_tiles() == []
    cache.budget_bytes = size
    take(cache, archive)
    assert take(cache, archive).tiles_unchanged == 13


def test_making_room_does_not_evict_what_the_archive_has(cache: MemoryCache) -> None:
    stored, more, strange = PLACES[0], PLACES[1], place(15, 1, 1, "other")
    cache.has(stored)
    cache.clock.pass_time(10)
    cache.has(strange, picture(str(more)))
    cache.budget_bytes = len(picture(str(stored))) + len(picture(str(more)))
    archive = MemoryArchive(items=[archived(stored), archived(more)])
    report = take(cache, archive)
    assert (report.tiles_imported, report.tiles_unchanged) == (1, 1)
    assert cache.rows.get_metadata(strange) is None


def test_what_the_operator_says_counts_where_the_archive_is_silent(cache: MemoryCache) -> None:
    archive = MemoryArchive(items=[without_facts(PLACES[0]), archived(PLACES[1])])
    day = NOW - timedelta(days=3)
    take(cache, archive, offered(produced_at=day, resolution=0.9))
    said, told = cache.row(PLACES[0]), cache.row(PLACES[1])
    assert (said.produced_at, said.resolution_m_per_px) == (day, 0.9)
    assert (told.produced_at, told.resolution_m_per_px) == (NOW - timedelta(days=1), 0.6)


def test_without_any_word_a_pixel_covers_what_the_level_has(cache: MemoryCache) -> None:
    take(cache, MemoryArchive(items=[without_facts(PLACES[0])]), offered(produced_at=NOW))
    assert cache.row(PLACES[0]).resolution_m_per_px == pytest.approx(3.03, abs=0.01)


def _refusals(cache: MemoryCache, item: ArchivedTile, request: ImportRequest) -> str:
    report = take(cache, MemoryArchive(items=[item, archived(ALONE)]), request)
    assert (report.entries_refused, report.tiles_imported) == (1, 1)
    assert report.refused[0].place == str(item.tile_id)
    assert cache.rows.get_metadata(item.tile_id) is None
    return report.refused[0].problem


def test_each_gate_refuses_a_tile_and_no_other() -> None:
    good = archived(PLACES[0])
    facts = good.facts
    for item, request, problem in (
        (without_facts(PLACES[0]), offered(), "produced_at: is not known"),
        (evolve(good, content=b"<html>"), offered(), "is no PNG, JPEG or WebP"),
        (evolve(good, content=b""), offered(), "is empty"),
        (evolve(good, content=picture("x")), offered(), "is not what the archive says"),
        (
            evolve(good, facts=evolve(facts, resolution_m_per_px=0.4)),
            offered(),
            "is below minimum",
        ),
        (archived(PLACES[0], days=400), offered(sector=SectorClass.ACTIVE_CONFLICT), "old"),
    ):
        assert problem in _refusals(_locked(), item, request)


def _locked() -> MemoryCache:
    cache = MemoryCache()
    cache.lock.acquire()
    return cache


def test_a_stale_tile_is_downgraded_in_the_rear(cache: MemoryCache) -> None:
    report = take(cache, MemoryArchive(items=[archived(ALONE, days=400)]))
    assert (report.tiles_imported, report.tiles_downgraded) == (1, 1)
    assert cache.row(ALONE).freshness is FreshnessLabel.DOWNGRADED


def test_what_the_archive_cannot_read_is_named(cache: MemoryCache) -> None:
    archive = MemoryArchive(
        items=[RefusedEntry(place="99/1/1", problem="no such zoom"), archived(ALONE)]
    )
    report = take(cache, archive)
    assert report.refused == (RefusedEntry(place="99/1/1", problem="no such zoom"),)
    assert report.tiles_imported == 1


def test_of_many_refusals_all_are_counted_and_some_named(
    cache: MemoryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_few, "NAMED_MAX", 2)
    report = take(
        cache, MemoryArchive(items=[RefusedEntry(place=str(n), problem="bad") for n in range(5)])
    )
    assert (report.entries_refused, len(report.refused)) == (5, 2)


def test_other_bytes_are_refused_unless_they_may_replace(cache: MemoryCache) -> None:
    cache.has(ALONE, picture("old"), days=9)
    archive = MemoryArchive(items=[archived(ALONE)])
    report = take(cache, archive)
    assert "--replace-tiles" in report.refused[0].problem
    assert cache.content(ALONE) == picture("old")
    assert take(cache, archive, offered(replaces=True)).tiles_imported == 1
    assert cache.content(ALONE) == picture(str(ALONE))


@pytest.mark.parametrize(
    ("between", "replaces"),
    [(0, False), (1, False), (5, False), (20, False), (0, True), (1, True), (3, True), (5, True)],
)
def test_of_a_tile_that_is_there_twice_the_first_is_taken(
    cache: MemoryCache, monkeypatch: pytest.MonkeyPatch, between: int, *, replaces: bool
) -> None:
    """Also where its group is not committed yet, so that the cache does not show it."""
    monkeypatch.setattr(known_tiles, "BATCH_TILES_MAX", 2)
    others = [archived(place(15, 19_000, 12_000 + y)) for y in range(between)]
    first = archived(PLACES[0])
    second = archived(PLACES[0], picture("second"))
    archive = MemoryArchive(items=[first, *others, second, first])
    importer = cache.importer()
    importer.group = GroupLimits(tiles_max=4)
    report = importer.import_archive(archive, offered(replaces=replaces))
    assert (report.tiles_imported, report.tiles_unchanged) == (1 + between, 1)
    assert [entry.place for entry in report.refused] == [str(PLACES[0])]
    assert cache.content(PLACES[0]) == picture(str(PLACES[0]))


def test_what_is_newer_or_waits_for_its_upload_stays(cache: MemoryCache) -> None:
    cache.has(ALONE, picture("newer"), days=0)
    cache.has(PLACES[0], picture("captured"), status=VotingStatus.PENDING)
    archive = MemoryArchive(items=[archived(ALONE), archived(PLACES[0], days=0)])
    report = take(cache, archive, offered(replaces=True))
    assert report.entries_refused == 2
    assert all("that one stays" in entry.problem for entry in report.refused)
    assert cache.content(ALONE) == picture("newer")
    assert cache.content(PLACES[0]) == picture("captured")


def test_a_damaged_tile_is_mended_and_stays_as_young_as_it_was(cache: MemoryCache) -> None:
    cache.has(ALONE, days=0)
    cache.loses(ALONE)
    report = take(cache, MemoryArchive(items=[archived(ALONE, days=5)]))
    assert (report.tiles_imported, report.tiles_unchanged) == (1, 0)
    assert cache.content(ALONE) == picture(str(ALONE))
    assert cache.row(ALONE).produced_at == NOW


def test_who_interrupts_it_keeps_what_was_taken(cache: MemoryCache, archive: MemoryArchive) -> None:
    seen: list[int] = []

    def on_tile() -> None:
        seen.append(1)
        if len(seen) == 7:
            raise KeyboardInterrupt

    importer = cache.importer()
    importer.on_tile = on_tile
    with pytest.raises(KeyboardInterrupt):
        importer.import_archive(archive, offered())
    assert len(cache.rows.all_tiles()) == 7
    assert cache.ledger.reserved_bytes() == 0
    report = take(cache, archive)
    assert (report.tiles_unchanged, report.tiles_imported) == (7, 6)


def test_tiles_become_visible_in_groups(cache: MemoryCache, archive: MemoryArchive) -> None:
    importer = cache.importer()
    importer.group = GroupLimits(tiles_max=4)
    seen: list[int] = []
    importer.on_tile = lambda: seen.append(len(cache.rows.all_tiles()))
    importer.import_archive(archive, offered())
    assert seen == [0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12]


def test_a_long_column_is_looked_up_in_parts(
    cache: MemoryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = [place(15, 9, 100 + y) for y in range(9)]
    for tile in column[::2]:
        cache.has(tile)
    archive = MemoryArchive(items=[archived(tile) for tile in column])
    monkeypatch.setattr(known_tiles, "BATCH_TILES_MAX", 4)
    assert take(cache, archive).tiles_unchanged == 5
    monkeypatch.setattr(known_tiles, "BATCH_BYTES_MAX", 1)
    assert take(cache, archive).tiles_unchanged == 9


def test_an_empty_archive_imports_nothing(cache: MemoryCache) -> None:
    assert take(cache, MemoryArchive()).tiles_imported == 0


def test_stored_tiles_are_told_from_others() -> None:
    stored = StoredTiles("sat")
    for tile in (PLACES[3], PLACES[0]):
        stored.note(tile)
    stored.sort()
    assert PLACES[0] in stored
    assert PLACES[3] in stored
    assert PLACES[1] not in stored
    assert place(21, 2_000_000, 2_000_000) not in stored
    assert evolve(PLACES[0], source="other") not in stored
    assert "sat/15/1/1" not in stored


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": "../x"},
        {"flight_id": "a/b"},
        {"produced_at": NOW.replace(tzinfo=None)},
        {"resolution_m_per_px": 0.0},
        {"sector_class": "stable_rear"},
    ],
)
def test_a_wrong_request_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        evolve(offered(), **wrong)
