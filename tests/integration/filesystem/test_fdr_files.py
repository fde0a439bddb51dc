"""The recorder's files: bounded, durable when asked, readable after anything."""

import errno
import os
import random
import stat
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.failing_calls import UNSYNCED, CallLog
from support.killed_process import run_until_told
from support.record_writers import RecorderPlan, write_recorder

from tileferry.adapters.filesystem.fdr import FileFdrClient
from tileferry.adapters.filesystem.files import FileCalls
from tileferry.adapters.memory import ManualClock
from tileferry.domain.errors import InvalidValueError, StorageError

FILE_BYTES = 20_000
CONTRACT = (
    Path(__file__).parents[3] / "_docs/02_document/contracts/shared_fdr_client/fdr_record_schema.md"
)


def recorder(
    root: Path, calls: FileCalls = UNSYNCED, *, files_max: int = 8, file_bytes_max: int = FILE_BYTES
) -> FileFdrClient:
    return FileFdrClient(
        root=root,
        clock=ManualClock(),
        files_max=files_max,
        file_bytes_max=file_bytes_max,
        calls=calls,
    )


def files(root: Path) -> list[Path]:
    return sorted((root / ".c11/fdr").iterdir())


def record_numbers(
    root: Path, numbers: range, *, files_max: int = 8, text: str = "x" * 100
) -> None:
    fdr = recorder(root, files_max=files_max)
    for number in numbers:
        fdr.record("test.event", {"number": number, "text": text})
    fdr.close()


def found_in(root: Path) -> list[tuple[int, Any]]:
    return [(record.sequence, record.payload["number"]) for record in recorder(root).records()]


def pairs(numbers: range) -> list[tuple[int, int]]:
    return [(number, number) for number in numbers]


def test_the_sequence_goes_on_after_a_restart(tmp_path: Path) -> None:
    for start in range(1, 30, 3):
        record_numbers(tmp_path, range(start, start + 3))
    assert found_in(tmp_path) == pairs(range(1, 31))
    assert len(files(tmp_path)) == 1


def test_the_ring_stays_within_its_bounds_across_restarts(tmp_path: Path) -> None:
    for start in range(1, 2_001, 400):
        record_numbers(tmp_path, range(start, start + 400), files_max=3)
        assert len(files(tmp_path)) <= 3
        assert all(file.stat().st_size <= FILE_BYTES for file in files(tmp_path))
    found = found_in(tmp_path)
    assert found == pairs(range(2_001 - len(found), 2_001))
    assert len(found) > 150
    assert files(tmp_path)[-1].name > "fdr-0000000010.log"


def test_a_smaller_bound_is_reached_at_the_next_turn(tmp_path: Path) -> None:
    record_numbers(tmp_path, range(1, 500), files_max=6)
    assert len(files(tmp_path)) > 2
    record_numbers(tmp_path, range(500, 700), files_max=2)
    assert len(files(tmp_path)) == 2


def test_a_ring_too_small_for_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"FileFdrClient\.files_max"):
        recorder(tmp_path, files_max=1)
    with pytest.raises(InvalidValueError, match=r"FileFdrClient\.file_bytes_max"):
        recorder(tmp_path, file_bytes_max=1_000)


def test_a_recorder_cut_at_any_byte_keeps_its_whole_records(tmp_path: Path) -> None:
    record_numbers(tmp_path, range(1, 4), text="")
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    for cut in range(len(whole) + 1):
        file.write_bytes(whole[:cut])
        left = whole[:cut].count(b"\n")
        assert found_in(tmp_path) == pairs(range(1, left + 1))
        assert file.read_bytes() == whole[:cut], "reading changes nothing"
        record_numbers(tmp_path, range(left + 1, left + 2))
        assert found_in(tmp_path) == pairs(range(1, left + 2))


