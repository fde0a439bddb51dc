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
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.crash_processes import run_until_progress
from support.disk_faults import UNSYNCED, CallLog
from support.record_writers import RecorderPlan, write_recorder
from support.upload_env import REQUEST, UploadEnv

from tileferry.adapters.filesystem.fdr import FileFdrClient
from tileferry.adapters.filesystem.files import FileCalls
from tileferry.adapters.memory import ManualClock
from tileferry.domain.errors import InvalidValueError, StorageError

FILE_BYTES = 20_000
CONTRACT = (
    Path(__file__).parents[3] / "_docs/02_document/contracts/shared_fdr_client/fdr_record_schema.md"
)


def create_recorder(
    root: Path, calls: FileCalls = UNSYNCED, *, files_max: int = 8, file_bytes_max: int = FILE_BYTES
) -> FileFdrClient:
    return FileFdrClient(
        root=root,
        clock=ManualClock(),
        files_max=files_max,
        file_bytes_max=file_bytes_max,
        calls=calls,
    )


def list_files(root: Path) -> list[Path]:
    return sorted((root / ".c11/fdr").iterdir())


def record_numbers(
    root: Path, numbers: range, *, files_max: int = 8, text: str = "x" * 100
) -> None:
    fdr = create_recorder(root, files_max=files_max)
    for number in numbers:
        fdr.record("test.event", {"number": number, "text": text})
    fdr.close()


def read_numbers(root: Path) -> list[tuple[int, Any]]:
    return [
        (record.sequence, record.payload["number"]) for record in create_recorder(root).records()
    ]


def pairs(numbers: range) -> list[tuple[int, int]]:
    return [(number, number) for number in numbers]


def test_invariant_2_names_of_files_are_durable_before_a_record_is_confirmed(
    tmp_path: Path,
) -> None:
    durable: set[str] = set()

    def note_sync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            durable.update(os.listdir(fd))

    fdr = create_recorder(tmp_path, evolve(UNSYNCED, fsync=note_sync), files_max=2)
    for number in range(6):
        fdr.record("test.event", {"number": number, "text": "x" * 12_000}, durable=True)
        assert {file.name for file in list_files(tmp_path)} <= durable
    fdr.close()


def test_sequence_continues_after_a_restart(tmp_path: Path) -> None:
    for start in range(1, 30, 3):
        record_numbers(tmp_path, range(start, start + 3))
    assert read_numbers(tmp_path) == pairs(range(1, 31))
    assert len(list_files(tmp_path)) == 1


def test_ring_stays_within_its_limits_across_restarts(tmp_path: Path) -> None:
    for start in range(1, 2_001, 400):
        record_numbers(tmp_path, range(start, start + 400), files_max=3)
        assert len(list_files(tmp_path)) <= 3
        assert all(file.stat().st_size <= FILE_BYTES for file in list_files(tmp_path))
    found = read_numbers(tmp_path)
    assert found == pairs(range(2_001 - len(found), 2_001))
    assert len(found) > 150
    assert list_files(tmp_path)[-1].name > "fdr-0000000010.log"


def test_lower_file_limit_applies_at_the_next_rotation(tmp_path: Path) -> None:
    record_numbers(tmp_path, range(1, 500), files_max=6)
    assert len(list_files(tmp_path)) > 2
    record_numbers(tmp_path, range(500, 700), files_max=2)
    assert len(list_files(tmp_path)) == 2


def test_ring_too_small_for_a_record_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"FileFdrClient\.files_max"):
        create_recorder(tmp_path, files_max=1)
    with pytest.raises(InvalidValueError, match=r"FileFdrClient\.file_bytes_max"):
        create_recorder(tmp_path, file_bytes_max=1_000)


def test_file_truncated_at_any_byte_keeps_its_complete_records(tmp_path: Path) -> None:
    record_numbers(tmp_path, range(1, 4), text="")
    (file,) = list_files(tmp_path)
    whole = file.read_bytes()
    for cut in range(len(whole) + 1):
        file.write_bytes(whole[:cut])
        left = whole[:cut].count(b"\n")
        assert read_numbers(tmp_path) == pairs(range(1, left + 1))
        assert file.read_bytes() == whole[:cut], "reading changes nothing"
        record_numbers(tmp_path, range(left + 1, left + 2))
        assert read_numbers(tmp_path) == pairs(range(1, left + 2))


