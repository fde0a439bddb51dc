"""Archives that somebody spoilt, by accident or on purpose: named, and nothing else happens."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.archives import (
    MemoryCache,
    collect_tiles,
    create_archived_tile,
    create_export_request,
    create_image,
    create_import_request,
    create_tile_id,
)

from tileferry.adapters.filesystem.archives import (
    MbtilesSource,
    MbtilesTarget,
    TreeSource,
    TreeTarget,
    sqlite_archive,
)
from tileferry.adapters.filesystem.archives import tree as tree_adapter
from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.domain.archives import TileFacts
from tileferry.domain.errors import ArchiveError
from tileferry.domain.tiles import TILE_BYTES_MAX

PLAIN = "CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data)"
GOOD = (5, 3, 31 - 7, create_image("good"))


@pytest.fixture
def cache() -> MemoryCache:
    cache = MemoryCache()
    cache.lock.acquire()
    return cache


def create_mbtiles(path: Path, *statements: str | tuple[str, tuple[object, ...]]) -> MbtilesSource:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(*([statement] if isinstance(statement, str) else statement))
        database.commit()
    return MbtilesSource(path)


def insert_row(*values: object) -> tuple[str, tuple[object, ...]]:
    return "INSERT INTO tiles VALUES (?, ?, ?, ?)", values


def collect_refusals(source: MbtilesSource | TreeSource) -> dict[str, str]:
    return {
        item.place: item.problem for item in source.tiles("sat") if isinstance(item, RefusedEntry)
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "their.mbtiles"


# MBTiles


def test_mbtiles_rows_are_numbered_from_the_south(file: Path) -> None:
    source = create_mbtiles(file, PLAIN, insert_row(*GOOD))
    assert collect_tiles(list(source.tiles("sat"))) == {
        create_tile_id(5, 3, 7): create_image("good")
    }
    assert dict(source.iter_sizes("sat")) == {create_tile_id(5, 3, 7): len(create_image("good"))}


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
        ((5, 0, 0, None), "is not a blob"),
        ((5, 0, 0, "text"), "is not a blob"),
        ((5, 0, 0, 7), "is not a blob"),
    ],
)
def test_invalid_mbtiles_row_is_refused_and_the_rest_are_read(
    file: Path, spoilt: tuple[object, ...], problem: str
) -> None:
    source = create_mbtiles(file, PLAIN, insert_row(*spoilt), insert_row(*GOOD))
    (found,) = collect_refusals(source).values()
    assert problem in found
    assert list(collect_tiles(list(source.tiles("sat")))) == [create_tile_id(5, 3, 7)]
    assert [tile for tile, _ in source.iter_sizes("sat")] == [create_tile_id(5, 3, 7)]


def test_oversized_blob_is_refused_without_reading_it(file: Path) -> None:
    size = TILE_BYTES_MAX + 1
    source = create_mbtiles(
        file, PLAIN, ("INSERT INTO tiles VALUES (5, 0, 0, zeroblob(?))", (size,)), insert_row(*GOOD)
    )
    assert collect_refusals(source) == {"sat/5/0/31": f"has {size} bytes, too many for a tile"}
    assert len(dict(source.iter_sizes("sat"))) == 1


def test_tiles_view_is_read_like_a_table(file: Path) -> None:
    source = create_mbtiles(
        file,
        "CREATE TABLE map (zoom_level, tile_column, tile_row, tile_id)",
        "CREATE TABLE images (tile_id, tile_data)",
        "INSERT INTO map VALUES (5, 3, 24, 'a'), (5, 4, 24, 'a')",
        ("INSERT INTO images VALUES ('a', ?)", (create_image("good"),)),
        "CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, tile_data"
        " FROM map JOIN images USING (tile_id)",
    )
    assert collect_tiles(list(source.tiles("sat"))) == {
        create_tile_id(5, 3, 7): create_image("good"),
        create_tile_id(5, 4, 7): create_image("good"),
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
def test_view_with_recursion_or_unsafe_functions_is_rejected(file: Path, view: str) -> None:
    source = create_mbtiles(file, f"CREATE VIEW tiles AS {view}")
    with pytest.raises(ArchiveError, match="cannot be read as MBTiles"):
        list(source.tiles("sat"))


def test_view_with_too_many_rows_is_aborted(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_archive, "AREA_TILES_MAX", 500)
    source = create_mbtiles(
        file,
        "CREATE TABLE n (i)",
        "INSERT INTO n VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10)",
        "CREATE VIEW tiles AS SELECT 5 AS zoom_level, a.i AS tile_column, b.i AS tile_row,"
        " x'00' AS tile_data FROM n a, n b, n c, n d",
    )
    with pytest.raises(ArchiveError, match="has more than 500 tiles"):
        list(source.tiles("sat"))


def test_virtual_tiles_table_is_rejected(file: Path) -> None:
    source = create_mbtiles(
        file, "CREATE VIRTUAL TABLE tiles USING fts5(zoom_level, tile_column, tile_row, tile_data)"
    )
    with pytest.raises(ArchiveError, match="has no tiles table"):
        list(source.tiles("sat"))


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("CREATE TABLE other (x)", "has no tiles table"),
        ("CREATE TABLE tiles (z, x, y, data)", "no such column"),
        ("CREATE VIEW tiles AS SELECT * FROM missing", "cannot be read as MBTiles"),
    ],
)
def test_wrong_mbtiles_schema_is_rejected(file: Path, schema: str, problem: str) -> None:
    source = create_mbtiles(file, schema)
    with pytest.raises(ArchiveError, match=problem):
        list(source.tiles("sat"))
    with pytest.raises(ArchiveError, match=problem):
        list(source.iter_sizes("sat"))


@pytest.mark.parametrize(
    "content", [b"", b"PNG", b"SQLite format 3\0" + bytes(200), os.urandom(5_000)]
)
def test_file_that_is_not_sqlite_is_rejected(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(ArchiveError):
        list(MbtilesSource(file).tiles("sat"))


def test_folder_or_missing_file_is_rejected_as_mbtiles(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(ArchiveError, match="is not a file"):
            list(MbtilesSource(path).tiles("sat"))
    assert list(tmp_path.iterdir()) == []


def test_damaged_mbtiles_fails_and_tiles_already_imported_are_kept(
    cache: MemoryCache, file: Path
) -> None:
    for x in range(400):
        cache.put(create_tile_id(12, 100, 100 + x), create_image(x, size=64))
    cache.create_exporter().export(create_export_request(), MbtilesTarget(path=file))
    content = bytearray(file.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 20_000] = os.urandom(20_000)
    file.write_bytes(content)
    other = MemoryCache()
    other.lock.acquire()
    with pytest.raises(ArchiveError, match="cannot be read as MBTiles"):
        other.create_importer().import_archive(MbtilesSource(file), create_import_request())
    for row_ in other.rows.all_tiles():
        assert other.read_content(row_.tile_id) == cache.read_content(row_.tile_id)


def test_reading_mbtiles_leaves_the_folder_unchanged(file: Path) -> None:
    source = create_mbtiles(file, PLAIN, insert_row(*GOOD))
    before = file.read_bytes()
    list(source.tiles("sat"))
    assert list(file.parent.iterdir()) == [file]
    assert file.read_bytes() == before


def test_rows_in_the_write_ahead_log_are_read(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(PLAIN)
        database.execute(*insert_row(*GOOD))
        database.commit()
        assert len(list(MbtilesSource(file).tiles("sat"))) == 1


def test_tile_with_invalid_facts_is_refused(cache: MemoryCache, file: Path) -> None:
    for x in range(4):
        cache.put(create_tile_id(5, x, 7))
    cache.create_exporter().export(create_export_request(), MbtilesTarget(path=file))
    with closing(sqlite3.connect(file)) as database:
        database.execute("UPDATE tileferry_facts SET produced_at = x'ff' WHERE tile_column = 0")
        database.execute(
            "UPDATE tileferry_facts SET resolution_m_per_px = -1 WHERE tile_column = 1"
        )
        database.execute("DELETE FROM tileferry_facts WHERE tile_column = 2")
        database.commit()
    assert collect_refusals(MbtilesSource(file)).keys() == {"sat/5/0/7", "sat/5/1/7"}
    told = {item.tile_id.x: item.facts for item in _archived_tiles(MbtilesSource(file))}
    assert told == {2: TileFacts(), 3: create_archived_tile(create_tile_id(5, 3, 7)).facts}


def _archived_tiles(source: MbtilesSource | TreeSource) -> Iterator[ArchivedTile]:
    return (item for item in source.tiles("sat") if isinstance(item, ArchivedTile))


def test_uri_characters_in_a_file_name_are_taken_literally(tmp_path: Path) -> None:
    path = tmp_path / "what?mode=rwc&x#y%20.mbtiles"
    assert len(list(create_mbtiles(path, PLAIN, insert_row(*GOOD)).tiles("sat"))) == 1


# Trees


@pytest.fixture
def tree(cache: MemoryCache, tmp_path: Path) -> Path:
    for x in (9, 10, 100):
        for y in (2, 10):
            cache.put(create_tile_id(9, x, y))
    cache.create_exporter().export(create_export_request(), TreeTarget(path=tmp_path / "tree"))
    return tmp_path / "tree"


def test_symlinks_and_special_files_in_a_tree_are_refused(tree: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(create_image("secret"))
    (tree / "9/9/77.png").symlink_to(secret)
    (tree / "9/11").symlink_to(tmp_path)
    os.mkfifo(tree / "9/9/78.png")
    (tree / "9/9/deep").mkdir()
    (tree / "9/9/deep/1.png").write_bytes(b"x")
    (tree / "9/9/01.png").write_bytes(b"x")
    (tree / "9/999/").mkdir()
    (tree / "9/999/1.png").write_bytes(b"x")
    (tree / "readme.txt").write_bytes(b"x")
    found = collect_refusals(TreeSource(tree))
    links = {"9/9/77.png", "9/11", "9/9/78.png", "9/9/deep"}
    assert {name for name, problem in found.items() if "links are not followed" in problem} == links
    assert found.keys() - links == {"9/9/01.png", "9/999/1.png", "readme.txt"}
    assert len(collect_tiles(list(TreeSource(tree).tiles("sat")))) == 6
    assert len(list(TreeSource(tree).iter_sizes("sat"))) == 6


def test_oversized_tree_file_is_refused(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_adapter, "TILE_BYTES_MAX", 1_000)
    (tree / "9/9/2.png").write_bytes(bytes(1_001))
    assert collect_refusals(TreeSource(tree)) == {"9/9/2.png": "is too large for a tile"}


def test_facts_match_their_tiles_when_tree_files_are_added_or_removed(tree: Path) -> None:
    (tree / "9/9/2.png").unlink()
    (tree / "9/9/5.png").write_bytes(create_image("more"))
    (tree / "9/10/2.jpg").write_bytes(create_image("again", "JPEG"))
    told = [(str(item.tile_id), item.facts) for item in _archived_tiles(TreeSource(tree))]
    known = {
        tile: create_archived_tile(tile).facts
        for tile in (create_tile_id(9, 9, 10), create_tile_id(9, 10, 2))
    }
    assert told[:2] == [("sat/9/9/5", TileFacts()), ("sat/9/9/10", known[create_tile_id(9, 9, 10)])]
    assert told[2:4] == [("sat/9/10/2", known[create_tile_id(9, 10, 2)])] * 2
    assert len(told) == 7


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"no json\n", "line 1"),
        (
            b'{"tile": "9/10/2"}\n{"tile": "9/9/2"}\n',
            "line 2 is not sorted by zoom, column and row",
        ),
        (b'{"tile": "9/9/2"}\n{"tile": "9/9/2"}\n', "line 2 is not sorted by zoom, column and row"),
        (b"x" * 5_000, "longer than"),
    ],
)
def test_malformed_facts_list_is_rejected(tree: Path, line: bytes, problem: str) -> None:
    (tree / "tiles.jsonl").write_bytes(line)
    with pytest.raises(ArchiveError, match=problem):
        list(TreeSource(tree).tiles("sat"))


def test_capture_folder_with_metadata_json_can_be_read_as_a_tree(tree: Path) -> None:
    (tree / "tiles.jsonl").unlink()
    (tree / "archive.json").unlink()
    (tree / "metadata.json").write_text('{"captured_at": "2026-05-01T00:00:00Z"}')
    facts = {item.facts for item in _archived_tiles(TreeSource(tree))}
    assert [fact.to_texts() for fact in facts] == [("2026-05-01T00:00:00+00:00", None, None)]
    (tree / "metadata.json").write_text('{"captured": 1}')
    with pytest.raises(ArchiveError, match=r"metadata\.json"):
        list(TreeSource(tree).tiles("sat"))


def test_symlinked_facts_list_is_not_followed(tree: Path, tmp_path: Path) -> None:
    (tree / "tiles.jsonl").rename(tmp_path / "elsewhere")
    (tree / "tiles.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="symbolic link"):
        list(TreeSource(tree).tiles("sat"))


@pytest.mark.parametrize("kind", ["tree", "mbtiles"])
def test_facts_and_content_survive_an_export_import_round_trip(
    cache: MemoryCache, tmp_path: Path, kind: str
) -> None:
    for x in (3, 30):
        for y in (1, 11, 2):
            cache.put(
                create_tile_id(9, x, y), create_image((x, y), "JPEG" if x == 3 else "PNG"), days=x
            )
    path = tmp_path / "archive"
    target = TreeTarget(path=path) if kind == "tree" else MbtilesTarget(path=path)
    cache.create_exporter().export(create_export_request(), target)
    other = MemoryCache()
    other.lock.acquire()
    source = TreeSource(path) if kind == "tree" else MbtilesSource(path)
    assert (
        other.create_importer().import_archive(source, create_import_request()).tiles_imported == 6
    )
    for row_ in cache.rows.all_tiles():
        assert TileFacts.from_metadata(other.get_row(row_.tile_id)) == TileFacts.from_metadata(row_)
        assert other.read_content(row_.tile_id) == cache.read_content(row_.tile_id)
