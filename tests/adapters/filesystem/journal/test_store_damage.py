"""Journals that crashes, bad disks and hostile hands have been at."""

import logging
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.disk_faults import UNSYNCED, CallLog

from tileferry.adapters.filesystem.journal.store import FileJournalStore
from tileferry.domain.errors import StorageError
from tileferry.domain.tiles import BBox, TileCoverage, TileId, TileSet

AREA = TileCoverage(bbox=BBox(west=36.0, south=49.0, east=37.0, north=50.0), zoom_levels=[11, 12])
TILES = list(AREA.tiles("sat"))
GROUPS = [TILES[:2], TILES[2:3], TILES[3:7]]
LATER = TILES[7:9]
NAME = "flight-7__0123456789abcdef.json"

no_fixture_reset = settings(
    database=None,
    deadline=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def store(tmp_path: Path) -> FileJournalStore:
    return FileJournalStore(root=tmp_path, logger=logging.getLogger("test"), calls=UNSYNCED)


def journal_path(store: FileJournalStore) -> Path:
    return store.root / ".c11/journal" / NAME


def append(store: FileJournalStore, *groups: list[TileId]) -> None:
    journal = store.open(NAME)
    for group in groups:
        journal.append(group)
    journal.flush()
    journal.close()


def read_tiles(store: FileJournalStore) -> list[TileId]:
    journal, found = store.open(NAME), TileSet(AREA)
    journal.read_into(found)
    assert journal.count == len(found)
    journal.close()
    return [tile for tile in TILES if tile in found]


def list_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        str(getattr(record, "kind", ""))
        for record in caplog.records
        if record.levelno >= logging.WARNING
    ]


def frame_record(content: bytes) -> bytes:
    return b"%d %08x %b\n" % (len(content), crc32(content), content)


def flatten(groups: Iterable[list[TileId]]) -> list[TileId]:
    return [tile for group in groups for tile in group]


def test_invariant_3_journal_truncated_at_any_byte_keeps_complete_records(
    store: FileJournalStore, caplog: pytest.LogCaptureFixture
) -> None:
    append(store, *GROUPS)
    whole = journal_path(store).read_bytes()
    for cut in range(len(whole) + 1):
        journal_path(store).write_bytes(whole[:cut])
        groups_left = max(0, whole[:cut].count(b"\n") - 1)
        expected = flatten(GROUPS[:groups_left])
        assert read_tiles(store) == expected
        append(store, LATER)
        assert read_tiles(store) == [*expected, *LATER]
    assert list_warnings(caplog) == []


@pytest.mark.parametrize("mask", [0x01, 0x08, 0xFF])
def test_invariant_3_flipped_byte_loses_only_its_record(store: FileJournalStore, mask: int) -> None:
    append(store, *GROUPS)
    whole = journal_path(store).read_bytes()
    for index in range(len(whole)):
        flipped = whole[:index] + bytes([whole[index] ^ mask]) + whole[index + 1 :]
        journal_path(store).write_bytes(flipped)
        found = read_tiles(store)
        lost = [group for group in GROUPS if not set(group) <= set(found)]
        assert set(found) <= set(flatten(GROUPS))
        assert len(lost) <= (2 if whole[index] == ord("\n") else 1)
        append(store, LATER)
        assert read_tiles(store) == [*found, *LATER]


@pytest.mark.parametrize("line_break", [b"\n", b"\0"])
def test_invariant_3_inserted_line_break_adds_no_tiles(
    store: FileJournalStore, line_break: bytes
) -> None:
    append(store, *GROUPS)
    whole = journal_path(store).read_bytes()
    for index in range(len(whole)):
        journal_path(store).write_bytes(whole[:index] + line_break + whole[index + 1 :])
        assert set(read_tiles(store)) <= set(flatten(GROUPS))


def test_invariant_3_damaged_record_is_skipped_with_a_warning(
    store: FileJournalStore, caplog: pytest.LogCaptureFixture
) -> None:
    append(store, *GROUPS)
    lines = journal_path(store).read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"sat", b"sbt")
    journal_path(store).write_bytes(b"".join(lines))
    assert read_tiles(store) == [*GROUPS[0], *GROUPS[2]]
    (record,) = caplog.records
    assert (record.levelname, record.__dict__["kind"], record.__dict__["journal"]) == (
        "WARNING",
        "c11.journal.damaged_record",
        NAME,
    )
    assert record.__dict__["offset"] == len(lines[0] + lines[1])


def test_torn_tail_is_removed_by_the_next_append(store: FileJournalStore) -> None:
    append(store, *GROUPS)
    whole = journal_path(store).read_bytes()
    journal_path(store).write_bytes(whole + b"77 0badc0de {" + b"\0" * 5_000)
    append(store, LATER)
    assert journal_path(store).read_bytes().startswith(whole)
    assert b"\0" not in journal_path(store).read_bytes()
    assert read_tiles(store) == [*flatten(GROUPS), *LATER]


@no_fixture_reset
@given(junk=st.binary(max_size=400))
def test_junk_is_ignored_and_does_not_block_appends(store: FileJournalStore, junk: bytes) -> None:
    store.open(NAME).close()  # makes the directory
    journal_path(store).write_bytes(junk)
    assert read_tiles(store) == []
    append(store, LATER)
    assert read_tiles(store) == LATER


