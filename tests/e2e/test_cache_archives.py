"""``tileferry cache export`` and ``cache import``, run as an operator runs them."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from pmtiles.reader import MmapSource, all_tiles
from support.archive_operator import DAY, ArchiveOperator, create_tile_grid
from support.archives import create_image
from support.pictures import make_picture

from tileferry.adapters.filesystem import FileCacheLock
from tileferry.adapters.postgres import Database, PostgresTileMetadataStore
from tileferry.adapters.system import SystemClock
from tileferry.domain.tiles import BBox

TILES = create_tile_grid(120)
NAMES = {
    "tree": "out",
    "mbtiles": "out.mbtiles",
    "pmtiles": "out.pmtiles",
    "gpkg": "out.gpkg",
    "qgctiledb": "out.qgctiledb",
}


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> ArchiveOperator:
    person = ArchiveOperator(tmp_path, database_url)
    person.store_tiles(TILES)
    return person


def expected_tiles() -> dict[tuple[int, int, int], bytes]:
    return {(tile.zoom, tile.x, tile.y): ArchiveOperator.content(tile) for tile in TILES}


def read_archive(path: Path) -> dict[tuple[int, int, int], bytes]:
    """Read an archive without any code of ours."""
    if path.suffix == ".pmtiles":
        with path.open("rb") as file:
            return dict(all_tiles(MmapSource(file)))
    if path.suffix == ".mbtiles":
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT * FROM tiles").fetchall()
        return {(zoom, x, (1 << zoom) - 1 - row): content for zoom, x, row, content in rows}
    if path.suffix == ".gpkg":
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT * FROM tiles").fetchall()
        return {(zoom, x, y): content for _, zoom, x, y, content in rows}
    if path.suffix == ".qgctiledb":
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT hash, tile FROM Tiles").fetchall()
        return {(int(key[-3:]), int(key[10:18]), int(key[18:26])): tile for key, tile in rows}
    found = {}
    for file_ in path.glob("*/*/*.png"):
        zoom, x, y = file_.relative_to(path).with_suffix("").parts
        found[int(zoom), int(x), int(y)] = file_.read_bytes()
    return found


@pytest.mark.parametrize("form", NAMES)
def test_export_format_follows_suffix(operator: ArchiveOperator, form: str) -> None:
    name = NAMES[form]
    ran = operator.run_in_process("cache", "export", name, "--json", "--attribution", "© us")
    assert (ran.code, ran.err) == (0, "")
    body = ran.json
    assert body["schema"] == "tileferry.cache.export.v1"
    assert (body["format"], body["source"]) == (form, "satellite")
    assert (body["tiles_exported"], body["tiles_damaged"], body["damaged"]) == (120, 0, [])
    assert body["about"]["attribution"] == "© us"
    assert body["about"]["tiles"] == {"png": 120}
    assert read_archive(operator.home / name) == expected_tiles()


def test_export_prints_summary(operator: ArchiveOperator) -> None:
    ran = operator.run_in_process("cache", "export", "out.pmtiles", "--name", "Derkachi")
    assert ran.code == 0
    assert "Exported to out.pmtiles" in ran.out
    assert "120 png" in ran.out


def test_export_is_limited_to_area_and_zoom(operator: ArchiveOperator) -> None:
    box = BBox(west=28.745, south=50.62, east=28.76, north=50.65)
    ran = operator.run_in_process(
        "cache", "export", "out.mbtiles", "--bbox", str(box), "--zoom", "15", "--json"
    )
    assert ran.code == 0
    found = read_archive(operator.home / "out.mbtiles")
    assert 0 < len(found) < 120
    assert found.items() <= expected_tiles().items()
    nothing = operator.run_in_process("cache", "export", "none.mbtiles", "--zoom", "9", "--json")
    assert nothing.code == 4
    assert "no tile of source satellite" in nothing.err


@pytest.mark.parametrize("form", NAMES)
def test_existing_target_is_rejected_without_replace(operator: ArchiveOperator, form: str) -> None:
    name = NAMES[form]
    assert operator.run_in_process("cache", "export", name, "--zoom", "15").code == 0
    refused = operator.run_in_process("cache", "export", name)
    assert refused.code == 4
    assert "--replace" in refused.err
    assert operator.run_in_process("cache", "export", name, "--replace").code == 0
    assert read_archive(operator.home / name) == expected_tiles()


def test_foreign_folder_cannot_be_replaced(
    operator: ArchiveOperator,
) -> None:
    (operator.home / "letters").mkdir()
    (operator.home / "letters" / "a").write_bytes(b"dear")
    for place in (".", "letters"):
        refused = operator.run_in_process("cache", "export", place)
        assert refused.code == 4
        assert "choose another name" in refused.err
        assert "--replace" not in refused.err
    assert (operator.home / "letters" / "a").read_bytes() == b"dear"


def test_damaged_tile_is_reported_and_others_exported(operator: ArchiveOperator) -> None:
    operator.damage_tile(TILES[3])
    ran = operator.run_in_process("cache", "export", "out.pmtiles", "--json")
    assert ran.code == 3
    assert (ran.json["tiles_exported"], ran.json["tiles_damaged"]) == (119, 1)
    assert [entry["tile_id"] for entry in ran.json["damaged"]] == [str(TILES[3])]
    assert len(read_archive(operator.home / "out.pmtiles")) == 119
    shown = operator.run_in_process("cache", "export", "out.mbtiles")
    assert shown.code == 3
    assert str(TILES[3]) in shown.out


def test_export_works_while_cache_is_locked(operator: ArchiveOperator) -> None:
    lock = FileCacheLock(root=operator.cache_root)
    lock.acquire()
    try:
        assert operator.run_in_process("cache", "export", "out.pmtiles").code == 0
        refused = operator.run_in_process("cache", "import", "out.pmtiles", "--format", "mbtiles")
        assert refused.code == 4
    finally:
        lock.release()


def test_export_does_not_change_cache(operator: ArchiveOperator) -> None:
    def seen() -> tuple[object, ...]:
        files = {
            path: path.read_bytes() for path in operator.cache_root.rglob("*") if path.is_file()
        }
        database = Database.from_url(operator.database_url)
        rows = PostgresTileMetadataStore(database=database, clock=SystemClock())
        world = BBox(west=-180, south=-90, east=180, north=90)
        found = list(rows.query_by_bbox(world, [15]))
        database.close()
        return files, found

    before = seen()
    for name in NAMES.values():
        assert operator.run_in_process("cache", "export", name).code == 0
    assert seen() == before


@pytest.fixture
def other_operator(tmp_path: Path, empty_database_url: str) -> ArchiveOperator:
    """Somebody with a cache that is empty."""
    (tmp_path / "elsewhere").mkdir()
    person = ArchiveOperator(tmp_path / "elsewhere", empty_database_url)
    assert person.run_in_process("db", "upgrade").code == 0
    return person


@pytest.mark.parametrize("form", NAMES)
def test_exported_archive_is_imported_with_metadata(
    operator: ArchiveOperator, other_operator: ArchiveOperator, form: str
) -> None:
    path = operator.home / NAMES[form]
    assert operator.run_in_process("cache", "export", str(path)).code == 0
    ran = other_operator.run_in_process("cache", "import", str(path), "--json")
    assert ran.code == 0, ran.out
    body = ran.json
    assert body["schema"] == "tileferry.cache.import.v1"
    assert (body["format"], body["tiles_imported"], body["entries_refused"]) == (form, 120, 0)
    again = other_operator.run_in_process("cache", "import", str(path), "--json").json
    assert (again["tiles_imported"], again["tiles_unchanged"]) == (0, 120)
    assert "already in the cache" in other_operator.run_in_process("cache", "import", str(path)).out
    database = Database.from_url(other_operator.database_url)
    row = PostgresTileMetadataStore(database=database, clock=SystemClock()).get_metadata(TILES[5])
    database.close()
    assert row is not None
    assert (row.produced_at, row.resolution_m_per_px, row.flight_id) == (DAY, 0.6, "import")
    assert other_operator.run_in_process("cache", "verify").code == 0
    assert other_operator.run_in_process("cache", "export", "again.pmtiles").code == 0
    assert read_archive(other_operator.home / "again.pmtiles") == expected_tiles()


def write_foreign_mbtiles(path: Path) -> None:
    """Make MBTiles as other tools do: without a word of when and how fine."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data)")
        database.execute("INSERT INTO tiles VALUES (14, 9500, 10883, ?)", (create_image("theirs"),))
        database.execute("INSERT INTO tiles VALUES (14, 9501, 10883, ?)", (b"<html>",))
        database.execute("INSERT INTO tiles VALUES (99, 1, 1, ?)", (create_image("theirs"),))
        database.commit()