@pytest.mark.parametrize("mask", [0x01, 0xFF])
def test_a_flipped_byte_costs_its_record_and_no_number_is_used_twice(
    tmp_path: Path, mask: int
) -> None:
    record_numbers(tmp_path, range(1, 4), text="")
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    line_breaks = [index for index, byte in enumerate(whole) if byte == ord("\n")]
    for index in range(len(whole)):
        file.write_bytes(whole[:index] + bytes([whole[index] ^ mask]) + whole[index + 1 :])
        found = found_in(tmp_path)
        assert set(found) < set(pairs(range(1, 4)))
        assert len(found) >= (1 if index in line_breaks else 2)
        fdr = recorder(tmp_path)
        fdr.record("test.event", {"number": 0})
        fdr.close()
        *before, (sequence, _) = found_in(tmp_path)
        assert before == found
        assert sequence == 4 or index in line_breaks or whole[index] ^ mask == ord("\n")
        assert sequence > max(number for number, _ in found)


def test_damage_of_a_whole_file_leaves_the_others_and_the_sequence(tmp_path: Path) -> None:
    record_numbers(tmp_path, range(1, 301))
    *_, before, newest = files(tmp_path)
    lost = newest.read_bytes().count(b"\n")
    newest.write_bytes(b"junk\n" * lost)
    assert found_in(tmp_path) == pairs(range(1, 301 - lost))
    record_numbers(tmp_path, range(301, 302))
    assert found_in(tmp_path)[-1] == (301, 301)
    before.unlink()
    assert found_in(tmp_path)[-1] == (301, 301)


