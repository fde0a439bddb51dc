"""Importing into a cache in memory: gates, what is there already, and what an end leaves."""

from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve
from support.archives import (
    NOW,
    MemoryCache,
    create_archived_tile,
    create_image,
    create_import_request,
    create_tile_id,
)

from tileferry.adapters.memory import MemoryArchive
from tileferry.application.archive.archive_import import ImportReport, ImportRequest
from tileferry.application.cache import bulk_store, tile_lookup
from tileferry.application.cache.group_commit import GroupLimits
from tileferry.application.cache.tile_lookup import StoredTiles
from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.application.ports.progress import ItemsProcessed, ProgressEvent, Task
from tileferry.domain.archives import TileFacts
from tileferry.domain.errors import (
    CacheBudgetExceededError,
    CacheLockError,
    InvalidValueError,
    Remedy,
)
from tileferry.domain.tiles import FreshnessLabel, SectorClass, TileId, VotingStatus

PLACES = [create_tile_id(15, 19_000 + x, 11_000 + y) for x in range(3) for y in range(4)]
ALONE = create_tile_id(12, 7, 7)


@pytest.fixture
def cache() -> MemoryCache:
    cache = MemoryCache()
    cache.lock.acquire()
    return cache


@pytest.fixture
def archive() -> MemoryArchive:
    return MemoryArchive(items=[create_archived_tile(tile) for tile in [ALONE, *PLACES]])


def import_archive(
    cache: MemoryCache, archive: MemoryArchive, request: ImportRequest | None = None
) -> ImportReport:
    return cache.create_importer().import_archive(archive, request or create_import_request())


def tile_without_facts(tile: TileId) -> ArchivedTile:
    return ArchivedTile(tile_id=tile, content=create_image(str(tile)))


def test_imported_tiles_keep_archive_metadata(cache: MemoryCache, archive: MemoryArchive) -> None:
    report = import_archive(cache, archive)
    assert report.tiles_imported == 13
    assert report.bytes_imported == sum(len(create_image(str(tile))) for tile in [ALONE, *PLACES])
    assert (report.tiles_unchanged, report.entries_refused, report.refused) == (0, 0, ())
    row = cache.get_row(ALONE)
    assert cache.read_content(ALONE) == create_image(str(ALONE))
    assert TileFacts.from_metadata(row) == create_archived_tile(ALONE).facts
    assert (row.flight_id, row.voting_status) == ("import", VotingStatus.TRUSTED)
    assert cache.ledger.sum_reserved_bytes() == 0


def test_second_import_changes_nothing(cache: MemoryCache, archive: MemoryArchive) -> None:
    import_archive(cache, archive)
    before = cache.rows.all_tiles()
    report = import_archive(cache, archive)
    assert (report.tiles_imported, report.tiles_unchanged) == (0, 13)
    assert cache.rows.all_tiles() == before


def test_import_requires_cache_lock(archive: MemoryArchive) -> None:
    with pytest.raises(CacheLockError):
        import_archive(MemoryCache(), archive)


def test_import_requires_budget_for_new_tiles_only(
    cache: MemoryCache, archive: MemoryArchive
) -> None:
    size = sum(size for _, size in archive.iter_sizes("sat"))
    cache.budget_bytes = size - 1
    with pytest.raises(CacheBudgetExceededError):
        import_archive(cache, archive)
    assert cache.rows.all_tiles() == []
    cache.budget_bytes = size
    import_archive(cache, archive)
    assert import_archive(cache, archive).tiles_unchanged == 13


def test_eviction_spares_tiles_of_the_archive(cache: MemoryCache) -> None:
    stored, more, strange = PLACES[0], PLACES[1], create_tile_id(15, 1, 1, "other")
    cache.put(stored)
    cache.clock.advance(10)
    cache.put(strange, create_image(str(more)))
    cache.budget_bytes = len(create_image(str(stored))) + len(create_image(str(more)))
    archive = MemoryArchive(items=[create_archived_tile(stored), create_archived_tile(more)])
    report = import_archive(cache, archive)
    assert (report.tiles_imported, report.tiles_unchanged) == (1, 1)
    assert cache.rows.get_metadata(strange) is None


