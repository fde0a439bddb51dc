"""What happens to runs, over books in memory: the steps that workers and operators take."""

import logging
from collections.abc import Callable
from datetime import timedelta

import pytest
from attrs import evolve
from support.managers import logged
from support.work_desk import (
    LEASE,
    W1,
    Desk,
    acquire,
    broken,
    busy,
    download,
    key,
    memory_desk,
    sealed_by,
)

from tileferry.domain.actors import Actor
from tileferry.domain.errors import (
    FlightStateNotOnGroundError,
    InvalidValueError,
    LeaseLostError,
)
from tileferry.domain.partitions import PartitionKey, PartitionStatus
from tileferry.domain.runs import (
    MAX_RESCUES,
    Run,
    RunId,
    RunStatus,
    Verdict,
    VerdictOutcome,
)

KEY = key()
FINAL = InvalidValueError(field="bbox", value=1, problem="is no box")


@pytest.fixture
def desk() -> Desk:
    return memory_desk()


def verdict(run: Run, outcome: VerdictOutcome = VerdictOutcome.PASSED) -> Verdict:
    reasons = () if outcome is VerdictOutcome.PASSED else ("tiles are missing",)
    return Verdict(run_id=run.run_id, outcome=outcome, reasons=reasons)


def claimed_partition(desk: Desk, wanted: PartitionKey = KEY) -> Run:
    desk.partitions.enqueue([acquire(wanted)], actor=Actor.OPERATOR)
    return desk.claimed()


def status(desk: Desk) -> PartitionStatus:
    found = desk.reader.find_partition(KEY)
    assert found is not None
    return found.status


def test_work_that_waits_already_is_not_queued_twice(desk: Desk) -> None:
    first, is_new = desk.control.submit(download("F1"), actor=Actor.OPERATOR, by="ann")
    again, is_new_again = desk.control.submit(download("F1"), actor=Actor.OPERATOR)
    assert (is_new, is_new_again, again) == (True, False, first)


def test_no_run_of_a_partition_goes_without_its_partition(desk: Desk) -> None:
    with pytest.raises(InvalidValueError, match="see tileferry backfill plan"):
        desk.control.submit(acquire(KEY), actor=Actor.OPERATOR)


def test_a_verdict_speaks_for_the_partition_by_what_was_sealed(desk: Desk) -> None:
    run = claimed_partition(desk)
    desk.control.process_result(run, verdict(run), sealed=sealed_by(run, KEY))
    assert (status(desk), desk.reader.has_raw(run.run_id)) == (PartitionStatus.SUCCESS, True)


def test_a_failure_may_have_left_nothing_behind(desk: Desk) -> None:
    run = claimed_partition(desk)
    desk.control.process_result(run, verdict(run, VerdictOutcome.FAILED))
    assert (status(desk), desk.reader.has_raw(run.run_id)) == (PartitionStatus.FAILED, False)


def test_a_success_without_its_raw_partition_changes_nothing(desk: Desk) -> None:
    run = claimed_partition(desk)
    with pytest.raises(InvalidValueError, match=r"without it run .* cannot speak"):
        desk.control.process_result(run, verdict(run))
    assert (status(desk), desk.known(run).status) == (
        PartitionStatus.PENDING,
        RunStatus.PROCESSING,
    )


@pytest.mark.parametrize(("other_key", "other_run"), [(key(2), None), (KEY, RunId("another-run"))])
def test_the_raw_partition_of_something_else_changes_nothing(
    desk: Desk, other_key: PartitionKey, other_run: RunId | None
) -> None:
    run = claimed_partition(desk)
    sealed = sealed_by(other_run or run, other_key)
    with pytest.raises(InvalidValueError, match=r"is not what run .* sealed for"):
        desk.control.process_result(run, verdict(run), sealed=sealed)
    assert status(desk) is PartitionStatus.PENDING