@settings(
    database=None,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(junk=st.binary(max_size=300))
def test_junk_is_no_record_and_no_obstacle(tmp_path: Path, junk: bytes) -> None:
    recorder(tmp_path).record("test.event", {})
    files(tmp_path)[0].write_bytes(junk)
    assert found_in(tmp_path) == []
    record_numbers(tmp_path, range(1))
    assert [number for _, number in found_in(tmp_path)] == [0]


@pytest.mark.parametrize(
    "content",
    [
        b"null",
        b"[" * 100_000,
        b'{"v":2,"sequence":9,"recorded_at_s":1,"kind":"a.b","payload":{}}',
        b'{"v":1,"sequence":0,"recorded_at_s":1,"kind":"a.b","payload":{}}',
        b'{"v":1,"sequence":true,"recorded_at_s":1,"kind":"a.b","payload":{}}',
        b'{"v":1,"sequence":9,"recorded_at_s":NaN,"kind":"a.b","payload":{}}',
        b'{"v":1,"sequence":9,"recorded_at_s":-1,"kind":"a.b","payload":{}}',
        b'{"v":1,"sequence":9,"recorded_at_s":1,"kind":"A","payload":{}}',
        b'{"v":1,"sequence":9,"recorded_at_s":1,"kind":"a.b","payload":[]}',
        b'{"v":1,"sequence":9,"recorded_at_s":1,"kind":"a.b","payload":{"t":"\\ud800"}}',
        b'{"v":1,"sequence":9,"recorded_at_s":1,"kind":"a.b"}',
        b'{"v":1,"sequence":9,"recorded_at_s":1e999,"kind":"a.b","payload":{}}',
    ],
)
def test_a_good_checksum_over_a_bad_record_does_not_make_it_good(
    tmp_path: Path, content: bytes
) -> None:
    record_numbers(tmp_path, range(1, 2))
    with files(tmp_path)[0].open("ab") as file:
        file.write(b"%d %08x %b\n" % (len(content), crc32(content), content))
    assert found_in(tmp_path) == [(1, 1)]
    record_numbers(tmp_path, range(3, 4))
    assert found_in(tmp_path) == [(1, 1), (3, 3)]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    record_numbers(tmp_path, range(1, 3))
    other = files(tmp_path)[0].with_name("notes.txt")
    other.write_text("keep")
    record_numbers(tmp_path, range(3, 900), files_max=2)
    assert other.read_text() == "keep"
    assert found_in(tmp_path)[-1] == (899, 899)


def test_a_durable_record_is_on_the_disk_before_the_call_returns(tmp_path: Path) -> None:
    log = CallLog()
    fdr = recorder(tmp_path, log.calls)
    fdr.record("test.event", {})
    assert "fdatasync" not in [name for name, _ in log.made]
    before = len(log.made)
    fdr.record("c11.upload.giveup", {}, durable=True)
    assert [name for name, _ in log.made[before:]] == ["write", "fdatasync"]
    fdr.close()


def test_a_reader_goes_on_though_files_make_room_under_it(tmp_path: Path) -> None:
    record_numbers(tmp_path, range(1, 300), files_max=3)
    reader = recorder(tmp_path).records()
    first = next(reader)
    record_numbers(tmp_path, range(300, 900), files_max=3)
    rest = [record.sequence for record in reader]
    assert [first.sequence, *rest] == sorted({first.sequence, *rest})


def test_the_contract_document_shows_what_is_written(tmp_path: Path) -> None:
    fdr = recorder(tmp_path)
    fdr.record(
        "c11.upload.giveup",
        {"tile_id": "sat/15/1/2", "attempts": 5, "last_rejection_reason": "blurred"},
    )
    fdr.close()
    assert files(tmp_path)[0].read_text(encoding="utf-8") in CONTRACT.read_text(encoding="utf-8")


def recorded(fdr: FileFdrClient, numbers: range) -> list[int]:
    """Record durably and return which were confirmed."""
    confirmed = []
    for number in numbers:
        try:
            fdr.record("test.event", {"number": number, "text": "x" * 9_000}, durable=True)
        except StorageError:
            continue
        confirmed.append(number)
    return confirmed


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_invariants_4_and_5_whichever_call_fails_what_was_confirmed_is_there(
    tmp_path: Path, code: int
) -> None:
    good = CallLog()
    fdr = recorder(tmp_path / "good", good.calls, files_max=4)
    assert recorded(fdr, range(6)) == list(range(6))
    fdr.close()
    assert {"mkdir", "open", "write", "fdatasync", "fsync"} <= {name for name, _ in good.made}

    for fail_at, (name, target) in enumerate(good.made):
        root = tmp_path / f"{fail_at}-{name}"
        log = CallLog(fail_at=fail_at, code=code)
        fdr = recorder(root, log.calls, files_max=4)
        confirmed = recorded(fdr, range(6))
        fdr.close()
        assert len(confirmed) == 5, f"call {fail_at}, {name} {target}: one record is refused"
        found = [record.payload["number"] for record in recorder(root).records()]
        assert set(confirmed) <= set(found) <= set(range(6))
        sequences = [record.sequence for record in recorder(root).records()]
        assert all(first < second for first, second in pairwise(sequences))


def test_a_full_disk_says_so_and_the_history_stays(tmp_path: Path) -> None:
    record_numbers(tmp_path, range(1, 400), files_max=3)
    before = found_in(tmp_path)

    def full(_fd: int, _content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fdr = recorder(tmp_path, FileCalls(write=full), files_max=3)
    for _ in range(20):
        with pytest.raises(StorageError, match="No space left"):
            fdr.record("c11.upload.giveup", {}, durable=True)
    assert found_in(tmp_path) == before
    left = before[files(tmp_path)[0].read_bytes().count(b"\n") :]
    for _ in range(20):
        with pytest.raises(StorageError, match="No space left"):
            fdr.record("c11.upload.giveup", {"text": "x" * 16_000}, durable=True)
    fdr.close()
    assert found_in(tmp_path) == left, "one file made room, not twenty"


def test_invariant_27_directories_are_0700_files_0600_and_links_not_followed(
    tmp_path: Path,
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    mask = os.umask(0)
    try:
        record_numbers(tmp_path, range(1, 2))
    finally:
        os.umask(mask)
    (file,) = files(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.with_name("fdr-0000000002.log").symlink_to(victim)
    with pytest.raises(StorageError, match="symbolic link"):
        recorder(tmp_path).record("test.event", {})
    with pytest.raises(StorageError, match="symbolic link"):
        found_in(tmp_path)
    assert victim.read_bytes() == b"precious"


def test_every_durable_record_survives_a_kill(tmp_path: Path) -> None:
    chance = random.Random(20260601)  # noqa: S311  # a test that repeats itself
    number = 1
    for _ in range(8):
        plan = RecorderPlan(root=tmp_path, file_bytes=FILE_BYTES, first=number)
        told = run_until_told(write_recorder, plan, times=chance.randint(1, 25))
        found = found_in(tmp_path)
        number = found[-1][1] + 1
        assert told[-1] <= number - 1 <= told[-1] + 1
        assert found == pairs(range(found[0][0], number))
