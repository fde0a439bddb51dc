"""The outbox of audit events on disk: crashes, damage, full disks and links."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest
from attrs import evolve
from support.audit_events import create_events_lost, create_retry_attempted
from support.disk_faults import UNSYNCED, CallLog

from tileferry.adapters.filesystem import (
    FileAuditOutbox,
    FileCalls,
    audit_outbox,
    find_waiting,
    has_outboxes,
)
from tileferry.adapters.filesystem.audit_outbox import GROUP_BYTES_MAX
from tileferry.adapters.filesystem.files import Directory
from tileferry.application.ports.audit import EventGroup
from tileferry.domain.audit import EventsLost, LossCause
from tileferry.domain.errors import StorageError


def open_outbox(root: Path, calls: FileCalls = UNSYNCED) -> FileAuditOutbox:
    return FileAuditOutbox(root=root, name="postgres-1", sink="postgres", calls=calls)


def make_group(number: int) -> EventGroup:
    event = create_retry_attempted(number)
    return EventGroup(group_id=f"g{number}", events=[event], sent_at=event.timestamp)


def take_all(outbox: FileAuditOutbox) -> list[EventGroup]:
    found: list[EventGroup] = []
    while not outbox.deliver(found.append, has_time=lambda: True):
        pass
    return found


def get_folder(root: Path) -> Path:
    return root / ".c11" / "audit-outbox" / "postgres-1"


def get_segment(root: Path) -> Path:
    (segment,) = get_folder(root).glob("queue-*.log")
    return segment


def test_nothing_is_created_before_an_event_has_to_wait(tmp_path: Path) -> None:
    outbox = open_outbox(tmp_path / "cache")
    assert take_all(outbox) == []
    assert outbox.read_status().is_empty
    assert (find_waiting(tmp_path / "cache"), has_outboxes(tmp_path / "cache")) == ([], False)
    assert not (tmp_path / "cache").exists()


def test_folder_and_files_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        open_outbox(tmp_path).append(make_group(1))
    finally:
        os.umask(before)
    for path in (tmp_path / ".c11").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_append_is_durable_before_it_returns(tmp_path: Path) -> None:
    open_outbox(tmp_path).append(make_group(0))
    log = CallLog()
    assert open_outbox(tmp_path, log.calls).append(make_group(1))
    segment = str(get_segment(tmp_path))
    own = [name for (name, _), path in zip(log.made, log.paths, strict=True) if path == segment]
    assert own[-2:] == ["write", "fdatasync"]


def test_invariant_2_names_are_durable_although_their_creator_was_killed(tmp_path: Path) -> None:
    for fail_at in range(200):
        root = tmp_path / str(fail_at)
        killed, later = CallLog(fail_at=fail_at, permanently=True), CallLog()
        with suppress(StorageError):
            open_outbox(root, killed.calls).append(make_group(1))
        assert open_outbox(root, later.calls).append(make_group(2))
        calls = killed.list_done() + later.list_done()
        folder = get_folder(root)
        for name in ("gap", get_segment(root).name):
            assert ("fsync", str(folder)) in calls[calls.index(("open", name)) :], (fail_at, name)
        if len(killed.made) <= fail_at:
            return
    pytest.fail("the calls did not end")


def test_invariant_27_planted_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "cache" / ".c11").mkdir(parents=True)
    (tmp_path / "cache" / ".c11" / "audit-outbox").symlink_to(elsewhere)
    with pytest.raises(StorageError):
        open_outbox(tmp_path / "cache").append(make_group(1))
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("kept", range(0, 100, 9))
def test_torn_tail_is_cut_and_later_groups_are_whole(tmp_path: Path, kept: int) -> None:
    outbox = open_outbox(tmp_path)
    outbox.append(make_group(1))
    segment = get_segment(tmp_path)
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[: len(whole) * kept // 100])
    if kept % 2:
        outbox.append(make_group(2))
    found = take_all(open_outbox(tmp_path))
    assert found == [make_group(1), *([make_group(2)] if kept % 2 else [])]
    assert find_waiting(tmp_path) == []


def test_file_of_nothing_but_a_torn_line_is_removed(tmp_path: Path) -> None:
    open_outbox(tmp_path).append(make_group(1))
    segment = get_segment(tmp_path)
    segment.write_bytes(segment.read_bytes()[:-1])
    assert take_all(open_outbox(tmp_path)) == []
    assert not segment.exists()


@pytest.mark.parametrize("content", [b"", b"garbage", b'7 00000000 {"v":1}', b"2 43a5b4fe {}"])
def test_damaged_record_becomes_a_gap_and_hides_no_other(tmp_path: Path, content: bytes) -> None:
    outbox = open_outbox(tmp_path)
    for number in (1, 2, 3):
        outbox.append(make_group(number))
    segment = get_segment(tmp_path)
    first, _, last = segment.read_bytes().splitlines()
    segment.write_bytes(b"\n".join([first, content, last, b""]))
    (status,) = find_waiting(tmp_path)
    assert (status.name, status.events, status.damaged) == ("postgres-1", 2, 1)
    assert "1 damaged" in status.describe()
    *groups, gap = take_all(open_outbox(tmp_path))
    assert groups == [make_group(1), make_group(3)]
    (lost,) = gap.events
    assert isinstance(lost, EventsLost)
    assert (lost.sink, lost.events, lost.cause) == ("postgres", 1, LossCause.DAMAGED)
    assert find_waiting(tmp_path) == []


def test_record_of_an_unknown_event_becomes_a_gap(tmp_path: Path) -> None:
    class Newer(EventsLost):
        event_type = "newer"

    lost = create_events_lost(1)
    newer = Newer(
        timestamp=lost.timestamp,
        sink="postgres",
        events=1,
        lost_from=lost.lost_from,
        lost_until=lost.lost_until,
        cause=lost.cause,
    )
    open_outbox(tmp_path).append(evolve(make_group(1), events=[newer]))
    (gap,) = take_all(open_outbox(tmp_path))
    assert isinstance(gap.events[0], EventsLost)


@pytest.mark.parametrize("damage", [b"", b"x" * 300, b"2 43a5b4fe {}"])
def test_damaged_progress_repeats_groups_and_skips_none(tmp_path: Path, damage: bytes) -> None:
    outbox = open_outbox(tmp_path)
    for number in (1, 2):
        outbox.append(make_group(number))
    left = iter([True])
    outbox.deliver(lambda _: None, has_time=lambda: next(left, False))
    (get_folder(tmp_path) / "progress").write_bytes(damage)
    assert take_all(open_outbox(tmp_path)) == [make_group(1), make_group(2)]


def test_progress_of_a_removed_segment_does_not_apply_to_a_new_one(tmp_path: Path) -> None:
    outbox = open_outbox(tmp_path)
    for number in range(20):
        outbox.append(make_group(number))
    assert len(take_all(outbox)) == 20
    for number in range(20, 23):
        outbox.append(make_group(number))
    assert take_all(outbox) == [make_group(number) for number in range(20, 23)]


def test_gap_survives_the_damage_of_its_last_write(tmp_path: Path) -> None:
    outbox = open_outbox(tmp_path)
    outbox.record_loss(create_events_lost(1, events=2))
    outbox.record_loss(create_events_lost(2, events=3))
    gap = get_folder(tmp_path) / "gap"
    content = bytearray(gap.read_bytes())
    content[100] ^= 1  # the second record is in the first slot
    gap.write_bytes(content)
    assert [group.events for group in take_all(outbox)] == [[create_events_lost(1, events=2)]]


def test_full_disk_keeps_earlier_groups_and_still_records_the_gap(tmp_path: Path) -> None:
    open_outbox(tmp_path).append(make_group(1))
    real, segment = FileCalls(), str(get_segment(tmp_path))

    def write(fd: int, content: bytes) -> int:
        if Path(f"/proc/self/fd/{fd}").readlink() == Path(segment):
            real.write(fd, bytes(content)[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real.write(fd, content)

    full = open_outbox(tmp_path, evolve(UNSYNCED, write=write))
    size = Path(segment).stat().st_size
    with pytest.raises(StorageError, match="No space left"):
        full.append(make_group(2))
    assert Path(segment).stat().st_size == size
    full.record_loss(create_events_lost(2))
    assert (get_folder(tmp_path) / "gap").stat().st_size == 4096  # rewritten, not extended
    first, gap = take_all(open_outbox(tmp_path))
    assert (first, list(gap.events)) == (make_group(1), [create_events_lost(2)])


def test_error_of_any_call_leaves_an_outbox_that_the_next_one_can_use(tmp_path: Path) -> None:
    for fail_at in range(200):
        root = tmp_path / str(fail_at)
        log = CallLog(fail_at=fail_at)
        outbox = open_outbox(root, log.calls)
        kept, sent = list[int](), list[str]()
        for number in (1, 2):
            try:
                kept += [number] if outbox.append(make_group(number)) else []
                outbox.deliver(lambda group: sent.append(group.group_id), has_time=lambda: True)  # noqa: B023  # called in the loop
            except StorageError:
                pass
        sent += [group.group_id for group in take_all(open_outbox(root))]
        names = list(dict.fromkeys(sent))
        assert {f"g{number}" for number in kept} <= set(names)
        assert names == sorted(names)
        if len(log.made) <= fail_at:
            return
    pytest.fail("the calls did not end")


def test_group_that_is_too_long_for_a_record_is_not_kept(tmp_path: Path) -> None:
    event = evolve(create_retry_attempted(1), exception_message="x" * GROUP_BYTES_MAX)
    outbox = open_outbox(tmp_path)
    assert not outbox.append(evolve(make_group(1), events=[event]))
    large = evolve(create_retry_attempted(1), exception_message="x" * (GROUP_BYTES_MAX - 5_000))
    assert outbox.append(evolve(make_group(1), events=[large]))
    assert take_all(outbox) == [evolve(make_group(1), events=[large])]


def test_outboxes_of_all_destinations_are_reported(tmp_path: Path) -> None:
    open_outbox(tmp_path).append(make_group(1))
    evolve(open_outbox(tmp_path), name="jetstream-2").record_loss(create_events_lost(1))
    assert [status.describe() for status in find_waiting(tmp_path)] == [
        "jetstream-2: 0 events, a gap of 1",
        "postgres-1: 1 event",
    ]


def test_lock_that_is_not_released_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_outbox, "_LOCK_WAIT_S", 0.02)
    outbox = open_outbox(tmp_path)
    outbox.append(make_group(1))
    with (
        Directory.open_root(get_folder(tmp_path), UNSYNCED) as folder,
        audit_outbox._hold_lock(folder, "append.lock"),
        pytest.raises(StorageError, match="another process has held it"),
    ):
        outbox.append(make_group(2))