@pytest.mark.parametrize("mask", [0x01, 0xFF])
def test_flipped_byte_loses_only_its_record_and_reuses_no_sequence_number(
    tmp_path: Path, mask: int
) -> None:
    record_numbers(tmp_path, range(1, 4), text="")
    (file,) = list_files(tmp_path)
    whole = file.read_bytes()
    line_breaks = [index for index, byte in enumerate(whole) if byte == ord("\n")]
    for index in range(len(whole)):
        file.write_bytes(whole[:index] + bytes([whole[index] ^ mask]) + whole[index + 1 :])
        found = read_numbers(tmp_path)
        assert set(found) < set(pairs(range(1, 4)))
        assert len(found) >= (1 if index in line_breaks else 2)
        fdr = create_recorder(tmp_path)
        fdr.record("test.event", {"number": 0})
        fdr.close()
        *before, (sequence, _) = read_numbers(tmp_path)
        assert before == found
        assert sequence == 4 or index in line_breaks or whole[index] ^ mask == ord("\n")
        assert sequence > max(number for number, _ in found)


def test_damaged_file_leaves_other_files_and_the_sequence_intact(tmp_path: Path) -> None:
    record_numbers(tmp_path, range(1, 301))
    *_, before, newest = list_files(tmp_path)
    lost = newest.read_bytes().count(b"\n")
    newest.write_bytes(b"junk\n" * lost)
    assert read_numbers(tmp_path) == pairs(range(1, 301 - lost))
    record_numbers(tmp_path, range(301, 302))
    assert read_numbers(tmp_path)[-1] == (301, 301)
    before.unlink()
    assert read_numbers(tmp_path)[-1] == (301, 301)


