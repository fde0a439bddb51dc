"""Audit events that wait for their sink, in ``<root>/.c11/audit-outbox/<sink>``.

Groups are checksummed lines in numbered segments. Processes append under a lock, and one at a time
delivers, from the oldest segment on. Delivered segments are removed. How far a segment is delivered
is written without a sync: after a power cut some groups are sent again, and their sink recognizes
them by their ids. The gap has a file of fixed size, which can be rewritten on a full disk.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from secrets import token_hex

from attrs import define, evolve, field, frozen
from filelock import lock_descriptor

from tileferry.adapters.filesystem.checksummed_lines import (
    frame_line,
    parse_json,
    read_lines,
    unframe_line,
)
from tileferry.adapters.filesystem.files import Directory, FileCalls, OpenFile, translate_os_errors
from tileferry.adapters.filesystem.outbox_folder import OUTBOX_FOLDERS, has_outboxes
from tileferry.application.ports.audit import EventGroup, OutboxStatus
from tileferry.domain.audit import AuditEvent, EventsLost, LossCause, event_from_json
from tileferry.domain.canonical import JsonValue, canonical_json
from tileferry.domain.errors import InvalidValueError, StorageError
from tileferry.domain.validation import integer

BYTES_MAX = 64 * 1024 * 1024
SEGMENT_BYTES = 1024 * 1024
GROUP_BYTES_MAX = 900_000
"""Maximum length of a group; its length must have six digits."""
_SEGMENT = re.compile(r"queue-([0-9]{10})-[0-9a-f]{16}\.log", re.ASCII)
_APPEND_LOCK, _DELIVERY_LOCK = "append.lock", "delivery.lock"
_PROGRESS, _GAP = "progress", "gap"
_GAP_SLOT_BYTES = 2048
_LOCK_WAIT_S = 10.0
_LOCK_PAUSE_S = 0.005


@frozen(kw_only=True)
class _Gap:
    """A record of lost events; each change of it has a number and an id."""

    number: int = 0
    group_id: str = ""
    lost: EventsLost | None = None


@define(kw_only=True, eq=False)
class FileAuditOutbox:
    """The outbox of one sink. Nothing is created before the first event has to wait."""

    root: Path
    name: str
    """The name of its folder: the sink, and what distinguishes its destination from others."""
    sink: str
    bytes_max: int = field(default=BYTES_MAX, validator=integer(0))
    segment_bytes: int = SEGMENT_BYTES
    calls: FileCalls = field(factory=FileCalls)

    def append(self, group: EventGroup) -> bool:
        """Add a group durably; return ``False`` if there is no room for it."""
        line = _encode_group(group)
        if line is None:
            return False
        with self._open() as folder, _hold_lock(folder, _APPEND_LOCK):
            segments = _list_segments(folder)
            sizes = [_get_size(folder, name) for name in segments]
            if sum(sizes) + len(line) > self.bytes_max:
                return False
            is_new = not segments or sizes[-1] >= self.segment_bytes
            name = _name_next_segment(segments) if is_new else segments[-1]
            with folder.create_file(name) if is_new else folder.open_file(name) as file:
                if not file.size():  # new, or its creator was killed: its name is durable first
                    folder.sync()
                _append_line(file, line)
        return True

    def record_loss(self, lost: EventsLost) -> None:
        """Add lost events to the gap."""
        with self._open() as folder, _hold_lock(folder, _APPEND_LOCK):
            gap = _read_gap(folder)
            _write_gap(folder, gap, lost if gap.lost is None else gap.lost.merge(lost))

    def deliver(self, send: Callable[[EventGroup], None], *, has_time: Callable[[], bool]) -> bool:
        """Send the groups in order, then the gap; remove each that was sent."""
        folder = self._find()
        if folder is None:
            return True
        with folder:
            if not _list_segments(folder) and _read_gap(folder).lost is None:
                return True
            with _try_lock(folder, _DELIVERY_LOCK) as is_ours:
                return is_ours and self._deliver_all(folder, send, has_time)

    def read_status(self) -> OutboxStatus:
        """Count what waits. Read-only."""
        folder = self._find()
        if folder is None:
            return OutboxStatus(name=self.name)
        with folder:
            return _read_status(folder, self.name)

    def _open(self) -> Directory:
        """Open the folder; create it with the file of the gap if it is missing."""
        existing = self._find()
        if existing is not None:
            if _get_size(existing, _GAP) >= 2 * _GAP_SLOT_BYTES:
                return existing
            existing.close()
        with contextlib.ExitStack() as stack:
            here = stack.enter_context(Directory.open_root(self.root, self.calls))
            for name in OUTBOX_FOLDERS:
                here = stack.enter_context(here.subdirectory(name))
            folder = here.subdirectory(self.name)
        try:
            with _hold_lock(folder, _APPEND_LOCK), folder.open_file(_GAP, create=True) as file:
                if file.size() < 2 * _GAP_SLOT_BYTES:  # new, or its creator was killed
                    folder.sync()
                    file.write_all(bytes(2 * _GAP_SLOT_BYTES))
                    file.fdatasync()
        except BaseException:
            folder.close()
            raise
        return folder

    def _find(self) -> Directory | None:
        here = _find_outboxes_folder(self.root, self.calls)
        if here is None:
            return None
        with here:
            return here.find_subdirectory(self.name)

    def _deliver_all(
        self, folder: Directory, send: Callable[[EventGroup], None], has_time: Callable[[], bool]
    ) -> bool:
        while segments := _list_segments(folder):
            if not self._deliver_segment(folder, segments[0], send, has_time):
                return False
        return self._deliver_gap(folder, send)

    def _deliver_segment(
        self,
        folder: Directory,
        name: str,
        send: Callable[[EventGroup], None],
        has_time: Callable[[], bool],
    ) -> bool:
        """Deliver a segment and remove it; return ``False`` if the time is over before."""
        with (
            folder.open_file(name) as file,
            folder.open_file(_PROGRESS, create=True) as progress,
        ):
            offset = _read_progress(progress, name)
            while True:
                with _hold_lock(folder, _APPEND_LOCK):
                    end = _cut_torn_tail(file)
                    if offset >= end:  # under the lock: nothing is appended to it any more
                        folder.unlink(name)
                        folder.sync()
                        return True
                for line in read_lines(file, begin=offset, line_bytes_max=GROUP_BYTES_MAX):
                    if line.end > end:
                        break
                    if not has_time():
                        return False
                    group = _decode_group(line.content)
                    if group is None:
                        self.record_loss(self._build_damage(file))
                    else:
                        send(group)
                    offset = line.end
                    _write_progress(progress, name, offset)

    def _build_damage(self, file: OpenFile) -> EventsLost:
        """Return the loss of a damaged record: it was written while the segment was."""
        with translate_os_errors("examine", file.path):
            written = datetime.fromtimestamp(os.fstat(file.fd).st_mtime, UTC)
        return EventsLost(
            timestamp=written,
            sink=self.sink,
            events=1,
            lost_from=written,
            lost_until=written,
            cause=LossCause.DAMAGED,
        )

    def _deliver_gap(self, folder: Directory, send: Callable[[EventGroup], None]) -> bool:
        gap = _read_gap(folder)
        if gap.lost is None:
            return True
        send(EventGroup(group_id=gap.group_id, events=[gap.lost], sent_at=gap.lost.lost_from))
        with _hold_lock(folder, _APPEND_LOCK):
            current = _read_gap(folder)
            more = 0 if current.lost is None else current.lost.events - gap.lost.events
            left = evolve(current.lost, events=more) if current.lost and more > 0 else None
            _write_gap(folder, current, left)
        return left is None


def find_waiting(root: Path) -> list[OutboxStatus]:
    """Return the outboxes below a root, of any destination, that hold events. Read-only."""
    here = _find_outboxes_folder(root, FileCalls())
    if here is None:
        return []
    found: list[OutboxStatus] = []
    with here:
        for name in sorted(here.names()):
            folder = here.find_subdirectory(name)
            if folder is not None:
                with folder:
                    found.append(_read_status(folder, name))
    return [status for status in found if not status.is_empty]


def _find_outboxes_folder(root: Path, calls: FileCalls) -> Directory | None:
    if not has_outboxes(root):
        return None
    here = Directory.open_root(root, calls)
    for name in OUTBOX_FOLDERS:
        with here as parent:
            found = parent.find_subdirectory(name)
        if found is None:  # removed meanwhile
            return None
        here = found
    return here


def _read_status(folder: Directory, name: str) -> OutboxStatus:
    events = damaged = 0
    progress = folder.find_file(_PROGRESS)
    for segment in _list_segments(folder):
        file = folder.find_file(segment)
        if file is None:  # delivered since it was listed
            continue
        with file:
            begin = 0 if progress is None else _read_progress(progress, segment)
            for line in read_lines(file, begin=begin, line_bytes_max=GROUP_BYTES_MAX):
                group = _decode_group(line.content)
                damaged += group is None
                events += 0 if group is None else len(group.events)
    if progress is not None:
        progress.close()
    return OutboxStatus(name=name, events=events, damaged=damaged, lost=_read_gap(folder).lost)


# segments


def _list_segments(folder: Directory) -> list[str]:
    return sorted(name for name in folder.names() if _SEGMENT.fullmatch(name))


def _name_next_segment(segments: list[str]) -> str:
    """Return a name that was never used: progress of a removed segment must not apply to it."""
    match = _SEGMENT.fullmatch(segments[-1]) if segments else None
    return f"queue-{int(match[1]) + 1 if match else 1:010}-{token_hex(8)}.log"


def _get_size(folder: Directory, name: str) -> int:
    file = folder.find_file(name)
    if file is None:
        return 0
    with file:
        return file.size()


def _append_line(file: OpenFile, line: bytes) -> None:
    size = _cut_torn_tail(file)
    with translate_os_errors("append to", file.path):
        os.lseek(file.fd, size, os.SEEK_SET)
    try:
        file.write_all(line)
        file.fdatasync()
    except BaseException:
        with contextlib.suppress(StorageError):  # the caller treats the group as not kept
            file.truncate(size)
        raise


def _cut_torn_tail(file: OpenFile) -> int:
    """Remove an incomplete line, whose append never returned; return the size. Needs the lock."""
    size = file.size()
    if not size or file.pread(1, size - 1) == b"\n":
        return size
    end = file.pread(size, 0).rfind(b"\n") + 1
    file.truncate(end)
    return end


def _read_progress(file: OpenFile, segment: str) -> int:
    """Return up to which offset a segment is delivered."""
    content = unframe_line(file.pread(256, 0).removesuffix(b"\n"))
    match None if content is None else parse_json(content):
        case {"segment": str(name), "offset": str(offset)} if name == segment:
            return int(offset)
        case _:
            return 0


def _write_progress(file: OpenFile, segment: str, offset: int) -> None:
    """Write it over the last one, which has the same length."""
    content = canonical_json({"segment": segment, "offset": f"{offset:012}"}, field=_PROGRESS)
    file.rewind()
    file.write_all(frame_line(content))


# groups


def _encode_group(group: EventGroup) -> bytes | None:
    """Return the line of a group; ``None`` if it is too long."""
    sent_at = None if group.sent_at is None else group.sent_at.isoformat()
    events: list[JsonValue] = [event.as_json() for event in group.events]
    record: JsonValue = {"v": 1, "group": group.group_id, "sent_at": sent_at, "events": events}
    content = canonical_json(record, field="EventGroup")
    if len(content) > GROUP_BYTES_MAX - 64:
        return None
    return frame_line(content, line_bytes_max=GROUP_BYTES_MAX)


def _decode_group(content: bytes | None) -> EventGroup | None:
    """Return the group of a line; ``None`` if it is damaged."""
    match None if content is None else parse_json(content):
        case {"v": 1, "group": str(group_id), "sent_at": sent_at, "events": list(found)}:
            try:
                events: list[AuditEvent] = [event_from_json(one) for one in found]
                moment = None if sent_at is None else datetime.fromisoformat(sent_at)
            except (InvalidValueError, TypeError, ValueError):
                return None
            return EventGroup(group_id=group_id, events=events, sent_at=moment)
        case _:
            return None


# the gap: two slots, written in turn, so that one of them is always whole


def _read_gap(folder: Directory) -> _Gap:
    file = folder.find_file(_GAP)
    if file is None:
        return _Gap()
    with file:
        slots = [file.pread(_GAP_SLOT_BYTES, start) for start in (0, _GAP_SLOT_BYTES)]
    return max(map(_decode_gap, slots), key=lambda gap: gap.number)


def _decode_gap(slot: bytes) -> _Gap:
    content = unframe_line(slot.partition(b"\n")[0])
    match None if content is None else parse_json(content):
        case {"number": int(number), "id": str(group_id), "lost": lost}:
            with contextlib.suppress(InvalidValueError):
                event = None if lost is None else event_from_json(lost)
                if event is None or isinstance(event, EventsLost):
                    return _Gap(number=number, group_id=group_id, lost=event)
        case _:
            pass
    return _Gap()


def _write_gap(folder: Directory, before: _Gap, lost: EventsLost | None) -> None:
    number = before.number + 1
    told: JsonValue = {
        "number": number,
        "id": f"gap-{token_hex(16)}",
        "lost": None if lost is None else lost.as_json(),
    }
    line = frame_line(canonical_json(told, field="EventsLost"), line_bytes_max=_GAP_SLOT_BYTES)
    with folder.open_file(_GAP) as file:
        with translate_os_errors("write to", file.path):
            os.lseek(file.fd, number % 2 * _GAP_SLOT_BYTES, os.SEEK_SET)
        file.write_all(line)
        file.fdatasync()


# locks


@contextlib.contextmanager
def _try_lock(folder: Directory, name: str) -> Iterator[bool]:
    """Hold a lock during the block, unless another process or thread has it."""
    with folder.open_file(name, create=True) as file:  # closing it releases the lock
        with translate_os_errors("lock", file.path):
            is_ours = lock_descriptor(file.fd, blocking=False)
        yield is_ours


@contextlib.contextmanager
def _hold_lock(folder: Directory, name: str) -> Iterator[None]:
    """Hold a lock during the block; others have it for moments only."""
    for tried in count(1):
        with _try_lock(folder, name) as is_ours:
            if is_ours:
                yield
                return
        if tried * _LOCK_PAUSE_S > _LOCK_WAIT_S:
            raise StorageError(
                action="lock",
                path=str(folder.path / name),
                problem=f"another process has held it for {_LOCK_WAIT_S:g} s",
                remedy="check which other programs use this cache",
            )
        time.sleep(_LOCK_PAUSE_S)
