"""Exports as other people's programs read them: pmtiles, sqlite3 and GDAL."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import rasterio
from PIL import Image
from pmtiles.reader import MmapSource, Reader, all_tiles
from pmtiles.tile import TileType
from support.archives import MemoryCache, create_export_request, create_image, create_tile_id

from tileferry.adapters.filesystem.archives import (
    MbtilesTarget,
    PmtilesTarget,
    TreeTarget,
    pmtiles_format,
)
from tileferry.adapters.filesystem.archives import pmtiles as pmtiles_adapter
from tileferry.domain.tiles import TileId

ZOOM, WEST, NORTH, SIDE = 15, 19_000, 11_000, 6
AREA = [create_tile_id(ZOOM, WEST + x, NORTH + y) for x in range(SIDE) for y in range(SIDE)]
HOLES = {AREA[8], AREA[20]}


@pytest.fixture
def cache() -> MemoryCache:
    """A cache with an area of real tiles, a lower level and a few holes."""
    cache = MemoryCache()
    for tile in AREA:
        if tile not in HOLES:
            cache.put(tile, create_image(str(tile), size=256))
    cache.put(create_tile_id(14, WEST // 2, NORTH // 2), create_image("lower", size=256))
    return cache


def read_contents(cache: MemoryCache) -> dict[tuple[int, int, int], bytes]:
    return {
        (row.tile_id.zoom, row.tile_id.x, row.tile_id.y): cache.read_content(row.tile_id)
        for row in cache.rows.all_tiles()
    }


def read_pmtiles(path: Path) -> Iterator[tuple[tuple[int, int, int], bytes]]:
    with path.open("rb") as file:
        yield from all_tiles(MmapSource(file))


def test_pmtiles_library_reads_every_tile_byte_for_byte(cache: MemoryCache, tmp_path: Path) -> None:
    path = tmp_path / "area.pmtiles"
    cache.create_exporter().export(
        create_export_request(attribution="© us"), PmtilesTarget(path=path)
    )
    assert dict(read_pmtiles(path)) == read_contents(cache)
    with path.open("rb") as file:
        reader = Reader(MmapSource(file))
        header, told = reader.header(), reader.metadata()
        for (zoom, x, y), content in read_contents(cache).items():
            assert reader.get(zoom, x, y) == content
        for hole in HOLES:
            assert reader.get(hole.zoom, hole.x, hole.y) is None
    assert header["tile_type"] is TileType.PNG
    assert (header["min_zoom"], header["max_zoom"], header["clustered"]) == (14, 15, True)
    assert header["addressed_tiles_count"] == SIDE * SIDE - len(HOLES) + 1
    assert header["root_offset"] + header["root_length"] <= 16_384
    assert (told["name"], told["attribution"], told["format"]) == ("area", "© us", "png")


def test_pmtiles_library_reads_leaf_directories_and_repeated_tiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaves of a few entries make many of them, with a root that is still one."""
    monkeypatch.setattr(pmtiles_format, "LEAF_ENTRIES", 4)
    monkeypatch.setattr(pmtiles_adapter, "_CONTENTS_REMEMBERED", 2)
    cache = MemoryCache()
    water = create_image("water")
    for x in range(12):
        for y in range(12):
            alone = (x * 7 + y * 3) % 5 == 0
            cache.put(create_tile_id(9, 100 + x, 200 + y), create_image((x, y)) if alone else water)
    path = tmp_path / "area.pmtiles"
    cache.create_exporter().export(create_export_request(), PmtilesTarget(path=path))
    assert dict(read_pmtiles(path)) == read_contents(cache)
    with path.open("rb") as file:
        header = Reader(MmapSource(file)).header()
    assert header["leaf_directory_length"] > 0
    assert header["addressed_tiles_count"] == 144
    assert header["tile_contents_count"] < header["tile_entries_count"] < 144
    assert header["tile_data_length"] < sum(map(len, read_contents(cache).values()))


