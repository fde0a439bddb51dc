"""Archives that somebody spoilt, by accident or on purpose: named, and nothing else happens."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.archives import MemoryCache, archived, offered, picture, place, tiles_of, wanted

from tileferry.adapters.filesystem.archives import (
    MbtilesSource,
    MbtilesTarget,
    TreeSource,
    TreeTarget,
    mbtiles_source,
)
from tileferry.adapters.filesystem.archives import tree as tree_adapter
from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.domain.archives import TileFacts
from tileferry.domain.errors import ArchiveError
from tileferry.domain.tiles import TILE_BYTES_MAX

PLAIN = "CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data)"
GOOD = (5, 3, 31 - 7, picture("good"))


@pytest.fixture
def cache() -> MemoryCache:
    cache = MemoryCache()
    cache.lock.acquire()
    return cache


def made(path: Path, *statements: str | tuple[str, tuple[object, ...]]) -> MbtilesSource:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(*([statement] if isinstance(statement, str) else statement))
        database.commit()
    return MbtilesSource(path)


def row(*values: object) -> tuple[str, tuple[object, ...]]:
    return "INSERT INTO tiles VALUES (?, ?, ?, ?)", values


def refusals(source: MbtilesSource | TreeSource) -> dict[str, str]:
    return {
        item.place: item.problem for item in source.tiles("sat") if isinstance(item, RefusedEntry)
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "their.mbtiles"


# MBTiles


def test_rows_are_counted_from_the_south(file: Path) -> None:
    source = made(file, PLAIN, row(*GOOD))
    assert tiles_of(list(source.tiles("sat"))) == {place(5, 3, 7): picture("good")}
    assert dict(source.sizes("sat")) == {place(5, 3, 7): len(picture("good"))}


@pytest.mark.parametrize(
    ("spoilt", "problem"),
    [
        ((99, 0, 0, b"x"), "from 0 to 21"),
        ((-1, 0, 0, b"x"), "from 0 to 21"),
        ((5, 32, 0, b"x"), "from 0 to 31"),
        ((5, -1, 0, b"x"), "from 0 to 31"),
        ((5, 0, 32, b"x"), "from 0 to 31"),
        ((5, 0, 1 << 62, b"x"), "from 0 to 31"),
        (("five", 0, 0, b"x"), "must be whole numbers"),
        ((5.5, 0, 0, b"x"), "must be whole numbers"),
        ((None, 0, 0, b"x"), "must be whole numbers"),
        ((b"\xff", 0, 0, b"x"), "must be whole numbers"),
        ((5, 0, 0, None), "is no blob"),
        ((5, 0, 0, "text"), "is no blob"),
        ((5, 0, 0, 7), "is no blob"),
    ],
)
def test_a_row_that_is_no_tile_is_named_and_the_rest_read(
    file: Path, spoilt: tuple[object, ...], problem: str
) -> None:
    source = made(file, PLAIN, row(*spoilt), row(*GOOD))
    (found,) = refusals(source).values()
    assert problem in found
    assert list(tiles_of(list(source.tiles("sat")))) == [place(5, 3, 7)]
    assert [tile for tile, _ in source.sizes("sat")] == [place(5, 3, 7)]


def test_a_blob_that_is_too_large_is_not_read(file: Path) -> None:
    size = TILE_BYTES_MAX + 1
    source = made(
        file, PLAIN, ("INSERT INTO tiles VALUES (5, 0, 0, zeroblob(?))", (size,)), row(*GOOD)
    )
    assert refusals(source) == {"sat/5/0/31": f"has {size} bytes, too many for a tile"}
    assert len(dict(source.sizes("sat"))) == 1


def test_a_view_may_stand_for_the_table(file: Path) -> None:
    source = made(
        file,
        "CREATE TABLE map (zoom_level, tile_column, tile_row, tile_id)",
        "CREATE TABLE images (tile_id, tile_data)",
        "INSERT INTO map VALUES (5, 3, 24, 'a'), (5, 4, 24, 'a')",
        ("INSERT INTO images VALUES ('a', ?)", (picture("good"),)),
        "CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, tile_data"
        " FROM map JOIN images USING (tile_id)",
    )
    assert tiles_of(list(source.tiles("sat"))) == {
        place(5, 3, 7): picture("good"),
        place(5, 4, 7): picture("good"),
    }


_ROW = "SELECT 5 AS zoom_level, 0 AS tile_column, 0 AS tile_row"
_ENDLESS = """
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
    SELECT 5 AS zoom_level, i AS tile_column, 0 AS tile_row, x'00' AS tile_data FROM n