def test_foreign_archive_requires_produced_at(other_operator: ArchiveOperator) -> None:
    write_foreign_mbtiles(other_operator.home / "their.mbtiles")
    silent = other_operator.run_in_process("cache", "import", "their.mbtiles", "--json")
    assert (silent.code, silent.json["tiles_imported"]) == (3, 0)
    assert "--produced-at" in silent.out
    said = ("--produced-at", f"{DAY:%Y-%m-%d}", "--resolution", "2.5", "--source", "theirs")
    ran = other_operator.run_in_process("cache", "import", "their.mbtiles", *said, "--json")
    assert (ran.code, ran.json["tiles_imported"], ran.json["entries_refused"]) == (3, 1, 2)
    assert [entry["place"] for entry in ran.json["refused"]] == ["99/1/1", "theirs/14/9501/5500"]
    shown = other_operator.run_in_process("cache", "import", "their.mbtiles", *said)
    assert "is not a PNG, JPEG, WebP or AVIF" in " ".join(shown.out.split())
    old = other_operator.run_in_process(
        "cache", "import", "their.mbtiles", "--produced-at", "2020-01-01T00:00:00Z", "--json"
    )
    assert old.json["tiles_imported"] == 0


def test_different_bytes_require_replace_tiles(operator: ArchiveOperator) -> None:
    tree = operator.home / "tree"
    file = tree / f"15/{TILES[0].x}/{TILES[0].y}.png"
    file.parent.mkdir(parents=True)
    file.write_bytes(create_image("newer"))
    command = ("cache", "import", "tree", "--produced-at", f"{DAY.isoformat()}", "--json")
    assert operator.run_in_process(*command).code == 3
    assert operator.run_in_process(*command, "--replace-tiles").json["tiles_imported"] == 1
    assert operator.run_in_process("cache", "export", "out").code == 0
    found = operator.home / f"out/15/{TILES[0].x}/{TILES[0].y}.png"
    assert found.read_bytes() == create_image("newer")


