"""Exporting from a cache in memory: what is written, checked, left out and refused."""

import random
from collections.abc import Iterator

import pytest
from attrs import evolve
from support.archives import MemoryCache, picture, place, tiles_of, wanted

from tileferry.adapters.memory import MemoryArchive
from tileferry.adapters.memory.archives import MemoryDraft
from tileferry.application.cache import first_few
from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.domain.archives import ArchiveAbout, TileFacts, TileOrder, tile_number
from tileferry.domain.errors import ArchiveError, StorageError
from tileferry.domain.tiles import BBox, TileCoverage, TileId, TileMetadata

PLACES = [place(15, 19_000 + x, 11_000 + y) for x in range(3) for y in range(40)]


@pytest.fixture
def cache() -> MemoryCache:
    cache = MemoryCache()
    for tile in [place(0, 0, 0), *PLACES, place(15, 5, 5, "other")]:
        cache.has(tile)
    return cache


def numbers(archive: MemoryArchive) -> list[int]:
    return [
        tile_number(item.tile_id.zoom, item.tile_id.x, item.tile_id.y)
        for item in archive.items
        if isinstance(item, ArchivedTile)
    ]


@pytest.mark.parametrize("order", TileOrder)
def test_all_visible_tiles_of_the_source_are_exported(cache: MemoryCache, order: TileOrder) -> None:
    archive = MemoryArchive(order=order)
    report = cache.exporter().export(wanted(attribution="© us"), archive)
    tiles = [place(0, 0, 0), *PLACES]
    assert tiles_of(archive.items) == {tile: cache.content(tile) for tile in tiles}
    assert report.tiles_exported == len(archive.items) == len(tiles)
    assert report.bytes_exported == sum(len(cache.content(tile)) for tile in tiles)
    assert (report.tiles_damaged, report.damaged) == (0, ())
    assert archive.about == report.about
    assert (report.about.name, report.about.attribution) == ("area", "© us")
    assert (report.about.zoom_min, report.about.zoom_max) == (0, 15)
    item = archive.items[0]
    assert isinstance(item, ArchivedTile)
    assert item.facts == TileFacts.of(cache.row(item.tile_id))


def test_a_format_gets_the_order_that_it_asks_for(cache: MemoryCache) -> None:
    for tile in random.Random(7).sample(range(1 << 20), 50):  # noqa: S311  # to spread them
        cache.has(place(10, tile >> 10, tile & 1023))
    curve, columns = MemoryArchive(order=TileOrder.CURVE), MemoryArchive()
    cache.exporter().export(wanted(), curve)
    cache.exporter().export(wanted(), columns)
    assert numbers(curve) == sorted(numbers(columns))
    assert numbers(columns) != sorted(numbers(columns))


def test_only_the_area_is_exported_in_either_order(cache: MemoryCache) -> None:
    box = TileCoverage(
        bbox=BBox(west=28.745, south=50.62, east=28.76, north=50.65), zoom_levels=[15]
    )
    inside = {tile for tile in PLACES if box.contains(tile)}
    assert 0 < len(inside) < len(PLACES)
    for order in TileOrder:
        archive = MemoryArchive(order=order)
        cache.exporter().export(wanted(box), archive)
        assert tiles_of(archive.items).keys() == inside


def test_a_damaged_tile_is_named_and_the_rest_exported(cache: MemoryCache) -> None:
    cache.loses(PLACES[7])
    archive = MemoryArchive()
    report = cache.exporter().export(wanted(), archive)
    assert report.tiles_damaged == 1
    assert [tile.tile for tile in report.damaged] == [str(PLACES[7])]
    assert PLACES[7] not in tiles_of(archive.items)
    assert report.tiles_exported == len(PLACES)


def test_of_many_damaged_tiles_all_are_counted_and_some_named(
    cache: MemoryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_few, "NAMED_MAX", 2)
    for tile in PLACES[:5]:
        cache.loses(tile)
    report = cache.exporter().export(wanted(), MemoryArchive())
    assert (report.tiles_damaged, len(report.damaged)) == (5, 2)