def test_request_defaults_fill_missing_archive_metadata(cache: MemoryCache) -> None:
    archive = MemoryArchive(items=[tile_without_facts(PLACES[0]), create_archived_tile(PLACES[1])])
    day = NOW - timedelta(days=3)
    import_archive(cache, archive, create_import_request(produced_at=day, resolution=0.9))
    said, told = cache.get_row(PLACES[0]), cache.get_row(PLACES[1])
    assert (said.produced_at, said.resolution_m_per_px) == (day, 0.9)
    assert (told.produced_at, told.resolution_m_per_px) == (NOW - timedelta(days=1), 0.6)


def test_resolution_defaults_to_ground_resolution_of_zoom(cache: MemoryCache) -> None:
    import_archive(
        cache,
        MemoryArchive(items=[tile_without_facts(PLACES[0])]),
        create_import_request(produced_at=NOW),
    )
    assert cache.get_row(PLACES[0]).resolution_m_per_px == pytest.approx(3.03, abs=0.01)


def import_with_one_refusal(cache: MemoryCache, item: ArchivedTile, request: ImportRequest) -> str:
    report = import_archive(
        cache, MemoryArchive(items=[item, create_archived_tile(ALONE)]), request
    )
    assert (report.entries_refused, report.tiles_imported) == (1, 1)
    assert report.refused[0].place == str(item.tile_id)
    assert cache.rows.get_metadata(item.tile_id) is None
    return report.refused[0].problem


def test_each_gate_rejects_only_the_offending_tile() -> None:
    good = create_archived_tile(PLACES[0])
    facts = good.facts
    for item, request, problem in (
        (tile_without_facts(PLACES[0]), create_import_request(), "produced_at: is unknown"),
        (evolve(good, content=b"<html>"), create_import_request(), "is not a PNG, JPEG"),
        (evolve(good, content=b""), create_import_request(), "is empty"),
        (evolve(good, content=good.content[:-9]), create_import_request(), "is incomplete"),
        (
            evolve(good, content=good.content + b"<script>"),
            create_import_request(),
            "after the end",
        ),
        (
            evolve(good, content=create_image("x")),
            create_import_request(),
            "sha256 mismatch",
        ),
        (
            evolve(good, facts=evolve(facts, resolution_m_per_px=0.4)),
            create_import_request(),
            "is below minimum",
        ),
        (
            create_archived_tile(PLACES[0], days=400),
            create_import_request(sector=SectorClass.ACTIVE_CONFLICT),
            "old",
        ),
    ):
        assert problem in import_with_one_refusal(locked_cache(), item, request)


def locked_cache() -> MemoryCache:
    cache = MemoryCache()
    cache.lock.acquire()
    return cache


def test_stale_tile_is_downgraded_in_stable_rear(cache: MemoryCache) -> None:
    report = import_archive(cache, MemoryArchive(items=[create_archived_tile(ALONE, days=400)]))
    assert (report.tiles_imported, report.tiles_downgraded) == (1, 1)
    assert cache.get_row(ALONE).freshness is FreshnessLabel.DOWNGRADED


def test_unreadable_archive_entries_are_reported(cache: MemoryCache) -> None:
    archive = MemoryArchive(
        items=[RefusedEntry(place="99/1/1", problem="no such zoom"), create_archived_tile(ALONE)]
    )
    report = import_archive(cache, archive)
    assert report.refused == (RefusedEntry(place="99/1/1", problem="no such zoom"),)
    assert report.tiles_imported == 1


def test_all_refusals_are_counted_but_listing_is_capped(
    cache: MemoryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_store, "NAMED_MAX", 2)
    report = import_archive(
        cache, MemoryArchive(items=[RefusedEntry(place=str(n), problem="bad") for n in range(5)])
    )
    assert (report.entries_refused, len(report.refused)) == (5, 2)


def test_different_bytes_are_rejected_without_replace(cache: MemoryCache) -> None:
    cache.put(ALONE, create_image("old"), days=9)
    archive = MemoryArchive(items=[create_archived_tile(ALONE)])
    report = import_archive(cache, archive)
    assert report.refused[0].remedy is Remedy.ALLOW_REPLACING_TILES
    assert cache.read_content(ALONE) == create_image("old")
    assert import_archive(cache, archive, create_import_request(replaces=True)).tiles_imported == 1
    assert cache.read_content(ALONE) == create_image(str(ALONE))


