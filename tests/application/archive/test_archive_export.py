"""Exporting from a cache in memory: what is written, checked, left out and refused."""

import random
from collections.abc import Iterator

import pytest
from attrs import evolve
from support.archives import (
    MemoryCache,
    collect_tiles,
    create_export_request,
    create_image,
    create_tile_id,
)

from tileferry.adapters.memory import MemoryArchive
from tileferry.adapters.memory.archives import MemoryArchiveDraft
from tileferry.application.cache import bulk_store
from tileferry.application.cache.tile_lookup import read_verified_tile
from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.application.ports.progress import ItemsProcessed, ProgressEvent, Task
from tileferry.domain.archives import ArchiveDescription, TileFacts, TileOrder, zxy_to_number
from tileferry.domain.errors import ArchiveError, DamagedTileError, StorageError
from tileferry.domain.tiles import BBox, BlobRef, TileCoverage, TileId, TileMetadata

PLACES = [create_tile_id(15, 19_000 + x, 11_000 + y) for x in range(3) for y in range(40)]


@pytest.fixture
def cache() -> MemoryCache:
    cache = MemoryCache()
    for tile in [create_tile_id(0, 0, 0), *PLACES, create_tile_id(15, 5, 5, "other")]:
        cache.put(tile)
    return cache


def tile_numbers(archive: MemoryArchive) -> list[int]:
    return [
        zxy_to_number(item.tile_id.zoom, item.tile_id.x, item.tile_id.y)
        for item in archive.items
        if isinstance(item, ArchivedTile)
    ]


@pytest.mark.parametrize("order", TileOrder)
def test_tiles_of_overlapping_areas_are_exported_once(cache: MemoryCache, order: TileOrder) -> None:
    whole = create_export_request()
    archive = MemoryArchive(order=order)
    request = evolve(whole, coverages=whole.coverages * 2)
    assert cache.create_exporter().export(request, archive).tiles_exported == 1 + len(PLACES)


@pytest.mark.parametrize("order", TileOrder)
def test_all_visible_tiles_of_the_source_are_exported(cache: MemoryCache, order: TileOrder) -> None:
    archive = MemoryArchive(order=order)
    report = cache.create_exporter().export(create_export_request(attribution="© us"), archive)
    tiles = [create_tile_id(0, 0, 0), *PLACES]
    assert collect_tiles(archive.items) == {tile: cache.read_content(tile) for tile in tiles}
    assert report.tiles_exported == len(archive.items) == len(tiles)
    assert report.bytes_exported == sum(len(cache.read_content(tile)) for tile in tiles)
    assert (report.tiles_damaged, report.damaged) == (0, ())
    assert archive.about == report.about
    assert (report.about.name, report.about.attribution) == ("area", "© us")
    assert (report.about.zoom_min, report.about.zoom_max) == (0, 15)
    item = archive.items[0]
    assert isinstance(item, ArchivedTile)
    assert item.facts == TileFacts.from_metadata(cache.get_row(item.tile_id))


def test_tiles_are_exported_in_order_of_the_format(cache: MemoryCache) -> None:
    for tile in random.Random(7).sample(range(1 << 20), 50):  # noqa: S311  # to spread them
        cache.put(create_tile_id(10, tile >> 10, tile & 1023))
    curve, columns = MemoryArchive(order=TileOrder.CURVE), MemoryArchive()
    cache.create_exporter().export(create_export_request(), curve)
    cache.create_exporter().export(create_export_request(), columns)
    assert tile_numbers(curve) == sorted(tile_numbers(columns))
    assert tile_numbers(columns) != sorted(tile_numbers(columns))


def test_export_is_limited_to_area_in_any_order(cache: MemoryCache) -> None:
    box = TileCoverage(
        bbox=BBox(west=28.745, south=50.62, east=28.76, north=50.65), zoom_levels=[15]
    )
    inside = {tile for tile in PLACES if box.contains(tile)}
    assert 0 < len(inside) < len(PLACES)
    for order in TileOrder:
        archive = MemoryArchive(order=order)
        cache.create_exporter().export(create_export_request(box), archive)
        assert collect_tiles(archive.items).keys() == inside


def test_damaged_tile_is_reported_and_others_exported(cache: MemoryCache) -> None:
    cache.lose_bytes(PLACES[7])
    archive = MemoryArchive()
    report = cache.create_exporter().export(create_export_request(), archive)
    assert report.tiles_damaged == 1
    assert [tile.tile for tile in report.damaged] == [str(PLACES[7])]
    assert PLACES[7] not in collect_tiles(archive.items)
    assert report.tiles_exported == len(PLACES)


def test_all_damaged_tiles_are_counted_but_listing_is_capped(
    cache: MemoryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_store, "NAMED_MAX", 2)
    for tile in PLACES[:5]:
        cache.lose_bytes(tile)
    report = cache.create_exporter().export(create_export_request(), MemoryArchive())
    assert (report.tiles_damaged, len(report.damaged)) == (5, 2)


def test_sha256_mismatch_is_reported_as_damage(cache: MemoryCache) -> None:
    row = cache.get_row(PLACES[0])
    cache.rows._tiles[PLACES[0]] = evolve(row, blob=evolve(row.blob, sha256="ab" * 32))
    cache.index.add(PLACES[0], row.blob)
    report = cache.create_exporter().export(create_export_request(), MemoryArchive())
    assert [(tile.tile, tile.problem) for tile in report.damaged] == [
        (str(PLACES[0]), "sha256 mismatch")
    ]


