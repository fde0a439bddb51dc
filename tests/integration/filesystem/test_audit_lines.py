"""Audit events as JSON lines."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest
from support.failing_calls import CallLog
from support.managers import Bench, Script

from tileferry.adapters.filesystem import FileCalls, JsonLinesAuditSink
from tileferry.application import AuditTrail
from tileferry.application.ports import AuditSink
from tileferry.domain.audit import AuditEvent, event_from_json
from tileferry.domain.errors import StorageError
from tileferry.domain.retry import RetryCategory


def some_events() -> list[AuditEvent]:
    bench = Bench()
    script = Script(OSError("a\nb"), TimeoutError("☁"))
    bench.manager().execute_with_retry_sync(RetryCategory.KV_GET, "Get it", script)
    return list(bench.events)


def lines_of(path: Path) -> list[AuditEvent]:
    return [event_from_json(json.loads(line)) for line in path.read_bytes().splitlines()]


def test_each_event_is_a_line_that_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    sink = JsonLinesAuditSink(path=path)
    assert isinstance(sink, AuditSink)
    events = some_events()
    sink.emit(events)
    sink.emit(events[:1])
    sink.close()
    assert lines_of(path) == [*events, events[0]]
    assert path.stat().st_mode & 0o777 == 0o600
    again = JsonLinesAuditSink(path=path)
    again.emit(events)
    again.close()
    assert lines_of(path) == [*events, events[0], *events]


def test_a_line_that_a_crash_cut_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"event_type":"retry_')
    sink = JsonLinesAuditSink(path=path)
    events = some_events()
    sink.emit(events)
    sink.close()
    torn, *sound = path.read_bytes().splitlines()
    assert torn == b'{"event_type":"retry_'
    assert [event_from_json(json.loads(line)) for line in sound] == events


def test_a_group_is_on_the_disk_when_it_is_taken_and_a_failure_is_told(tmp_path: Path) -> None:
    events = some_events()
    made = CallLog()
    sink = JsonLinesAuditSink(path=tmp_path / "a.jsonl", calls=made.calls)
    sink.emit(events)
    sink.close()
    names = [name for name, _ in made.made]
    assert names[-2:] == ["write", "fdatasync"]
    for fail_at in range(len(names)):
        path = tmp_path / f"{fail_at}.jsonl"
        sink = JsonLinesAuditSink(path=path, calls=CallLog(fail_at=fail_at).calls)
        with pytest.raises(StorageError):
            sink.emit(events)
        sink.emit(events)  # the disk is well again
        sink.close()
        assert [
            event_from_json(json.loads(line)) for line in path.read_bytes().splitlines()[-3:]
        ] == events


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path = tmp_path / "audit.jsonl"
    path.symlink_to(victim)
    bench = Bench()
    bench.trail = AuditTrail(logger=bench.trail.logger, sinks=[JsonLinesAuditSink(path=path)])
    bench.trail.emit(*some_events())
    assert bench.trail.failures == {"jsonl": 3}
    assert victim.read_text() == "mine"
    assert os.readlink(path) == str(victim)  # noqa: PTH115  # the link itself


def _emit_many(path: Path, count: int) -> None:
    sink = JsonLinesAuditSink(path=path)
    for event in some_events()[:1] * count:
        sink.emit([event])
    sink.close()


def test_several_processes_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_emit_many, args=(path, 60)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert len(lines_of(path)) == 180


def test_failures_leave_no_descriptor_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    calls = FileCalls(fdatasync=_fails)
    sink = JsonLinesAuditSink(path=tmp_path / "a.jsonl", calls=calls)
    for _ in range(20):
        with pytest.raises(StorageError):
            sink.emit(some_events())
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


def _fails(_fd: int) -> None:
    raise OSError(5, "Input/output error")
