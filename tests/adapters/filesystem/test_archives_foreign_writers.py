"""Archives that other programs made: GDAL and the pmtiles library; and what is refused."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import rasterio
from affine import Affine
from PIL import Image
from pmtiles.tile import Compression, TileType, zxy_to_tileid
from pmtiles.writer import write as write_pmtiles
from support.archives import (
    MemoryCache,
    collect_tiles,
    create_export_request,
    create_image,
    create_tile_id,
)

from tileferry.adapters.filesystem.archives import (
    GeopackageSource,
    GeopackageTarget,
    MbtilesSource,
    PmtilesSource,
    PmtilesTarget,
    QgcTarget,
)
from tileferry.adapters.filesystem.archives import pmtiles as pmtiles_adapter
from tileferry.adapters.filesystem.archives.pmtiles_format import DirectoryEntry, encode_directory
from tileferry.application.ports.archives import RefusedEntry
from tileferry.domain.errors import ArchiveError

EDGE_M = 20037508.342789244
MANY_LEVELS = """
    INSERT INTO gpkg_tile_matrix WITH RECURSIVE level(value) AS
    (SELECT 100 UNION ALL SELECT value + 1 FROM level LIMIT 100)
    SELECT 'tiles', value, 8, 8, 1, 1, 1, 1 FROM level