def test_empty_tile_is_reported_as_damage(cache: MemoryCache) -> None:
    cache.put(PLACES[0], b"", days=0)
    report = cache.create_exporter().export(create_export_request(), MemoryArchive())
    assert [tile.problem for tile in report.damaged] == ["it has no bytes"]


def test_tile_replaced_during_export_is_exported_in_new_version(cache: MemoryCache) -> None:
    first, gone = PLACES[0], PLACES[1]
    rows = list(
        cache.rows.query_by_bbox(create_export_request().coverages[0].bbox, [15], source="sat")
    )

    class Meanwhile:
        """Shows rows as they were, while the cache goes on."""

        def query_by_bbox(self, *_: object, **__: object) -> Iterator[TileMetadata]:
            yield from rows

        def get_metadata(self, tile: TileId) -> TileMetadata | None:
            return cache.rows.get_metadata(tile)

    newer = create_image("newer")
    cache.store._contents.pop(cache.get_row(first).blob)
    cache.put(first, newer, days=0)
    cache.store.delete_tile(gone)
    cache.rows.forget([gone])
    exporter = cache.create_exporter()
    exporter.tile_metadata_store = Meanwhile()  # type: ignore[assignment]  # what is used of it
    archive = MemoryArchive()
    report = exporter.export(create_export_request(), archive)
    found = collect_tiles(archive.items)
    assert found[first] == newer
    assert gone not in found
    assert report.tiles_damaged == 0
    assert report.tiles_exported == len(PLACES) - 1


def test_tile_evicted_during_export_is_skipped(cache: MemoryCache) -> None:
    first = PLACES[0]
    rows = [cache.get_row(first), cache.get_row(PLACES[1])]

    class Meanwhile:
        def query_by_bbox(self, *_: object, **__: object) -> Iterator[TileMetadata]:
            yield from rows

        def get_metadata(self, _tile: TileId) -> TileMetadata | None:
            return None

    cache.store._contents.pop(cache.get_row(first).blob)
    cache.put(first, create_image("newer"), days=0)
    exporter = cache.create_exporter()
    exporter.tile_metadata_store = Meanwhile()  # type: ignore[assignment]  # what is used of it
    report = exporter.export(create_export_request(), MemoryArchive())
    assert (report.tiles_exported, report.tiles_damaged) == (1, 0)


class UnreadableFirstTileArchive(MemoryArchive):
    """An archive of which the first tile cannot be read again."""

    def tiles(self, source: str) -> Iterator[ArchivedTile | RefusedEntry]:
        yield RefusedEntry(place="x", problem="unreadable")
        yield from list(super().tiles(source))[1:]


def test_archive_failing_read_back_is_not_published(
    cache: MemoryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoilt(draft: MemoryArchiveDraft, about: ArchiveDescription) -> MemoryArchive:
        return UnreadableFirstTileArchive(items=draft.sealed.items, about=about)

    monkeypatch.setattr(MemoryArchiveDraft, "seal", spoilt)
    archive = MemoryArchive()
    with pytest.raises(StorageError, match="of 121 tiles that were written, 120 were read"):
        cache.create_exporter().export(create_export_request(), archive)
    assert (archive.items, archive.about) == ([], None)


def test_export_of_no_tiles_is_rejected(cache: MemoryCache) -> None:
    archive = MemoryArchive()
    with pytest.raises(ArchiveError, match="no tile of source none in this area"):
        cache.create_exporter().export(create_export_request(source="none"), archive)
    assert archive.about is None


def test_export_of_only_damaged_tiles_is_rejected() -> None:
    cache = MemoryCache()
    cache.put(PLACES[0])
    cache.lose_bytes(PLACES[0])
    with pytest.raises(ArchiveError, match="all 1 tiles that it would have are damaged"):
        cache.create_exporter().export(create_export_request(), MemoryArchive())


def test_progress_reports_each_tile_written_and_verified(cache: MemoryCache) -> None:
    events: list[ProgressEvent] = []
    exporter = cache.create_exporter()
    exporter.progress = events.append
    exporter.export(create_export_request(), MemoryArchive())
    assert events == [ItemsProcessed(task=Task.EXPORT)] * (2 * 121)


def test_tile_that_moves_while_it_is_read_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction may move a tile again between the lookup of its place and the read."""
    cache = MemoryCache()
    tile = create_tile_id(3, 1, 2)
    cache.put(tile)
    stale = cache.get_row(tile)
    cache.put(tile)
    read = cache.store.read_tile

    def read_where_it_is(tile_id: TileId, *, blob: BlobRef) -> bytes:
        if blob == stale.blob:
            raise DamagedTileError(tile=str(tile_id), problem="its segment is missing")
        return read(tile_id, blob=blob)

    monkeypatch.setattr(type(cache.store), "read_tile", staticmethod(read_where_it_is))
    found = read_verified_tile(stale, cache.store, cache.rows)
    assert found is not None
    assert found.metadata == cache.get_row(tile)
    cache.rows.forget([tile])
    with pytest.raises(DamagedTileError):
        read_verified_tile(stale, cache.store, cache.rows)