def test_a_partition_fails_with_the_run_that_is_given_up(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    run = claimed_partition(desk)
    after = desk.control.process_error(run, FINAL)
    assert (after.status, after.next_retry_at) == (RunStatus.ERROR, None)
    assert status(desk) is PartitionStatus.FAILED
    assert len(logged(caplog, "run.permanently_failed")) == 1


def end_stale(desk: Desk, run: Run) -> None:
    desk.control.process_result(run, verdict(run))


def break_stale(desk: Desk, run: Run) -> None:
    desk.control.process_error(run, broken())


def return_stale(desk: Desk, run: Run) -> None:
    desk.control.give_back(run)


@pytest.mark.parametrize("step", [end_stale, break_stale, return_stale])
def test_invariant_12_a_claim_that_is_not_the_newest_changes_nothing(
    desk: Desk, step: Callable[[Desk, Run], None]
) -> None:
    desk.submitted()
    run = desk.claimed()
    for stale in (evolve(run, lease_epoch=run.lease_epoch + 1), evolve(run, run_id=RunId("gone"))):
        with pytest.raises(LeaseLostError):
            step(desk, stale)
    assert desk.known(run) == run


def test_what_is_given_back_is_told(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    desk.submitted()
    run = desk.claimed()
    desk.control.give_back(run)
    assert desk.known(run).next_retry_at == desk.reader.now()
    assert logged(caplog, "run.given_back") == [f"run {run.run_id} is given back"]


def test_a_source_that_asks_for_patience_is_told_once(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        desk.submitted()
    first, second = desk.queue.claim(W1, limit=2, lease=LEASE)
    desk.control.process_error(first, busy(600.0))
    desk.control.process_error(second, busy(60.0))  # the gate does not open earlier for that
    ((gate, _tokens),) = desk.reader.gates()
    assert gate.closed_until is not None
    assert (gate.closed_until - desk.reader.now()).total_seconds() == 600
    assert len(logged(caplog, "queue.gate_closed")) == 1


def test_a_flight_that_has_not_landed_costs_its_run_nothing_and_holds_up_no_other(
    desk: Desk,
) -> None:
    desk.submitted()
    run = desk.claimed()
    waits = desk.control.process_error(
        run, FlightStateNotOnGroundError(flight_id="F1", state="airborne")
    )
    assert (waits.retry_count, waits.rate_limited_count) == (0, 1)
    assert waits.next_retry_at == desk.reader.now() + timedelta(minutes=15)
    assert all(gate.closed_until is None for gate, _tokens in desk.reader.gates())


def abandoned(desk: Desk) -> Run:
    """Have a run lose its workers, but for the last time."""
    run = desk.submitted()
    for _ in range(MAX_RESCUES):
        desk.claimed()
        desk.pass_time(LEASE.total_seconds() + 1)
        assert desk.control.sweep() == 1
    return run


def test_a_run_is_taken_from_workers_that_have_gone_until_it_is_put_aside(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    run = abandoned(desk)
    assert len(logged(caplog, "run.rescued")) == MAX_RESCUES
    desk.claimed()
    desk.pass_time(LEASE.total_seconds() + 1)
    assert desk.control.sweep() == 1
    after = desk.known(run)
    assert (after.status, after.next_retry_at) == (RunStatus.ERROR, None)
    assert desk.control.sweep() == 0


def test_a_worker_that_comes_back_in_time_keeps_its_run(desk: Desk) -> None:
    run = abandoned(desk)
    held = desk.claimed()
    desk.pass_time(LEASE.total_seconds() - 1)
    desk.queue.renew([held], lease=LEASE)
    desk.pass_time(2)
    assert desk.control._give_up_overdue(run.run_id) is False
    assert desk.control._give_up_overdue(RunId("gone")) is False
    assert desk.known(run).status is RunStatus.PROCESSING


def test_an_operator_gives_up_what_waits_and_wakes_it_again(desk: Desk) -> None:
    run = desk.submitted(download("F1"))
    cancelled = desk.control.cancel(run.run_id, reason="wrong area", by="ann")
    assert cancelled.status is RunStatus.ERROR
    woken = desk.control.retry_now(run.run_id, reason="it was right", by="ann")
    assert woken.next_retry_at == desk.reader.now()
    desk.control.cancel(run.run_id, reason="no, wrong", by="ann")
    other = desk.submitted(download("F1"))
    with pytest.raises(InvalidValueError, match=f"see tileferry runs show {other.run_id}"):
        desk.control.retry_now(run.run_id, reason="again", by="ann")


def test_a_run_that_waits_for_its_retry_is_made_due(desk: Desk) -> None:
    desk.submitted()
    run = desk.claimed()
    desk.control.process_error(run, broken())
    woken = desk.control.retry_now(run.run_id, reason="it is mended", by="ann")
    assert woken.next_retry_at == desk.reader.now()


def test_a_run_that_nobody_knows_is_refused(desk: Desk) -> None:
    for refused in (desk.control.cancel, desk.control.retry_now):
        with pytest.raises(InvalidValueError, match="names no run"):
            refused(RunId("gone"), reason="why not", by="ann")


def test_an_end_is_not_told_where_nobody_listens(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="test.runs")
    desk.submitted()
    run = desk.claimed()
    desk.control.process_result(run, verdict(run))
    assert logged(caplog, "run.ended") == []
    assert desk.known(run).status is RunStatus.PASSED
