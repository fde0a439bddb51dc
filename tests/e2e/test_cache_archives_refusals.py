"""What ``cache export`` and ``cache import`` refuse, and what they say of it."""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.archive_operator import DAY, ArchiveOperator, create_tile_grid
from support.archives import create_image
from support.download_operator import wait_until

TILES = create_tile_grid(3)
NOT_UTF8 = os.fsdecode(b"x\xff")
PLAIN = "CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data)"


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> ArchiveOperator:
    person = ArchiveOperator(tmp_path, database_url)
    person.store_tiles(TILES)
    return person


def create_sqlite(path: Path, *scripts: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        for script in scripts:
            database.executescript(script)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("export", f"{NOT_UTF8}.mbtiles"), "DEST: is not UTF-8"),
        (("export", NOT_UTF8), "DEST: is not UTF-8"),
        (("export", "out", "--name", NOT_UTF8), "--name: is not UTF-8"),
        (("export", "out", "--attribution", NOT_UTF8), "--attribution: is not UTF-8"),
        (("import", NOT_UTF8, "--format", "tree"), "SRC: is not UTF-8"),
        (("import", NOT_UTF8, "--format", "mbtiles"), "SRC: is not UTF-8"),
    ],
)
def test_non_utf8_name_is_rejected_before_any_work(
    operator: ArchiveOperator, arguments: tuple[str, ...], said: str
) -> None:
    if arguments[0] == "import":
        (operator.home / NOT_UTF8).mkdir()
    before = set(operator.home.iterdir())
    ran = operator.run_in_process("cache", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert set(operator.home.iterdir()) - before <= {operator.home / "log.jsonl"}


def test_rejected_non_utf8_name_is_shown_escaped(operator: ArchiveOperator) -> None:
    ran = operator.run("cache", "export", f"{NOT_UTF8}.pmtiles")
    assert (ran.code, ran.out) == (2, "")
    assert "x\\udcff.pmtiles" in ran.err


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1_500, "… and 1,480 more; --json has the first 1,000."),
        (30, "… and 10 more; --json has them all."),
        (20, None),
    ],
)
def test_output_states_how_many_refusals_are_omitted(
    operator: ArchiveOperator, count: int, said: str | None
) -> None:
    path = operator.home / "their.mbtiles"
    create_sqlite(path, PLAIN)
    with closing(sqlite3.connect(path)) as database:
        for number in range(count):
            database.execute("INSERT INTO tiles VALUES (99, ?, 0, x'00')", (number,))
        database.commit()
    ran = operator.run_in_process("cache", "import", "their.mbtiles")
    assert ran.code == 3
    assert ("99/19/0" in ran.out, "99/20/0" in ran.out) == (True, False)
    assert "more; --json" not in ran.out if said is None else said in ran.out
    body = operator.run_in_process("cache", "import", "their.mbtiles", "--json").json
    assert (body["entries_refused"], len(body["refused"])) == (count, min(count, 1_000))


def test_first_of_duplicate_tiles_is_imported(operator: ArchiveOperator) -> None:
    path = operator.home / "their.mbtiles"
    create_sqlite(path, PLAIN)
    with closing(sqlite3.connect(path)) as database:
        for content in (create_image("first"), create_image("first"), create_image("second")):
            database.execute("INSERT INTO tiles VALUES (14, 9500, 10883, ?)", (content,))
        database.commit()
    said = ("--produced-at", f"{DAY:%Y-%m-%d}", "--resolution", "2.5", "--source", "theirs")
    ran = operator.run_in_process("cache", "import", "their.mbtiles", *said, "--json")
    assert (ran.code, ran.json["tiles_imported"], ran.json["tiles_unchanged"]) == (3, 1, 1)
    assert "earlier entry of this tile, which is kept" in ran.json["refused"][0]["problem"]
    operator.run_in_process("cache", "export", "out", "--source", "theirs")
    assert (operator.home / "out/14/9500/5500.png").read_bytes() == create_image("first")


_ENDLESS = """
    CREATE TABLE n (i);
    WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 3000)
    INSERT INTO n SELECT x FROM c;
    CREATE VIEW tiles AS SELECT a.i AS zoom_level, b.i AS tile_column, c.i AS tile_row,
        x'00' AS tile_data
    FROM n a, n b, n c, n d WHERE a.i + b.i * c.i + d.i < 0;
"""


def test_invariant_17_signal_stops_import_with_endless_query(
    operator: ArchiveOperator,
) -> None:
    create_sqlite(operator.home / "their.mbtiles", _ENDLESS)
    process = operator.start("cache", "import", "their.mbtiles")

    def reads_it() -> bool:
        opened = Path(f"/proc/{process.pid}/fd").iterdir()
        return any(read_link(fd) == str(operator.home / "their.mbtiles") for fd in opened)

    wait_until(reads_it, "the archive to be opened")
    process.send_signal(signal.SIGTERM)
    assert process.wait(9) == 130  # before its time of grace is over
    assert (
        operator.run_in_process("cache", "import", ".", "--json").code == 3
    )  # nobody has the lock


def read_link(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""


@pytest.mark.parametrize("form", ["mbtiles", "pmtiles", "tree"])
def test_file_that_is_not_an_archive_is_not_replaced(operator: ArchiveOperator, form: str) -> None:
    (operator.home / "notes.txt").write_text("remember the milk")
    ran = operator.run_in_process("cache", "export", "notes.txt", "--format", form, "--replace")
    assert ran.code == 4
    assert "is not replaced" in ran.err
    assert (operator.home / "notes.txt").read_text() == "remember the milk"