def test_oversized_pmtiles_root_directory_is_split_into_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pmtiles_adapter, "ROOT_END", 400)
    cache = MemoryCache()
    for number in range(300):
        cache.put(
            create_tile_id(12, (number * 997) % 4096, (number * 613) % 4096), create_image(number)
        )
    path = tmp_path / "area.pmtiles"
    cache.create_exporter().export(create_export_request(), PmtilesTarget(path=path))
    assert dict(read_pmtiles(path)) == read_contents(cache)
    with path.open("rb") as file:
        header = Reader(MmapSource(file)).header()
    assert header["root_offset"] + header["root_length"] <= 400
    assert header["leaf_directory_length"] > 400


def test_pmtiles_export_is_deterministic(cache: MemoryCache, tmp_path: Path) -> None:
    digests = set()
    for name in ("one.pmtiles", "two.pmtiles"):
        cache.create_exporter().export(create_export_request(), PmtilesTarget(path=tmp_path / name))
        digests.add(sha256((tmp_path / name).read_bytes()).hexdigest())
    assert len(digests) == 1


def test_sqlite_reads_every_tile_byte_for_byte(cache: MemoryCache, tmp_path: Path) -> None:
    path = tmp_path / "area.mbtiles"
    cache.create_exporter().export(
        create_export_request(attribution="© us"), MbtilesTarget(path=path)
    )
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT * FROM tiles").fetchall()
        told = dict(database.execute("SELECT name, value FROM metadata").fetchall())
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found = {(zoom, x, (1 << zoom) - 1 - row): content for zoom, x, row, content in rows}
    assert found == read_contents(cache)
    assert told["format"] == "png"
    assert (told["minzoom"], told["maxzoom"]) == ("14", "15")
    assert told["attribution"] == "© us"
    west, south, east, north = map(float, told["bounds"].split(","))
    assert west < east
    assert south < north


def test_gdal_reads_pixels_at_the_right_position(cache: MemoryCache, tmp_path: Path) -> None:
    path = tmp_path / "area.mbtiles"
    cache.store.delete_tile(create_tile_id(14, WEST // 2, NORTH // 2))
    cache.rows.forget([create_tile_id(14, WEST // 2, NORTH // 2)])
    cache.create_exporter().export(create_export_request(), MbtilesTarget(path=path))
    with rasterio.open(path) as opened:
        assert opened.driver == "MBTiles"
        assert (opened.width, opened.height) == (256 * SIDE, 256 * SIDE)
        assert opened.crs.to_epsg() == 3857
        seen = opened.read()
    for tile in AREA:
        left, top = (tile.x - WEST) * 256, (tile.y - NORTH) * 256
        pixels = seen[:, top : top + 256, left : left + 256]
        if tile in HOLES:
            assert not pixels[3].any()
        else:
            assert np.array_equal(pixels[:3], _pixels(cache, tile))
            assert (pixels[3] == 255).all()


def _pixels(cache: MemoryCache, tile: TileId) -> np.typing.NDArray[np.uint8]:
    with Image.open(BytesIO(cache.read_content(tile))) as image:
        return np.asarray(image.convert("RGB")).transpose(2, 0, 1)


def test_tree_export_writes_plain_files(cache: MemoryCache, tmp_path: Path) -> None:
    path = tmp_path / "area"
    cache.put(create_tile_id(16, 1, 1), create_image("photo", "JPEG"))
    cache.put(create_tile_id(16, 1, 2), create_image("web", "WEBP"))
    cache.create_exporter().export(create_export_request(), TreeTarget(path=path))
    files = {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file()
    }
    about = json.loads(files.pop("archive.json"))
    lines = [json.loads(line) for line in files.pop("tiles.jsonl").splitlines()]
    kinds = {(16, 1, 1): "jpg", (16, 1, 2): "webp"}
    assert files == {
        f"{zoom}/{x}/{y}.{kinds.get((zoom, x, y), 'png')}": content
        for (zoom, x, y), content in read_contents(cache).items()
    }
    assert about["tiles"] == {"jpg": 1, "png": 35, "webp": 1}
    assert len(lines) == 37
    assert lines[0]["tile"] == f"14/{WEST // 2}/{NORTH // 2}"