@pytest.mark.parametrize(
    ("spoil", "code", "said"),
    [
        (lambda path: path.write_bytes(b"no database"), 4, "cannot be read as MBTiles"),
        (lambda path: path.with_suffix(".pmtiles").write_bytes(b"x"), 2, "cannot be read as"),
    ],
)
def test_unreadable_archive_is_rejected(
    other_operator: ArchiveOperator, spoil: Callable[[Path], object], code: int, said: str
) -> None:
    path = other_operator.home / "their.mbtiles"
    spoil(path)
    ran = other_operator.run_in_process("cache", "import", str(path), "--json")
    assert ran.code == code
    assert code == 2 or said in ran.json["error"]["message"]


def test_incomplete_pmtiles_is_rejected(other_operator: ArchiveOperator) -> None:
    (other_operator.home / "their.pmtiles").write_bytes(b"PMTiles\x03")
    ran = other_operator.run_in_process("cache", "import", "their.pmtiles")
    assert (ran.code, "is not a PMTiles v3 header" in ran.err) == (4, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("cache", "export", "x", "--source", "No Name"), "--source"),
        (("cache", "export", "x", "--zoom", "99"), "--zoom: must be a whole number"),
        (("cache", "import", ".", "--source", "No Name"), "--source"),
        (("cache", "import", ".", "--flight", "a/b"), "--flight"),
        (("cache", "import", ".", "--resolution", "0"), "--resolution"),
        (("cache", "import", ".", "--produced-at", "01.11.2026"), "use 2026-11-01"),
    ],
)
def test_invalid_options_are_rejected_by_name(
    operator: ArchiveOperator, arguments: tuple[str, ...], said: str
) -> None:
    ran = operator.run_in_process(*arguments)
    assert ran.code == 2
    assert said in ran.err


def test_import_requires_budget(operator: ArchiveOperator, other_operator: ArchiveOperator) -> None:
    path = operator.home / "out.mbtiles"
    operator.run_in_process("cache", "export", str(path))
    ran = other_operator.run_in_process(
        "cache", "import", str(path), TILEFERRY_C6_BUDGET_BYTES="1000"
    )
    assert ran.code == 4
    assert other_operator.count_tiles() == 0


def test_archive_carries_attribution_of_xyz_source(operator: ArchiveOperator) -> None:
    def credited(*settings: str, options: Sequence[str] = ()) -> str | None:
        operator.write_config(
            "\n".join(("[tileferry.xyz]", 'attribution = "© Example"', *settings))
        )
        assert operator.run_in_process("cache", "export", "out", "--replace", *options).code == 0
        about = json.loads((operator.home / "out/archive.json").read_text(encoding="utf-8"))
        return cast("str | None", about.get("attribution"))

    server = 'url_template = "https://tiles.example/{z}/{x}/{y}.png"'
    assert credited(server, "[tileferry.c11]", 'source = "satellite"') == "© Example"
    # Of a provider, and not of that server.
    assert credited(server, options=["--source", "satellite"]) is None
    assert credited() is None


def test_tree_of_gdal2tiles_is_imported_by_its_scheme(other_operator: ArchiveOperator) -> None:
    tree = other_operator.home / "tree"
    (tree / "15/19000").mkdir(parents=True)
    (tree / "15/19000/21767.png").write_bytes(make_picture("a tile"))
    (tree / "tilemapresource.xml").write_text("<TileMap/>")
    given = ("tree", "--produced-at", "2026-10-01", "--sector", "stable_rear")
    for command in (("cache", "import", *given), ("ingest", "--flight", "F1", "tree")):
        refused = other_operator.run_in_process(*command)
        assert refused.code == 2
        assert "use --scheme tms" in " ".join(refused.err.split())
    ran = other_operator.run_in_process("cache", "import", *given, "--scheme", "tms", "--json")
    assert (ran.code, ran.json["tiles_imported"]) == (0, 1), ran.err
    found = other_operator.run_in_process("cache", "explain", "15/19000/11000", "--json").json
    assert len(found["versions"]) == 1