@pytest.mark.parametrize(
    ("between", "replaces"),
    [(0, False), (1, False), (5, False), (20, False), (0, True), (1, True), (3, True), (5, True)],
)
def test_first_of_duplicate_archive_entries_wins(
    cache: MemoryCache, monkeypatch: pytest.MonkeyPatch, between: int, *, replaces: bool
) -> None:
    """Also where its group is not committed yet, so that the cache does not show it."""
    monkeypatch.setattr(tile_lookup, "BATCH_TILES_MAX", 2)
    others = [create_archived_tile(create_tile_id(15, 19_000, 12_000 + y)) for y in range(between)]
    first = create_archived_tile(PLACES[0])
    second = create_archived_tile(PLACES[0], create_image("second"))
    archive = MemoryArchive(items=[first, *others, second, first])
    importer = cache.create_importer()
    importer.group = GroupLimits(tiles_max=4)
    report = importer.import_archive(archive, create_import_request(replaces=replaces))
    assert (report.tiles_imported, report.tiles_unchanged) == (1 + between, 1)
    assert [entry.place for entry in report.refused] == [str(PLACES[0])]
    assert cache.read_content(PLACES[0]) == create_image(str(PLACES[0]))


def test_newer_or_pending_tiles_are_not_replaced(cache: MemoryCache) -> None:
    cache.put(ALONE, create_image("newer"), days=0)
    cache.put(PLACES[0], create_image("captured"), status=VotingStatus.PENDING)
    archive = MemoryArchive(
        items=[create_archived_tile(ALONE), create_archived_tile(PLACES[0], days=0)]
    )
    report = import_archive(cache, archive, create_import_request(replaces=True))
    assert report.entries_refused == 2
    assert all("is older than the tile in the cache" in entry.problem for entry in report.refused)
    assert cache.read_content(ALONE) == create_image("newer")
    assert cache.read_content(PLACES[0]) == create_image("captured")


def test_damaged_tile_is_repaired_and_keeps_its_date(cache: MemoryCache) -> None:
    cache.put(ALONE, days=0)
    cache.lose_bytes(ALONE)
    report = import_archive(cache, MemoryArchive(items=[create_archived_tile(ALONE, days=5)]))
    assert (report.tiles_imported, report.tiles_unchanged) == (1, 0)
    assert cache.read_content(ALONE) == create_image(str(ALONE))
    assert cache.get_row(ALONE).produced_at == NOW


def test_interrupted_import_keeps_imported_tiles(
    cache: MemoryCache, archive: MemoryArchive
) -> None:
    seen: list[ProgressEvent] = []

    def listen(event: ProgressEvent) -> None:
        seen.append(event)
        if len(seen) == 7:
            raise KeyboardInterrupt

    importer = cache.create_importer()
    importer.progress = listen
    with pytest.raises(KeyboardInterrupt):
        importer.import_archive(archive, create_import_request())
    assert seen == [ItemsProcessed(task=Task.IMPORT)] * 7
    assert len(cache.rows.all_tiles()) == 7
    assert cache.ledger.sum_reserved_bytes() == 0
    report = import_archive(cache, archive)
    assert (report.tiles_unchanged, report.tiles_imported) == (7, 6)


def test_tiles_become_visible_in_groups(cache: MemoryCache, archive: MemoryArchive) -> None:
    importer = cache.create_importer()
    importer.group = GroupLimits(tiles_max=4)
    seen: list[int] = []
    importer.progress = lambda _event: seen.append(len(cache.rows.all_tiles()))
    importer.import_archive(archive, create_import_request())
    assert seen == [0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12]


def test_long_column_is_looked_up_in_batches(
    cache: MemoryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = [create_tile_id(15, 9, 100 + y) for y in range(9)]
    for tile in column[::2]:
        cache.put(tile)
    archive = MemoryArchive(items=[create_archived_tile(tile) for tile in column])
    monkeypatch.setattr(tile_lookup, "BATCH_TILES_MAX", 4)
    assert import_archive(cache, archive).tiles_unchanged == 5
    monkeypatch.setattr(tile_lookup, "BATCH_BYTES_MAX", 1)
    assert import_archive(cache, archive).tiles_unchanged == 9


def test_empty_archive_imports_nothing(cache: MemoryCache) -> None:
    assert import_archive(cache, MemoryArchive()).tiles_imported == 0


def test_stored_tiles_membership() -> None:
    stored = StoredTiles("sat")
    for tile in (PLACES[3], PLACES[0]):
        stored.add(tile)
    stored.sort()
    assert PLACES[0] in stored
    assert PLACES[3] in stored
    assert PLACES[1] not in stored
    assert create_tile_id(21, 2_000_000, 2_000_000) not in stored
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
def test_invalid_import_request_is_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        evolve(create_import_request(), **wrong)