"""


@pytest.mark.parametrize(
    "view",
    [
        _ENDLESS,
        f"{_ROW}, load_extension('/tmp/evil') AS tile_data",
        f"{_ROW}, x'00' AS tile_data FROM pragma_database_list",
    ],
)
def test_a_view_runs_nothing(file: Path, view: str) -> None:
    source = made(file, f"CREATE VIEW tiles AS {view}")
    with pytest.raises(ArchiveError, match="cannot be read as MBTiles"):
        list(source.tiles("sat"))


def test_a_view_without_end_is_ended(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mbtiles_source, "AREA_TILES_MAX", 500)
    source = made(
        file,
        "CREATE TABLE n (i)",
        "INSERT INTO n VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10)",
        "CREATE VIEW tiles AS SELECT 5 AS zoom_level, a.i AS tile_column, b.i AS tile_row,"
        " x'00' AS tile_data FROM n a, n b, n c, n d",
    )
    with pytest.raises(ArchiveError, match="has more than 500 tiles"):
        list(source.tiles("sat"))


def test_a_virtual_table_is_no_table_of_tiles(file: Path) -> None:
    source = made(
        file, "CREATE VIRTUAL TABLE tiles USING fts5(zoom_level, tile_column, tile_row, tile_data)"
    )
    with pytest.raises(ArchiveError, match="has no table of tiles"):
        list(source.tiles("sat"))


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("CREATE TABLE other (x)", "has no table of tiles"),
        ("CREATE TABLE tiles (z, x, y, data)", "no such column"),
        ("CREATE VIEW tiles AS SELECT * FROM missing", "cannot be read as MBTiles"),
    ],
)
def test_another_schema_is_named(file: Path, schema: str, problem: str) -> None:
    source = made(file, schema)
    with pytest.raises(ArchiveError, match=problem):
        list(source.tiles("sat"))
    with pytest.raises(ArchiveError, match=problem):
        list(source.sizes("sat"))


@pytest.mark.parametrize(
    "content", [b"", b"PNG", b"SQLite format 3\0" + bytes(200), os.urandom(5_000)]
)
def test_what_is_no_database_is_named(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(ArchiveError):
        list(MbtilesSource(file).tiles("sat"))


def test_a_folder_and_a_missing_file_are_no_database(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(ArchiveError, match="is no file"):
            list(MbtilesSource(path).tiles("sat"))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_database_is_named_and_what_was_imported_kept(
    cache: MemoryCache, file: Path
) -> None:
    for x in range(400):
        cache.has(place(12, 100, 100 + x), picture(x, size=64))
    cache.exporter().export(wanted(), MbtilesTarget(path=file))
    content = bytearray(file.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 20_000] = os.urandom(20_000)
    file.write_bytes(content)
    other = MemoryCache()
    other.lock.acquire()
    with pytest.raises(ArchiveError, match="cannot be read as MBTiles"):
        other.importer().import_archive(MbtilesSource(file), offered())
    for row_ in other.rows.all_tiles():
        assert other.content(row_.tile_id) == cache.content(row_.tile_id)


def test_reading_writes_nothing_beside_the_file(file: Path) -> None:
    source = made(file, PLAIN, row(*GOOD))
    before = file.read_bytes()
    list(source.tiles("sat"))
    assert list(file.parent.iterdir()) == [file]
    assert file.read_bytes() == before


def test_what_waits_in_a_write_ahead_log_is_read(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(PLAIN)
        database.execute(*row(*GOOD))
        database.commit()
        assert len(list(MbtilesSource(file).tiles("sat"))) == 1


def test_wrong_facts_refuse_their_tile(cache: MemoryCache, file: Path) -> None:
    for x in range(4):
        cache.has(place(5, x, 7))
    cache.exporter().export(wanted(), MbtilesTarget(path=file))
    with closing(sqlite3.connect(file)) as database:
        database.execute("UPDATE tileferry_facts SET produced_at = x'ff' WHERE tile_column = 0")
        database.execute(
            "UPDATE tileferry_facts SET resolution_m_per_px = -1 WHERE tile_column = 1"
        )
        database.execute("DELETE FROM tileferry_facts WHERE tile_column = 2")
        database.commit()
    assert refusals(MbtilesSource(file)).keys() == {"sat/5/0/7", "sat/5/1/7"}
    told = {item.tile_id.x: item.facts for item in _tiles(MbtilesSource(file))}
    assert told == {2: TileFacts(), 3: archived(place(5, 3, 7)).facts}


def _tiles(source: MbtilesSource | TreeSource) -> Iterator[ArchivedTile]:
    return (item for item in source.tiles("sat") if isinstance(item, ArchivedTile))


def test_a_name_with_marks_of_an_address_is_a_name(tmp_path: Path) -> None:
    path = tmp_path / "what?mode=rwc&x#y%20.mbtiles"
    assert len(list(made(path, PLAIN, row(*GOOD)).tiles("sat"))) == 1


# Trees


@pytest.fixture
def tree(cache: MemoryCache, tmp_path: Path) -> Path:
    for x in (9, 10, 100):
        for y in (2, 10):
            cache.has(place(9, x, y))
    cache.exporter().export(wanted(), TreeTarget(path=tmp_path / "tree"))
    return tmp_path / "tree"


def test_links_and_strange_files_are_named_and_not_read(tree: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(picture("secret"))
    (tree / "9/9/77.png").symlink_to(secret)
    (tree / "9/11").symlink_to(tmp_path)
    os.mkfifo(tree / "9/9/78.png")
    (tree / "9/9/deep").mkdir()
    (tree / "9/9/deep/1.png").write_bytes(b"x")
    (tree / "9/9/01.png").write_bytes(b"x")
    (tree / "9/999/").mkdir()
    (tree / "9/999/1.png").write_bytes(b"x")
    (tree / "readme.txt").write_bytes(b"x")
    found = refusals(TreeSource(tree))
    links = {"9/9/77.png", "9/11", "9/9/78.png", "9/9/deep"}
    assert {name for name, problem in found.items() if "links are not followed" in problem} == links
    assert found.keys() - links == {"9/9/01.png", "9/999/1.png", "readme.txt"}
    assert len(tiles_of(list(TreeSource(tree).tiles("sat")))) == 6
    assert len(list(TreeSource(tree).sizes("sat"))) == 6


def test_a_file_that_is_too_large_is_not_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_adapter, "TILE_BYTES_MAX", 1_000)
    (tree / "9/9/2.png").write_bytes(bytes(1_001))
    assert refusals(TreeSource(tree)) == {"9/9/2.png": "is too large for a tile"}


def test_facts_follow_their_tiles_whatever_else_is_there(tree: Path) -> None:
    (tree / "9/9/2.png").unlink()
    (tree / "9/9/5.png").write_bytes(picture("more"))
    (tree / "9/10/2.jpg").write_bytes(picture("again", "JPEG"))
    told = [(str(item.tile_id), item.facts) for item in _tiles(TreeSource(tree))]
    known = {tile: archived(tile).facts for tile in (place(9, 9, 10), place(9, 10, 2))}
    assert told[:2] == [("sat/9/9/5", TileFacts()), ("sat/9/9/10", known[place(9, 9, 10)])]
    assert told[2:4] == [("sat/9/10/2", known[place(9, 10, 2)])] * 2
    assert len(told) == 7


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"no json\n", "line 1"),
        (b'{"tile": "9/10/2"}\n{"tile": "9/9/2"}\n', "line 2 is not in the order"),
        (b'{"tile": "9/9/2"}\n{"tile": "9/9/2"}\n', "line 2 is not in the order"),
        (b"x" * 5_000, "longer than"),
    ],
)
def test_a_spoilt_list_of_facts_is_named(tree: Path, line: bytes, problem: str) -> None:
    (tree / "tiles.jsonl").write_bytes(line)
    with pytest.raises(ArchiveError, match=problem):
        list(TreeSource(tree).tiles("sat"))


def test_a_folder_as_an_aircraft_leaves_it_can_be_imported(tree: Path) -> None:
    (tree / "tiles.jsonl").unlink()
    (tree / "archive.json").unlink()
    (tree / "metadata.json").write_text('{"captured_at": "2026-05-01T00:00:00Z"}')
    facts = {item.facts for item in _tiles(TreeSource(tree))}
    assert [fact.texts() for fact in facts] == [("2026-05-01T00:00:00+00:00", None, None)]
    (tree / "metadata.json").write_text('{"captured": 1}')
    with pytest.raises(ArchiveError, match=r"metadata\.json"):
        list(TreeSource(tree).tiles("sat"))


def test_a_planted_list_of_facts_is_not_followed(tree: Path, tmp_path: Path) -> None:
    (tree / "tiles.jsonl").rename(tmp_path / "elsewhere")
    (tree / "tiles.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="symbolic link"):
        list(TreeSource(tree).tiles("sat"))


@pytest.mark.parametrize("kind", ["tree", "mbtiles"])
def test_what_is_known_survives_a_round_trip(cache: MemoryCache, tmp_path: Path, kind: str) -> None:
    for x in (3, 30):
        for y in (1, 11, 2):
            cache.has(place(9, x, y), picture((x, y), "JPEG" if x == 3 else "PNG"), days=x)
    path = tmp_path / "archive"
    target = TreeTarget(path=path) if kind == "tree" else MbtilesTarget(path=path)
    cache.exporter().export(wanted(), target)
    other = MemoryCache()
    other.lock.acquire()
    source = TreeSource(path) if kind == "tree" else MbtilesSource(path)
    assert other.importer().import_archive(source, offered()).tiles_imported == 6
    for row_ in cache.rows.all_tiles():
        assert TileFacts.of(other.row(row_.tile_id)) == TileFacts.of(row_)
        assert other.content(row_.tile_id) == cache.content(row_.tile_id)