@no_fixture_reset
@given(st.data())
def test_arbitrary_damage_never_adds_tiles(store: FileJournalStore, data: st.DataObject) -> None:
    journal_path(store).unlink(missing_ok=True)
    append(store, *GROUPS)
    content = bytearray(journal_path(store).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(len(content), start + 40)))
        content[start:end] = data.draw(st.binary(max_size=40))
    journal_path(store).write_bytes(content)
    assert set(read_tiles(store)) <= set(flatten(GROUPS))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"source":' * 9_000,
        b"\xff\xfe",
        b'{"source":"sat"}',
        b'{"source":"sat","tiles":[]}',
        b'{"source":"sat","tiles":{"11":[1]}}',
        b'{"source":"sat","tiles":{"11":[1,1,1]}}',
        b'{"source":"sat","tiles":{"11":[1.0,1]}}',
        b'{"source":"sat","tiles":{"11":[true,1]}}',
        b'{"source":"sat","tiles":{"11":["1","1"]}}',
        b'{"source":"sat","tiles":{"11":[-1,1]}}',
        b'{"source":"sat","tiles":{"11":[2048,1]}}',
        b'{"source":"sat","tiles":{"11":[' + b"9" * 5_000 + b",1]}}",
        b'{"source":"sat","tiles":{"11":[NaN,1]}}',
        b'{"source":"sat","tiles":{"22":[1,1]}}',
        b'{"source":"sat","tiles":{"011":[1,1]}}',
        b'{"source":"sat","tiles":{"11":{}}}',
        b'{"source":"sat","tiles":{"11":null}}',
        b'{"source":"sat","tiles":{"11":7}}',
        b'{"source":"../x","tiles":{"11":[1,1]}}',
        b'{"source":7,"tiles":{"11":[1,1]}}',
        b'{"source":"sat","tiles":{"11":[1,1]},"more":1}',
        b'{"journal":"1"}',
        b'{"journal":true}',
    ],
)
def test_invalid_record_with_a_valid_checksum_is_skipped(
    store: FileJournalStore, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    append(store, GROUPS[0])
    with journal_path(store).open("ab") as file:
        file.write(frame_record(content))
    append(store, LATER)
    caplog.clear()
    assert read_tiles(store) == [*GROUPS[0], *LATER]
    assert list_warnings(caplog) == ["c11.journal.damaged_record"]


@pytest.mark.parametrize("end", [b"\n", b""], ids=["whole", "torn"])
def test_very_long_line_is_not_loaded_into_memory(store: FileJournalStore, end: bytes) -> None:
    append(store, GROUPS[0])
    with journal_path(store).open("ab") as file:
        file.write(b"99999999999 0badc0de " + b"[" * 20_000_000 + end)
    tracemalloc.start()
    assert read_tiles(store) == GROUPS[0]
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2_000_000
    append(store, LATER)
    assert read_tiles(store) == [*GROUPS[0], *LATER]


def test_damage_warnings_are_limited(
    store: FileJournalStore, caplog: pytest.LogCaptureFixture
) -> None:
    append(store, GROUPS[0])
    with journal_path(store).open("ab") as file:
        file.write(b"junk\n" * 10_000)
    assert read_tiles(store) == GROUPS[0]
    assert len(list_warnings(caplog)) == 10
    assert "further damage is not reported" in caplog.records[-1].getMessage()


def test_damaged_completion_record_is_ignored(store: FileJournalStore) -> None:
    journal = store.open(NAME)
    journal.append(TILES[:3])
    journal.finish()
    journal.close()
    whole = journal_path(store).read_bytes()
    for index in range(len(whole) - 1):  # the line break behind it says nothing
        for content in (
            whole[:index],
            whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :],
        ):
            journal_path(store).write_bytes(content)
            journal = store.open(NAME)
            assert (journal.complete, journal.count) == (False, 0)
            journal.append(LATER)
            journal.close()
            assert read_tiles(store) == LATER


@pytest.mark.parametrize("content", [b'{"journal":2}', b'{"journal":2,"more":[]}'])
def test_journal_of_a_newer_format_is_rejected(store: FileJournalStore, content: bytes) -> None:
    store.open(NAME).close()
    journal_path(store).write_bytes(frame_record(content))
    with pytest.raises(StorageError, match="unsupported format 2; this version reads format 1"):
        read_tiles(store)
    with pytest.raises(StorageError, match="format 2"):
        append(store, LATER)
    assert journal_path(store).read_bytes() == frame_record(content)


def test_opening_a_complete_journal_takes_constant_work(tmp_path: Path) -> None:
    costs = []
    for count in (1, 2_000):
        log = CallLog()
        plain = FileJournalStore(root=tmp_path / str(count), logger=logging.getLogger("test"))
        journal = plain.open(NAME)
        for _ in range(count):
            journal.append(TILES[:10])
        journal.finish()
        journal.close()
        watched = FileJournalStore(root=plain.root, logger=plain.logger, calls=log.calls)
        again = watched.open(NAME)
        assert (again.complete, again.count) == (True, count * 10)
        again.close()
        costs.append((len(log.made), journal_path(plain).stat().st_size < 100))
    assert costs[0] == costs[1]
    assert costs[0][1]


def test_append_writes_once_regardless_of_journal_size(tmp_path: Path) -> None:
    """Each append writes once, and what it writes does not grow with the journal."""
    log = CallLog()
    store = FileJournalStore(root=tmp_path, logger=logging.getLogger("test"), calls=log.calls)
    journal = store.open(NAME)
    journal.append(TILES[:64])
    before, size = len(log.made), journal_path(store).stat().st_size
    for _ in range(100):
        journal.append(TILES[:64])
        journal.flush()
    assert [name for name, _ in log.made[before:]] == ["write", "fdatasync"] * 100
    assert journal_path(store).stat().st_size < 101 * size
    journal.close()
