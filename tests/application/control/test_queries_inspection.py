"""Looking at runs and partitions, over books in memory."""

from datetime import timedelta

import pytest
from support.control_plane import (
    ControlPlane,
    RecordedRuns,
    acquire_work,
    create_memory_control_plane,
    create_sealed,
    partition_key,
    rate_limited_error,
    unreachable_error,
)

from tileferry.application.control.partition_control import OperatorOverride
from tileferry.application.control.queries import WorkInspector
from tileferry.application.ports.work import PartitionFilter
from tileferry.domain.errors import NotFoundError
from tileferry.domain.partitions import PartitionGiveUpReason
from tileferry.domain.runs import RunId, Verdict, VerdictOutcome
from tileferry.domain.state_machine import Actor
from tileferry.domain.work import AcquirePartition, parse_work

KEY = partition_key()


@pytest.fixture
def control_plane() -> ControlPlane:
    return create_memory_control_plane()


def inspection(desk: ControlPlane) -> WorkInspector:
    return WorkInspector(
        books=desk.reader, raw=lambda: RecordedRuns(desk.reader), policies=desk.policies
    )


def test_run_is_shown_with_its_attempts(control_plane: ControlPlane) -> None:
    control_plane.submit_run()
    run = control_plane.claim_run()
    after = control_plane.control.process_error(run, unreachable_error())
    seen = inspection(control_plane).run(run.run_id)
    assert (seen.run, seen.now) == (after, control_plane.reader.now())
    assert [attempt.error_message for attempt in seen.attempts] == [after.error_message]


def test_unknown_run_is_rejected(control_plane: ControlPlane) -> None:
    with pytest.raises(NotFoundError, match=r"run .* not found"):
        inspection(control_plane).run(RunId("gone"))


def test_failed_partition_is_shown_with_planned_retry(control_plane: ControlPlane) -> None:
    control_plane.partitions.enqueue([acquire_work(KEY)], actor=Actor.OPERATOR)
    run = control_plane.claim_run()
    verdict = Verdict(
        run_id=run.run_id, outcome=VerdictOutcome.FAILED, reasons=["tiles are missing"]
    )
    control_plane.control.process_result(run, verdict, sealed=create_sealed(run, KEY))
    seen = inspection(control_plane).find_partition(KEY)
    assert seen is not None
    assert (seen.newest.run.run_id, seen.has_raw, seen.terminal) == (run.run_id, True, None)
    assert [line.run_id for line in seen.verdicts] == [run.run_id]
    assert seen.planned is not None
    assert seen.planned.next_run_at > seen.now


def test_terminal_failures_are_listed_with_their_reason(control_plane: ControlPlane) -> None:
    keys = [partition_key(day=day) for day in (1, 2)]
    control_plane.partitions.enqueue([*map(acquire_work, keys)], actor=Actor.OPERATOR)
    for _ in keys:
        run = control_plane.claim_run()
        work = parse_work(run.kind, run.payload)
        assert isinstance(work, AcquirePartition)
        verdict = Verdict(run_id=run.run_id, outcome=VerdictOutcome.FAILED, reasons=["empty"])
        control_plane.control.process_result(run, verdict, sealed=create_sealed(run, work.key))
    override = OperatorOverride(reason="no imagery", by="op", confirmed=1)
    control_plane.partitions.mark_terminal(keys[:1], override)
    ((found, reason),) = inspection(control_plane).iter_terminal(PartitionFilter())
    assert (found.key, reason) == (keys[0], PartitionGiveUpReason.MARKED)


def test_unknown_partition_returns_none(control_plane: ControlPlane) -> None:
    assert inspection(control_plane).find_partition(KEY) is None


def test_sources_are_shown_with_gate_and_load(control_plane: ControlPlane) -> None:
    control_plane.submit_run()
    run = control_plane.claim_run()
    control_plane.submit_run()
    control_plane.control.process_error(run, rate_limited_error(600.0))
    (source,) = inspection(control_plane).list_sources()
    assert inspection(control_plane).get_source("osm") == source
    assert source.gate.closed_until == control_plane.reader.now() + timedelta(seconds=600)
    assert (source.load.ready, source.load.waiting, source.load.under_way) == (1, 1, 0)


def test_unused_source_is_open_and_idle(control_plane: ControlPlane) -> None:
    control_plane.submit_run()
    source = inspection(control_plane).get_source("nobody")
    assert (source.gate.closed_until, source.tokens, source.load.ready) == (None, 100.0, 0)
