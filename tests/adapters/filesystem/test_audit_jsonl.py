"""Audit events as JSON lines."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest
from support.disk_faults import CallLog
from support.managers import RetryBench, ScriptedOperation

from tileferry.adapters.filesystem import FileCalls, JsonLinesAuditSink
from tileferry.application import AuditTrail
from tileferry.application.ports import AuditSink
from tileferry.domain.audit import AuditEvent, event_from_json
from tileferry.domain.errors import StorageError
from tileferry.domain.retry import RetryCategory


def create_events() -> list[AuditEvent]:
    bench = RetryBench()
    script = ScriptedOperation(OSError("a\nb"), TimeoutError("☁"))
    bench.create_manager().execute_with_retry_sync(RetryCategory.KV_GET, "Get it", script)
    return list(bench.events)


def read_events(path: Path) -> list[AuditEvent]:
    lines = path.read_bytes().splitlines()
    return [event_from_json(json.loads(line)) for line in lines if line]


def test_events_round_trip_through_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    sink = JsonLinesAuditSink(path=path)
    assert isinstance(sink, AuditSink)
    events = create_events()
    sink.emit(events)
    sink.emit(events[:1])
    sink.close()
    assert read_events(path) == [*events, events[0]]
    assert path.stat().st_mode & 0o777 == 0o600
    again = JsonLinesAuditSink(path=path)
    again.emit(events)
    again.close()
    assert read_events(path) == [*events, events[0], *events]


def test_torn_line_does_not_affect_later_lines(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"event_type":"retry_')
    sink = JsonLinesAuditSink(path=path)
    events = create_events()
    sink.emit(events)
    sink.close()
    torn, *sound = path.read_bytes().splitlines()
    assert torn == b'{"event_type":"retry_'
    assert [event_from_json(json.loads(line)) for line in sound] == events


def test_emit_syncs_events_and_raises_on_failure(tmp_path: Path) -> None:
    events = create_events()
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


def test_symlinked_audit_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path = tmp_path / "audit.jsonl"
    path.symlink_to(victim)
    bench = RetryBench()
    bench.trail = AuditTrail(logger=bench.trail.logger, sinks=[JsonLinesAuditSink(path=path)])
    bench.trail.emit(*create_events())
    assert bench.trail.failures == {"jsonl": 3}
    assert victim.read_text() == "mine"
    assert os.readlink(path) == str(victim)  # noqa: PTH115  # the link itself


def _emit_many(path: Path, count: int) -> None:
    sink = JsonLinesAuditSink(path=path)
    for event in create_events()[:1] * count:
        sink.emit([event])
    sink.close()


def test_concurrent_processes_lose_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_emit_many, args=(path, 60)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert len(read_events(path)) == 180


def test_failed_emits_leak_no_file_descriptors(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    calls = FileCalls(fdatasync=_raise_io_error)
    sink = JsonLinesAuditSink(path=tmp_path / "a.jsonl", calls=calls)
    for _ in range(20):
        with pytest.raises(StorageError):
            sink.emit(create_events())
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


def _raise_io_error(_fd: int) -> None:
    raise OSError(5, "Input/output error")
