"""What happens to runs, over books in memory: the steps that workers and operators take."""

import logging
from collections.abc import Callable
from datetime import timedelta

import pytest
from attrs import evolve
from support.control_plane import (
    LEASE,
    W1,
    ControlPlane,
    acquire_work,
    create_memory_control_plane,
    create_sealed,
    download_work,
    partition_key,
    rate_limited_error,
    unreachable_error,
)
from support.managers import find_log_messages

from tileferry.domain.errors import (
    FlightStateNotOnGroundError,
    InvalidValueError,
    LeaseLostError,
    MisuseError,
    NotFoundError,
    WorkInProgressError,
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
from tileferry.domain.state_machine import Actor

KEY = partition_key()
FINAL = InvalidValueError(field="bbox", value=1, problem="is no box")


@pytest.fixture
def control_plane() -> ControlPlane:
    return create_memory_control_plane()


def make_verdict(run: Run, outcome: VerdictOutcome = VerdictOutcome.PASSED) -> Verdict:
    reasons = () if outcome is VerdictOutcome.PASSED else ("tiles are missing",)
    return Verdict(run_id=run.run_id, outcome=outcome, reasons=reasons)


def claim_partition_run(desk: ControlPlane, wanted: PartitionKey = KEY) -> Run:
    desk.partitions.enqueue([acquire_work(wanted)], actor=Actor.OPERATOR)
    return desk.claim_run()


def get_status(desk: ControlPlane) -> PartitionStatus:
    found = desk.reader.find_partition(KEY)
    assert found is not None
    return found.status


def test_duplicate_submission_returns_queued_run(control_plane: ControlPlane) -> None:
    first, is_new = control_plane.control.submit(
        download_work("F1"), actor=Actor.OPERATOR, by="ann", reason="a new area"
    )
    again, is_new_again = control_plane.control.submit(download_work("F1"), actor=Actor.OPERATOR)
    assert (is_new, is_new_again, again) == (True, False, first)


def test_partition_run_cannot_be_submitted_directly(control_plane: ControlPlane) -> None:
    with pytest.raises(MisuseError, match="make a backfill plan"):
        control_plane.control.submit(acquire_work(KEY), actor=Actor.OPERATOR)


def test_passed_verdict_with_sealed_data_completes_partition(control_plane: ControlPlane) -> None:
    run = claim_partition_run(control_plane)
    control_plane.control.process_result(run, make_verdict(run), sealed=create_sealed(run, KEY))
    assert (get_status(control_plane), control_plane.reader.has_raw(run.run_id)) == (
        PartitionStatus.SUCCESS,
        True,
    )


def test_failed_verdict_needs_no_sealed_data(control_plane: ControlPlane) -> None:
    run = claim_partition_run(control_plane)
    control_plane.control.process_result(run, make_verdict(run, VerdictOutcome.FAILED))
    assert (get_status(control_plane), control_plane.reader.has_raw(run.run_id)) == (
        PartitionStatus.FAILED,
        False,
    )


def test_passed_verdict_without_sealed_data_is_rejected(control_plane: ControlPlane) -> None:
    run = claim_partition_run(control_plane)
    with pytest.raises(MisuseError, match=r"succeeded without a raw partition"):
        control_plane.control.process_result(run, make_verdict(run))
    assert (get_status(control_plane), control_plane.get_run(run).status) == (
        PartitionStatus.PENDING,
        RunStatus.PROCESSING,
    )


@pytest.mark.parametrize(
    ("other_key", "other_run"), [(partition_key(2), None), (KEY, RunId("another-run"))]
)
def test_sealed_data_of_another_run_or_key_is_rejected(
    control_plane: ControlPlane, other_key: PartitionKey, other_run: RunId | None
) -> None:
    run = claim_partition_run(control_plane)
    sealed = create_sealed(other_run or run, other_key)
    with pytest.raises(MisuseError, match=r"was not sealed by run"):
        control_plane.control.process_result(run, make_verdict(run), sealed=sealed)
    assert get_status(control_plane) is PartitionStatus.PENDING


def test_partition_fails_when_its_run_is_given_up(
    control_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    run = claim_partition_run(control_plane)
    after = control_plane.control.process_error(run, FINAL)
    assert (after.status, after.next_retry_at) == (RunStatus.ERROR, None)
    assert get_status(control_plane) is PartitionStatus.FAILED
    assert len(find_log_messages(caplog, "run.permanently_failed")) == 1


def complete_stale(desk: ControlPlane, run: Run) -> None:
    desk.control.process_result(run, make_verdict(run))


def fail_stale(desk: ControlPlane, run: Run) -> None:
    desk.control.process_error(run, unreachable_error())


def give_back_stale(desk: ControlPlane, run: Run) -> None:
    desk.control.release_run(run)


@pytest.mark.parametrize("step", [complete_stale, fail_stale, give_back_stale])
def test_invariant_12_stale_claim_changes_nothing(
    control_plane: ControlPlane, step: Callable[[ControlPlane, Run], None]
) -> None:
    control_plane.submit_run()
    run = control_plane.claim_run()
    for stale in (evolve(run, lease_epoch=run.lease_epoch + 1), evolve(run, run_id=RunId("gone"))):
        with pytest.raises(LeaseLostError):
            step(control_plane, stale)
    assert control_plane.get_run(run) == run


def test_give_back_is_logged(control_plane: ControlPlane, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    control_plane.submit_run()
    run = control_plane.claim_run()
    control_plane.control.release_run(run)
    assert control_plane.get_run(run).status is RunStatus.DISCOVERED
    assert find_log_messages(caplog, "run.given_back") == [f"run {run.run_id} is queued again"]


def test_gate_closure_is_logged_once_per_source(
    control_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        control_plane.submit_run()
    first, second = control_plane.queue.claim(W1, limit=2, lease=LEASE)
    control_plane.control.process_error(first, rate_limited_error(600.0))
    control_plane.control.process_error(
        second, rate_limited_error(60.0)
    )  # the gate does not open earlier for that
    ((gate, _tokens),) = control_plane.reader.list_gates()
    assert gate.closed_until is not None
    assert (gate.closed_until - control_plane.reader.now()).total_seconds() == 600
    assert len(find_log_messages(caplog, "queue.gate_closed")) == 1


def test_airborne_flight_delays_run_without_charging_retry(
    control_plane: ControlPlane,
) -> None:
    control_plane.submit_run()
    run = control_plane.claim_run()
    waits = control_plane.control.process_error(
        run, FlightStateNotOnGroundError(flight_id="F1", state="airborne")
    )
    assert (waits.retry_count, waits.rate_limited_count) == (0, 1)
    assert waits.next_retry_at == control_plane.reader.now() + timedelta(minutes=15)
    assert all(gate.closed_until is None for gate, _tokens in control_plane.reader.list_gates())


def run_out_of_rescues(desk: ControlPlane) -> Run:
    """Have a run lose its workers, but for the last time."""
    run = desk.submit_run()
    for _ in range(MAX_RESCUES):
        desk.claim_run()
        desk.pass_time(LEASE.total_seconds() + 1)
        assert desk.control.sweep() == 1
    return run


def test_abandoned_run_is_rescued_until_given_up(
    control_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    run = run_out_of_rescues(control_plane)
    assert len(find_log_messages(caplog, "run.rescued")) == MAX_RESCUES
    control_plane.claim_run()
    control_plane.pass_time(LEASE.total_seconds() + 1)
    assert control_plane.control.sweep() == 1
    after = control_plane.get_run(run)
    assert (after.status, after.next_retry_at) == (RunStatus.ERROR, None)
    assert control_plane.control.sweep() == 0


def test_worker_renewing_in_time_keeps_run(control_plane: ControlPlane) -> None:
    run = run_out_of_rescues(control_plane)
    held = control_plane.claim_run()
    control_plane.pass_time(LEASE.total_seconds() - 1)
    control_plane.queue.renew([held], lease=LEASE)
    control_plane.pass_time(2)
    assert control_plane.control._give_up_overdue(run.run_id) is False
    assert control_plane.control._give_up_overdue(RunId("gone")) is False
    assert control_plane.get_run(run).status is RunStatus.PROCESSING


def test_operator_can_cancel_and_retry_waiting_run(control_plane: ControlPlane) -> None:
    run = control_plane.submit_run(download_work("F1"))
    cancelled = control_plane.control.cancel(run.run_id, reason="wrong area", by="ann")
    assert cancelled.status is RunStatus.ERROR
    woken = control_plane.control.retry_now(run.run_id, reason="it was right", by="ann")
    assert woken.next_retry_at == control_plane.reader.now()
    control_plane.control.cancel(run.run_id, reason="no, wrong", by="ann")
    other = control_plane.submit_run(download_work("F1"))
    with pytest.raises(WorkInProgressError, match=f"look at run {other.run_id}"):
        control_plane.control.retry_now(run.run_id, reason="again", by="ann")


def test_retry_now_makes_waiting_run_due(control_plane: ControlPlane) -> None:
    control_plane.submit_run()
    run = control_plane.claim_run()
    control_plane.control.process_error(run, unreachable_error())
    woken = control_plane.control.retry_now(run.run_id, reason="it is mended", by="ann")
    assert woken.next_retry_at == control_plane.reader.now()


def test_cancel_and_retry_of_unknown_run_are_rejected(control_plane: ControlPlane) -> None:
    for refused in (control_plane.control.cancel, control_plane.control.retry_now):
        with pytest.raises(NotFoundError, match=r"run .* not found"):
            refused(RunId("gone"), reason="why not", by="ann")


def test_run_end_is_not_logged_below_log_level(
    control_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="test.runs")
    control_plane.submit_run()
    run = control_plane.claim_run()
    control_plane.control.process_result(run, make_verdict(run))
    assert find_log_messages(caplog, "run.ended") == []
    assert control_plane.get_run(run).status is RunStatus.PASSED