def test_a_tile_whose_bytes_are_others_is_damaged(cache: MemoryCache) -> None:
    row = cache.row(PLACES[0])
    cache.rows._tiles[PLACES[0]] = evolve(row, blob=evolve(row.blob, sha256="ab" * 32))
    cache.index.add(PLACES[0], row.blob)
    report = cache.exporter().export(wanted(), MemoryArchive())
    assert [(tile.tile, tile.problem) for tile in report.damaged] == [
        (str(PLACES[0]), "its sha256 is another")
    ]


def test_a_tile_without_bytes_is_left_out(cache: MemoryCache) -> None:
    cache.has(PLACES[0], b"", days=0)
    report = cache.exporter().export(wanted(), MemoryArchive())
    assert [tile.problem for tile in report.damaged] == ["it has no bytes"]


def test_a_tile_that_is_replaced_meanwhile_is_exported_as_it_is_then(cache: MemoryCache) -> None:
    first, gone = PLACES[0], PLACES[1]
    rows = list(cache.rows.query_by_bbox(wanted().coverage.bbox, [15], source="sat"))

    class Meanwhile:
        """Shows rows as they were, while the cache goes on."""

        def query_by_bbox(self, *_: object, **__: object) -> Iterator[TileMetadata]:
            yield from rows

        def get_metadata(self, tile: TileId) -> TileMetadata | None:
            return cache.rows.get_metadata(tile)

    newer = picture("newer")
    cache.store._contents.pop(cache.row(first).blob)
    cache.has(first, newer, days=0)
    cache.store.delete_tile(gone)
    cache.rows.forget([gone])
    exporter = cache.exporter()
    exporter.tile_metadata_store = Meanwhile()  # type: ignore[assignment]  # what is used of it
    archive = MemoryArchive()
    report = exporter.export(wanted(), archive)
    found = tiles_of(archive.items)
    assert found[first] == newer
    assert gone not in found
    assert report.tiles_damaged == 0
    assert report.tiles_exported == len(PLACES) - 1


def test_a_tile_that_is_replaced_and_then_evicted_is_no_part(cache: MemoryCache) -> None:
    first = PLACES[0]
    rows = [cache.row(first), cache.row(PLACES[1])]

    class Meanwhile:
        def query_by_bbox(self, *_: object, **__: object) -> Iterator[TileMetadata]:
            yield from rows

        def get_metadata(self, _tile: TileId) -> TileMetadata | None:
            return None

    cache.store._contents.pop(cache.row(first).blob)
    cache.has(first, picture("newer"), days=0)
    exporter = cache.exporter()
    exporter.tile_metadata_store = Meanwhile()  # type: ignore[assignment]  # what is used of it
    report = exporter.export(wanted(), MemoryArchive())
    assert (report.tiles_exported, report.tiles_damaged) == (1, 0)


class _Spoilt(MemoryArchive):
    """An archive of which the first tile cannot be read again."""

    def tiles(self, source: str) -> Iterator[ArchivedTile | RefusedEntry]:
        yield RefusedEntry(place="x", problem="unreadable")
        yield from list(super().tiles(source))[1:]


def test_an_archive_that_reads_back_otherwise_is_not_published(
    cache: MemoryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoilt(draft: MemoryDraft, about: ArchiveAbout) -> MemoryArchive:
        return _Spoilt(items=draft.sealed.items, about=about)

    monkeypatch.setattr(MemoryDraft, "seal", spoilt)
    archive = MemoryArchive()
    with pytest.raises(StorageError, match="of 121 tiles that were written, 120 were read"):
        cache.exporter().export(wanted(), archive)
    assert (archive.items, archive.about) == ([], None)


def test_nothing_to_export_is_refused(cache: MemoryCache) -> None:
    archive = MemoryArchive()
    with pytest.raises(ArchiveError, match="no tile of source none there"):
        cache.exporter().export(wanted(source="none"), archive)
    assert archive.about is None


def test_nothing_but_damage_is_refused() -> None:
    cache = MemoryCache()
    cache.has(PLACES[0])
    cache.loses(PLACES[0])
    with pytest.raises(ArchiveError, match="all 1 tiles that it would have are damaged"):
        cache.exporter().export(wanted(), MemoryArchive())


def test_each_tile_is_told_when_written_and_when_read_again(cache: MemoryCache) -> None:
    told: list[int] = []
    exporter = cache.exporter()
    exporter.on_tile = lambda: told.append(1)
    exporter.export(wanted(), MemoryArchive())
    assert len(told) == 2 * 121