@settings(
    database=None,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(junk=st.binary(max_size=300))
def test_junk_is_ignored_and_does_not_block_recording(tmp_path: Path, junk: bytes) -> None:
    create_recorder(tmp_path).record("test.event", {})
    list_files(tmp_path)[0].write_bytes(junk)
    assert read_numbers(tmp_path) == []
    record_numbers(tmp_path, range(1))
    assert [number for _, number in read_numbers(tmp_path)] == [0]


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
def test_invalid_record_with_a_valid_checksum_is_ignored(tmp_path: Path, content: bytes) -> None:
    record_numbers(tmp_path, range(1, 2))
    with list_files(tmp_path)[0].open("ab") as file:
        file.write(b"%d %08x %b\n" % (len(content), crc32(content), content))
    assert read_numbers(tmp_path) == [(1, 1)]
    record_numbers(tmp_path, range(3, 4))
    assert read_numbers(tmp_path) == [(1, 1), (3, 3)]


def test_unrelated_files_are_left_alone(tmp_path: Path) -> None:
    record_numbers(tmp_path, range(1, 3))
    other = list_files(tmp_path)[0].with_name("notes.txt")
    other.write_text("keep")
    record_numbers(tmp_path, range(3, 900), files_max=2)
    assert other.read_text() == "keep"
    assert read_numbers(tmp_path)[-1] == (899, 899)


def test_durable_record_is_synced_before_the_call_returns(tmp_path: Path) -> None:
    log = CallLog()
    fdr = create_recorder(tmp_path, log.calls)
    fdr.record("test.event", {})
    assert "fdatasync" not in [name for name, _ in log.made]
    before = len(log.made)
    fdr.record("c11.upload.giveup", {}, durable=True)
    assert [name for name, _ in log.made[before:]] == ["write", "fdatasync"]
    fdr.close()


def test_each_giveup_of_an_upload_is_synced(tmp_path: Path) -> None:
    log = CallLog()
    hangar = UploadEnv(count=2)
    hangar.inner.rejects = lambda _pass, _tile: "blurred"
    uploader = hangar.create_uploader(max_per_tile_attempts=1)
    uploader.fdr_client = create_recorder(tmp_path, log.calls)
    assert uploader.upload_pending_tiles(REQUEST).tiles_given_up == 2
    made = [name for name, _ in log.made if name in {"write", "fdatasync"}]
    assert made == ["write", "fdatasync"] * 2


def test_reader_continues_when_files_are_rotated_away(tmp_path: Path) -> None:
    record_numbers(tmp_path, range(1, 300), files_max=3)
    reader = create_recorder(tmp_path).records()
    first = next(reader)
    record_numbers(tmp_path, range(300, 900), files_max=3)
    rest = [record.sequence for record in reader]
    assert [first.sequence, *rest] == sorted({first.sequence, *rest})


def test_contract_document_example_matches_written_bytes(tmp_path: Path) -> None:
    fdr = create_recorder(tmp_path)
    fdr.record(
        "c11.upload.giveup",
        {"tile_id": "sat/15/1/2", "attempts": 5, "last_rejection_reason": "blurred"},
    )
    fdr.close()
    assert list_files(tmp_path)[0].read_text(encoding="utf-8") in CONTRACT.read_text(
        encoding="utf-8"
    )


def record_durably(fdr: FileFdrClient, numbers: range) -> list[int]:
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
def test_invariants_4_and_5_confirmed_records_survive_any_failed_call(
    tmp_path: Path, code: int
) -> None:
    good = CallLog()
    fdr = create_recorder(tmp_path / "good", good.calls, files_max=4)
    assert record_durably(fdr, range(6)) == list(range(6))
    fdr.close()
    assert {"mkdir", "open", "write", "fdatasync", "fsync"} <= {name for name, _ in good.made}

    for fail_at, (name, target) in enumerate(good.made):
        root = tmp_path / f"{fail_at}-{name}"
        log = CallLog(fail_at=fail_at, code=code)
        fdr = create_recorder(root, log.calls, files_max=4)
        confirmed = record_durably(fdr, range(6))
        fdr.close()
        assert len(confirmed) == 5, f"call {fail_at}, {name} {target}: one record is refused"
        found = [record.payload["number"] for record in create_recorder(root).records()]
        assert set(confirmed) <= set(found) <= set(range(6))
        sequences = [record.sequence for record in create_recorder(root).records()]
        assert all(first < second for first, second in pairwise(sequences))


def test_full_disk_raises_and_keeps_earlier_records(tmp_path: Path) -> None:
    record_numbers(tmp_path, range(1, 400), files_max=3)
    before = read_numbers(tmp_path)

    def full(_fd: int, _content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fdr = create_recorder(tmp_path, FileCalls(write=full), files_max=3)
    for _ in range(20):
        with pytest.raises(StorageError, match="No space left"):
            fdr.record("c11.upload.giveup", {}, durable=True)
    assert read_numbers(tmp_path) == before
    left = before[list_files(tmp_path)[0].read_bytes().count(b"\n") :]
    for _ in range(20):
        with pytest.raises(StorageError, match="No space left"):
            fdr.record("c11.upload.giveup", {"text": "x" * 16_000}, durable=True)
    fdr.close()
    assert read_numbers(tmp_path) == left, "one file made room, not twenty"


def test_invariant_27_modes_are_0700_and_0600_and_symlinks_are_not_followed(
    tmp_path: Path,
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    mask = os.umask(0)
    try:
        record_numbers(tmp_path, range(1, 2))
    finally:
        os.umask(mask)
    (file,) = list_files(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.with_name("fdr-0000000002.log").symlink_to(victim)
    with pytest.raises(StorageError, match="symbolic link"):
        create_recorder(tmp_path).record("test.event", {})
    with pytest.raises(StorageError, match="symbolic link"):
        read_numbers(tmp_path)
    assert victim.read_bytes() == b"precious"


def test_durable_records_survive_a_kill(tmp_path: Path) -> None:
    chance = random.Random(20260601)  # noqa: S311  # a test that repeats itself
    number = 1
    for _ in range(8):
        plan = RecorderPlan(root=tmp_path, file_bytes=FILE_BYTES, first=number)
        told = run_until_progress(write_recorder, plan, times=chance.randint(1, 25))
        found = read_numbers(tmp_path)
        number = found[-1][1] + 1
        assert told[-1] <= number - 1 <= told[-1] + 1
        assert found == pairs(range(found[0][0], number))
