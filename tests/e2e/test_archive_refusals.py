"""What ``cache export`` and ``cache import`` refuse, and what they say of it."""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.archive_operator import DAY, ArchiveOperator, grid
from support.archives import picture
from support.area_operator import wait_until

TILES = grid(3)
NOT_UTF8 = os.fsdecode(b"x\xff")
PLAIN = "CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data)"


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> ArchiveOperator:
    person = ArchiveOperator(tmp_path, database_url)
    person.has(TILES)
    return person


def makes(path: Path, *scripts: str) -> None:
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
def test_a_name_that_is_not_utf8_is_refused_before_any_work(
    operator: ArchiveOperator, arguments: tuple[str, ...], said: str
) -> None:
    if arguments[0] == "import":
        (operator.home / NOT_UTF8).mkdir()
    before = set(operator.home.iterdir())
    ran = operator.runs_here("cache", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert set(operator.home.iterdir()) - before <= {operator.home / "log.jsonl"}


def test_a_refused_name_can_be_shown(operator: ArchiveOperator) -> None:
    ran = operator.runs("cache", "export", f"{NOT_UTF8}.pmtiles")
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
def test_of_many_refusals_it_says_how_many_are_named(
    operator: ArchiveOperator, count: int, said: str | None
) -> None:
    path = operator.home / "their.mbtiles"
    makes(path, PLAIN)
    with closing(sqlite3.connect(path)) as database:
        for number in range(count):
            database.execute("INSERT INTO tiles VALUES (99, ?, 0, x'00')", (number,))
        database.commit()
    ran = operator.runs_here("cache", "import", "their.mbtiles")
    assert ran.code == 3
    assert ("99/19/0" in ran.out, "99/20/0" in ran.out) == (True, False)
    assert "more; --json" not in ran.out if said is None else said in ran.out
    body = operator.runs_here("cache", "import", "their.mbtiles", "--json").json
    assert (body["entries_refused"], len(body["refused"])) == (count, min(count, 1_000))


def test_of_a_tile_that_is_there_twice_the_first_is_imported(operator: ArchiveOperator) -> None:
    path = operator.home / "their.mbtiles"
    makes(path, PLAIN)
    with closing(sqlite3.connect(path)) as database:
        for content in (picture("first"), picture("first"), picture("second")):
            database.execute("INSERT INTO tiles VALUES (14, 9500, 10883, ?)", (content,))
        database.commit()
    said = ("--produced-at", f"{DAY:%Y-%m-%d}", "--resolution", "2.5", "--source", "theirs")
    ran = operator.runs_here("cache", "import", "their.mbtiles", *said, "--json")
    assert (ran.code, ran.json["tiles_imported"], ran.json["tiles_unchanged"]) == (3, 1, 1)
    assert "the first stays" in ran.json["refused"][0]["problem"]
    operator.runs_here("cache", "export", "out", "--source", "theirs")
    assert (operator.home / "out/14/9500/5500.png").read_bytes() == picture("first")


_ENDLESS = """
    CREATE TABLE n (i);
    WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 3000)
    INSERT INTO n SELECT x FROM c;
    CREATE VIEW tiles AS SELECT a.i AS zoom_level, b.i AS tile_column, c.i AS tile_row,
        x'00' AS tile_data
    FROM n a, n b, n c, n d WHERE a.i + b.i * c.i + d.i < 0;
"""


def test_invariant_17_an_import_of_endless_work_hears_that_it_shall_stop(
    operator: ArchiveOperator,
) -> None:
    makes(operator.home / "their.mbtiles", _ENDLESS)
    process = operator.starts("cache", "import", "their.mbtiles")

    def reads_it() -> bool:
        opened = Path(f"/proc/{process.pid}/fd").iterdir()
        return any(_target(fd) == str(operator.home / "their.mbtiles") for fd in opened)

    wait_until(reads_it, "the archive to be opened")
    process.send_signal(signal.SIGTERM)
    assert process.wait(9) == 130  # before its time of grace is over
    assert operator.runs_here("cache", "import", ".", "--json").code == 3  # nobody has the lock


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""


@pytest.mark.parametrize("form", ["mbtiles", "pmtiles", "tree"])
def test_a_file_that_is_no_archive_is_not_replaced(operator: ArchiveOperator, form: str) -> None:
    (operator.home / "notes.txt").write_text("remember the milk")
    ran = operator.runs_here("cache", "export", "notes.txt", "--format", form, "--replace")
    assert ran.code == 4
    assert "is not replaced" in ran.err
    assert (operator.home / "notes.txt").read_text() == "remember the milk"
