"""MBTiles that make work: how much of it is done is bounded, and who wants to stop is heard."""

import signal
import sqlite3
import threading
import time
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
from support.archives import (
    MemoryCache,
    collect_tiles,
    create_export_request,
    create_import_request,
    create_tile_id,
)

from tileferry.adapters.filesystem.archives import (
    MbtilesSource,
    MbtilesTarget,
    TreeSource,
    TreeTarget,
    untrusted_database,
)
from tileferry.application.ports.archives import RefusedEntry
from tileferry.domain.errors import ArchiveError
from tileferry.domain.tiles import TILE_BYTES_MAX
from tileferry.entrypoints.cli.signals import StopSignals

PLAIN = "CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data)"
NUMBERS = """
    CREATE TABLE n (i);
    WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 3000)
    INSERT INTO n SELECT x FROM c;
"""
NEVER = """
    CREATE VIEW tiles AS SELECT a.i AS zoom_level, b.i AS tile_column, c.i AS tile_row,
        x'00' AS tile_data
    FROM n a, n b, n c, n d WHERE a.i + b.i * c.i + d.i < 0;
"""
"""Eighty million million rows are looked at, and none is one."""
SELDOM = """
    CREATE VIEW tiles AS SELECT 5 AS zoom_level, b.i AS tile_column, 1 AS tile_row,
        x'00' AS tile_data
    FROM n a, n b, n c WHERE a.i + b.i + c.i = a.i + 3010;
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "their.mbtiles"


def create_mbtiles(path: Path, *scripts: str) -> MbtilesSource:
    with closing(sqlite3.connect(path)) as database:
        for script in scripts:
            database.executescript(script)
    return MbtilesSource(path)


@pytest.mark.parametrize("view", [NEVER, SELDOM], ids=["never a row", "seldom a row"])
def test_expensive_view_is_aborted(file: Path, monkeypatch: pytest.MonkeyPatch, view: str) -> None:
    monkeypatch.setattr(untrusted_database, "STEPS_MAX", 3_000_000)
    source = create_mbtiles(file, NUMBERS, view)
    for read in (source.tiles, source.iter_sizes):
        with pytest.raises(ArchiveError, match="reading its tiles takes too much work"):
            list(read("sat"))


def test_archive_with_many_tiles_stays_within_the_work_limit(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted_database, "STEPS_MAX", 100_000)
    source = create_mbtiles(
        file,
        NUMBERS,
        """
        CREATE TABLE images (tile_id, tile_data);
        CREATE UNIQUE INDEX image_index ON images (tile_id);
        INSERT INTO images SELECT i, x'00' FROM n;
        CREATE VIEW tiles AS SELECT 12 AS zoom_level, a.i AS tile_column, b.i AS tile_row,
            tile_data
        FROM n a CROSS JOIN n b JOIN images ON images.tile_id = a.i WHERE a.i < 10;
        """,
    )
    assert len(list(source.iter_sizes("sat"))) == 9 * 3_000


@pytest.mark.parametrize("deferred", [True, False])
def test_stop_signal_interrupts_a_running_sqlite_query(file: Path, *, deferred: bool) -> None:
    create_mbtiles(file, NUMBERS, NEVER)
    with StopSignals(grace_s=60.0) as stop:
        if deferred:
            stop.defer()
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGTERM))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            list(MbtilesSource(file, check=stop.check).iter_sizes("sat"))
        timer.join()


def test_stop_signal_is_checked_between_invalid_rows(file: Path) -> None:
    create_mbtiles(file, PLAIN, "INSERT INTO tiles VALUES (99, 0, 0, x'00'), (99, 1, 1, x'00');")
    with StopSignals(grace_s=60.0) as stop:
        stop.defer()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            list(MbtilesSource(file, check=stop.check).iter_sizes("sat"))


@pytest.mark.parametrize("kind", ["tree", "mbtiles"])
def test_stop_signal_interrupts_an_import_during_space_estimation(
    tmp_path: Path, kind: str
) -> None:
    cache, other = MemoryCache(), MemoryCache()
    other.lock.acquire()
    for x in range(3):
        cache.put(create_tile_id(5, x, 7))
    path = tmp_path / "archive"
    cache.create_exporter().export(
        create_export_request(),
        TreeTarget(path=path) if kind == "tree" else MbtilesTarget(path=path),
    )
    with StopSignals(grace_s=60.0) as stop:
        stop.defer()
        signal.raise_signal(signal.SIGTERM)
        check = stop.check
        source = (
            TreeSource(path, check=check) if kind == "tree" else MbtilesSource(path, check=check)
        )
        with pytest.raises(KeyboardInterrupt):
            other.create_importer().import_archive(source, create_import_request())
    assert other.rows.all_tiles() == []
    assert other.ledger.sum_reserved_bytes() == 0


COLUMNS = "1 AS tile_column, 1 AS tile_row"


@pytest.mark.parametrize(
    ("view", "problem"),
    [
        (f"1 AS zoom_level, {COLUMNS}, randomblob(900000000) AS tile_data", "randomblob"),
        (f"hex(zeroblob(50000000)) AS zoom_level, {COLUMNS}, x'00' AS tile_data", "hex"),
        (f"t || t || t AS zoom_level, {COLUMNS}, x'00' AS tile_data", "string or blob too big"),
        (f"1 AS zoom_level, {COLUMNS}, t || t || t AS tile_data", "string or blob too big"),
    ],
)
def test_oversized_computed_value_is_rejected(file: Path, view: str, problem: str) -> None:
    source = create_mbtiles(
        file,
        "CREATE TABLE n (t); INSERT INTO n VALUES (hex(zeroblob(15000000)))",
        f"CREATE VIEW tiles AS SELECT {view} FROM n",  # noqa: S608  # ours
    )
    for read in (source.tiles, source.iter_sizes):
        with pytest.raises(ArchiveError, match=problem):
            list(read("sat"))


def test_oversized_stored_blob_is_refused_without_affecting_other_rows(file: Path) -> None:
    size = 134_217_728
    assert size == TILE_BYTES_MAX * 2
    source = create_mbtiles(
        file,
        PLAIN,
        "INSERT INTO tiles VALUES (5, 0, 0, zeroblob(134217728)), (5, 0, 1, x'00')",
    )
    refused, kept = list(source.tiles("sat"))
    assert refused == RefusedEntry(
        place="sat/5/0/31", problem=f"has {size} bytes, too many for a tile"
    )
    assert list(collect_tiles([kept])) == [create_tile_id(5, 0, 30)]


def test_label_of_a_refused_row_is_truncated_and_escaped(file: Path) -> None:
    source = create_mbtiles(
        file,
        PLAIN,
        "INSERT INTO tiles VALUES (char(27) || hex(zeroblob(1000000)), 1, 1, x'00')",
    )
    tracemalloc.start()
    kept = list(source.tiles("sat"))
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    (refused,) = kept
    assert isinstance(refused, RefusedEntry)
    assert refused.place == "\\x1b" + "0" * 39 + "… (+1999961 characters)/1/1"
    assert size_bytes < 500_000


@pytest.fixture
def many_rows(tmp_path: Path) -> Path:
    path = tmp_path / "many.mbtiles"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE tiles (tile_row integer)")
        database.executemany("INSERT INTO tiles VALUES (?)", [(row,) for row in range(2_000)])
    return path


def test_stop_is_checked_while_a_query_finds_no_rows(many_rows: Path) -> None:
    heard: list[int] = []
    with untrusted_database.open_untrusted_database(
        many_rows, "MBTiles", lambda: heard.append(1)
    ) as database:
        assert list(database.fetch_rows("SELECT 1 FROM tiles WHERE tile_row < 0")) == []
    assert len(heard) > 20  # a step may take long, so it is asked for after few of them


def test_query_that_yields_no_row_in_time_is_aborted(
    many_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted_database, "SECONDS_MAX", -1.0)
    with (
        pytest.raises(ArchiveError, match="takes too much work"),
        untrusted_database.open_untrusted_database(many_rows, "MBTiles", lambda: None) as database,
    ):
        list(database.fetch_rows("SELECT 1 FROM tiles WHERE tile_row < 0"))


def test_time_of_rows_that_come_slowly_adds_up(
    many_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted_database, "SECONDS_MAX", 0.02)
    monkeypatch.setattr(untrusted_database, "SECONDS_A_ROW", -0.001)
    rows: list[object] = []
    with (
        pytest.raises(ArchiveError, match="takes too much work"),
        untrusted_database.open_untrusted_database(many_rows, "MBTiles", lambda: None) as database,
    ):
        rows += database.fetch_rows("SELECT tile_row FROM tiles")
    assert 0 < len(rows) < 2_000


def test_join_of_300_to_the_fourth_rows_is_aborted_by_its_time(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted_database, "SECONDS_MAX", 0.2)
    few = NUMBERS.replace("3000", "300")
    source = create_mbtiles(file, few, NEVER)
    for read in (source.tiles, source.iter_sizes):
        begun_s = time.monotonic()
        with pytest.raises(ArchiveError, match="takes too much work"):
            list(read("sat"))
        assert time.monotonic() - begun_s < 5


def test_reading_a_large_schema_counts_as_work(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted_database, "STEPS_MAX", 1_000)
    source = create_mbtiles(file, PLAIN, "".join(f"CREATE TABLE t{n} (i);" for n in range(500)))
    with pytest.raises(ArchiveError, match="takes too much work"):
        list(source.iter_sizes("sat"))


COMMENTS = {
    "words of a virtual table": "virtual ",
    "comments": "*//* ",
    "lines": "\n--",
    "spaces": " \n\t",
}


@pytest.mark.parametrize("name", COMMENTS)
@pytest.mark.parametrize("size", [90_000, 2_000_000])
def test_schema_with_a_long_comment_is_read_or_rejected_at_once(
    file: Path, name: str, size: int
) -> None:
    text = COMMENTS[name] * (size // len(COMMENTS[name]))
    columns = "zoom_level, tile_column, tile_row, tile_data"
    source = create_mbtiles(file, f"CREATE TABLE tiles ({columns} /* {text}*/)")
    begun_s = time.monotonic()
    assert source.is_readable() == (size < 100_000)
    assert time.monotonic() - begun_s < 2


@pytest.mark.parametrize("blank", [" ", "\n", "/* a */", "-- b\n", "/**/--\n\t/* * */"])
def test_virtual_table_is_not_read_however_it_is_written(file: Path, blank: str) -> None:
    create_mbtiles(file, "CREATE VIRTUAL TABLE tiles USING fts5(zoom_level)")
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA writable_schema = ON")
        sql = f"{blank}CREATE{blank}VIRTUAL{blank}TABLE tiles USING fts5(zoom_level)"
        database.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'tiles'", [sql])
    assert not MbtilesSource(file).is_readable()


def test_views_of_views_do_not_grow_without_limit(file: Path) -> None:
    views = "".join(
        f"CREATE VIEW v{n} AS SELECT * FROM v{n - 1} UNION SELECT * FROM v{n - 1};"  # noqa: S608  # ours
        for n in range(1, 30)
    )
    columns = "(zoom_level, tile_column, tile_row, tile_data)"
    source = create_mbtiles(
        file, f"CREATE TABLE v0 {columns};", views, "CREATE VIEW tiles AS SELECT * FROM v29"
    )
    begun_s = time.monotonic()
    with pytest.raises(ArchiveError, match="cannot be read as MBTiles"):
        list(source.iter_sizes("sat"))
    assert time.monotonic() - begun_s < 15