"""
ZOOM, WEST, NORTH, SIDE = 12, 2_400, 1_400, 4


def write_with_gdal(path: Path, driver: str, **options: str) -> np.typing.NDArray[np.uint8]:
    """Write 4 x 4 tiles of noise with GDAL, and return the pixels."""
    size = 2 * EDGE_M / (1 << ZOOM)
    west, north = -EDGE_M + WEST * size, EDGE_M - NORTH * size
    pixels = np.random.default_rng(1).integers(0, 255, (3, 256 * SIDE, 256 * SIDE), np.uint8)
    with rasterio.open(
        path,
        "w",
        driver=driver,
        width=256 * SIDE,
        height=256 * SIDE,
        count=3,
        dtype="uint8",
        crs="EPSG:3857",
        transform=Affine(size / 256, 0, west, 0, -size / 256, north),
        TILE_FORMAT="PNG",
        **options,
    ) as written:
        written.write(pixels)
    return pixels


@pytest.mark.parametrize(
    ("name", "driver", "options", "read"),
    [
        ("a.gpkg", "GPKG", {"TILING_SCHEME": "GoogleMapsCompatible"}, GeopackageSource),
        ("a.mbtiles", "MBTiles", {}, MbtilesSource),
    ],
)
def test_archive_of_gdal_is_read(
    tmp_path: Path,
    name: str,
    driver: str,
    options: dict[str, str],
    read: Callable[[Path], GeopackageSource | MbtilesSource],
) -> None:
    pixels = write_with_gdal(tmp_path / name, driver, **options)
    found = collect_tiles(list(read(tmp_path / name).tiles("sat")))
    assert set(found) == {
        create_tile_id(ZOOM, WEST + x, NORTH + y) for x in range(SIDE) for y in range(SIDE)
    }
    for tile, content in found.items():
        left, top = (tile.x - WEST) * 256, (tile.y - NORTH) * 256
        expected = pixels[:, top : top + 256, left : left + 256]
        assert np.array_equal(read_pixels(content), expected)


def read_pixels(content: bytes) -> np.typing.NDArray[np.uint8]:
    with Image.open(BytesIO(content)) as image:
        return np.asarray(image.convert("RGB")).transpose(2, 0, 1)


def test_gdal_reads_pixels_of_a_geopackage(tmp_path: Path) -> None:
    cache = MemoryCache()
    for x in range(2):
        cache.put(create_tile_id(ZOOM, WEST + x, NORTH), create_image(x, size=256))
    path = tmp_path / "area.gpkg"
    request = create_export_request(attribution="© us")
    cache.create_exporter().export(request, GeopackageTarget(path=path))
    with rasterio.open(path) as opened:
        assert (opened.driver, opened.crs.to_epsg()) == ("GPKG", 3857)
        assert (opened.width, opened.height) == (512, 256)
        seen = opened.read()
    for x in range(2):
        expected = read_pixels(create_image(x, size=256))
        assert np.array_equal(seen[:3, :, 256 * x : 256 * (x + 1)], expected)
    with closing(sqlite3.connect(path)) as database:
        told = database.execute("SELECT identifier, description FROM gpkg_contents").fetchone()
        assert told == ("area", "© us")
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_archive_of_the_pmtiles_library_is_read(tmp_path: Path) -> None:
    path = tmp_path / "their.pmtiles"
    tiles = {(5, x, y): create_image((x, y)) for x in range(32) for y in range(32)}
    with write_pmtiles(str(path)) as writer:
        for key in sorted(tiles, key=lambda key: zxy_to_tileid(*key)):
            writer.write_tile(zxy_to_tileid(*key), tiles[key])
        header = {"tile_type": TileType.PNG, "tile_compression": Compression.NONE}
        writer.finalize(header, {"name": "theirs"})
    found = collect_tiles(list(PmtilesSource(path).tiles("sat")))
    assert found == {create_tile_id(*key): content for key, content in tiles.items()}
    sizes = dict(PmtilesSource(path).iter_sizes("sat"))
    assert sizes == {tile: len(content) for tile, content in found.items()}


def test_tile_set_matches_the_schema_of_qgroundcontrol(tmp_path: Path) -> None:
    cache = MemoryCache()
    cache.put(create_tile_id(14, 9_500, 5_500))
    cache.put(create_tile_id(14, 9_501, 5_500), create_image("photo", "JPEG"))
    path = tmp_path / "area.qgctiledb"
    cache.create_exporter().export(create_export_request(), QgcTarget(path=path))
    columns = {
        "Tiles": ["tileID", "hash", "format", "tile", "size", "type", "date"],
        "TileSets": [
            *("setID", "name", "typeStr"),
            *("topleftLat", "topleftLon", "bottomRightLat", "bottomRightLon"),
            *("minZoom", "maxZoom", "type", "numTiles", "defaultSet", "date"),
        ],
        "SetTiles": ["setID", "tileID"],
        "TilesDownload": ["setID", "hash", "type", "x", "y", "z", "state"],
    }
    with closing(sqlite3.connect(path)) as database:
        for table, names in columns.items():
            found = database.execute(f"PRAGMA table_info({table})").fetchall()
            assert [row[1] for row in found] == names
        assert database.execute("PRAGMA user_version").fetchone() == (1,)
        rows = database.execute("SELECT hash, format, size = length(tile), type FROM Tiles")
        assert sorted(rows) == [
            ("00000000390000950000005500014", "png", 1, 39),
            ("00000000390000950100005500014", "jpg", 1, 39),
        ]
        # What QGroundControl's import reads: the sets, and the tiles that belong to each.
        sets = database.execute(
            "SELECT name, typeStr, minZoom, maxZoom, type, numTiles, defaultSet FROM TileSets"
        ).fetchall()
        assert sets == [("area", "CustomURL Custom", 14, 14, 39, 2, 0)]
        joined = "SELECT count(*) FROM Tiles T JOIN SetTiles S ON T.tileID = S.tileID"
        assert database.execute(f"{joined} WHERE S.setID = 1").fetchone() == (2,)


# Refused


def spoil_geopackage(path: Path, *statements: str) -> GeopackageSource:
    cache = MemoryCache()
    cache.put(create_tile_id(3, 1, 2))
    cache.create_exporter().export(create_export_request(), GeopackageTarget(path=path))
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    return GeopackageSource(path)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE gpkg_tile_matrix_set SET max_x = 100", "not in the Web Mercator grid"),
        ("UPDATE gpkg_tile_matrix_set SET srs_id = 4326", "not in the Web Mercator grid"),
        ("UPDATE gpkg_tile_matrix_set SET min_y = 'south'", "not in the Web Mercator grid"),
        (
            "UPDATE gpkg_tile_matrix SET matrix_width = 7",
            "level 3 is not a Web Mercator zoom level",
        ),
        (
            "UPDATE gpkg_tile_matrix SET matrix_width = -8, matrix_height = -8",
            "is not a Web Mercator zoom level",
        ),
        (
            "UPDATE gpkg_tile_matrix SET zoom_level = 'x'",
            "level x is not a Web Mercator zoom level",
        ),
        ("DELETE FROM gpkg_contents", "must have one layer of tiles, but has: none"),
        ("UPDATE gpkg_contents SET table_name = 7", "must have one layer"),
        ("DROP TABLE gpkg_tile_matrix", "no table gpkg_tile_matrix"),
        (MANY_LEVELS, "has more than 100 levels"),
        ("DROP TABLE tiles", "has no table tiles"),
    ],
)
def test_geopackage_of_another_kind_is_rejected(
    tmp_path: Path, statement: str, problem: str
) -> None:
    source = spoil_geopackage(tmp_path / "a.gpkg", statement)
    with pytest.raises(ArchiveError, match=problem):
        list(source.tiles("sat"))


def test_damaged_name_in_a_geopackage_is_rejected(tmp_path: Path) -> None:
    source = spoil_geopackage(tmp_path / "a.gpkg")
    damaged = source.path.read_bytes().replace(b"CREATE TABLE", b"CREATE \xff\xff\xff\xff\xff")
    source.path.write_bytes(damaged)
    with pytest.raises(ArchiveError, match="a name is not UTF-8"):
        list(source.tiles("sat"))


def test_geopackage_may_number_its_levels_itself(tmp_path: Path) -> None:
    source = spoil_geopackage(
        tmp_path / "a.gpkg",
        "UPDATE gpkg_tile_matrix SET zoom_level = 0",
        "UPDATE tiles SET zoom_level = 0",
        "INSERT INTO tiles VALUES (NULL, 5, 1, 1, x'00')",
    )
    known, unknown = source.tiles("sat")
    assert not isinstance(known, RefusedEntry)
    assert known.tile_id == create_tile_id(3, 1, 2)
    assert isinstance(unknown, RefusedEntry)
    assert "is not in gpkg_tile_matrix" in unknown.problem


def test_geopackage_is_not_read_as_mbtiles(tmp_path: Path) -> None:
    spoil_geopackage(tmp_path / "a.gpkg")
    with pytest.raises(ArchiveError, match="is a GeoPackage, not MBTiles"):
        list(MbtilesSource(tmp_path / "a.gpkg").tiles("sat"))


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([DirectoryEntry(5, 0, 10, 1), DirectoryEntry(5 + 1, 0, 10, 10**9)], "has more than"),
        ([DirectoryEntry(5, 0, 10, 9), DirectoryEntry(7, 0, 10, 1)], "overlap"),
        ([DirectoryEntry(5, 10**9, 10, 1)], "ends before byte"),
        ([DirectoryEntry(5, 2**63, 10, 1)], "ends before byte"),
        ([DirectoryEntry(5, 2**63 - 1, 10, 0)], "ends before byte"),
        ([DirectoryEntry(5, 0, 30, 0)], "is truncated or too large"),
    ],
)
def test_hostile_pmtiles_directory_is_rejected(
    tmp_path: Path, entries: list[DirectoryEntry], problem: str
) -> None:
    path = write_pmtiles_root(tmp_path, entries)
    with pytest.raises(ArchiveError, match=problem):
        list(PmtilesSource(path).tiles("sat"))


def write_pmtiles_root(folder: Path, entries: list[DirectoryEntry]) -> Path:
    """Export a tile, then replace the root directory."""
    cache = MemoryCache()
    cache.put(create_tile_id(3, 1, 2))
    path = folder / "a.pmtiles"
    cache.create_exporter().export(create_export_request(), PmtilesTarget(path=path))
    content = bytearray(path.read_bytes())
    root = encode_directory(entries)
    content[127 : 127 + len(root)] = root
    content[16:24] = len(root).to_bytes(8, "little")
    path.write_bytes(content)
    return path


def test_directory_that_contains_itself_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf = encode_directory([DirectoryEntry(5, 0, 1, 0)])
    entries = [DirectoryEntry(5, 0, len(leaf), 0)]
    path = write_pmtiles_root(tmp_path, entries)
    content = bytearray(path.read_bytes())
    content[40:48] = (127).to_bytes(8, "little")  # the leaves start where the root does
    path.write_bytes(content)
    monkeypatch.setattr(pmtiles_adapter, "decode_directory", lambda _content: entries)
    with pytest.raises(ArchiveError, match="too deep"):
        list(PmtilesSource(path).tiles("sat"))


def test_pmtiles_entries_that_are_no_tiles_are_refused(tmp_path: Path) -> None:
    beyond = DirectoryEntry(((1 << 2 * 25) - 1) // 3, 0, 10, 1)
    large = DirectoryEntry(5, 0, 10**9, 1)
    path = write_pmtiles_root(tmp_path, [large, beyond])
    problems = [entry.problem for entry in PmtilesSource(path).tiles("sat")]  # type: ignore[union-attr]
    assert problems[0] == "has 1000000000 bytes, too many for a tile"
    assert problems[1].startswith("is beyond zoom level")
    assert list(PmtilesSource(path).iter_sizes("sat")) == []


def test_facts_of_another_archive_are_ignored_and_other_files_kept(tmp_path: Path) -> None:
    path = write_pmtiles_root(tmp_path, [DirectoryEntry(30, 0, 10, 1)])
    (tile,) = PmtilesSource(path).tiles("sat")
    assert not isinstance(tile, RefusedEntry)
    assert tile.facts.sha256 is None
    sidecar = tmp_path / "b.pmtiles.tiles.jsonl"
    sidecar.write_text("my list")
    cache = MemoryCache()
    cache.put(create_tile_id(3, 1, 2))
    with pytest.raises(ArchiveError, match="does not hold the facts of an archive"):
        cache.create_exporter().export(
            create_export_request(), PmtilesTarget(path=tmp_path / "b.pmtiles", replace=True)
        )
    assert sidecar.read_text() == "my list"
    assert not (tmp_path / "b.pmtiles").exists()
