"""What the books of partitions must show: retries, transitions, attempts, and what is kept."""

import pytest
from support.control_plane import (
    FAILED,
    LEASE,
    NEEDS_REVIEW,
    OVERRIDE,
    PASSED,
    REJECTION_REASON,
    W1,
    ControlPlane,
    acquire_work,
    claim_partition_run,
    create_judged_partition,
    create_sealed,
    create_verdict,
    enqueue_partitions,
    get_partition,
    give_up_partition,
    judge_partition,
    list_state_changes,
    partition_key,
)

from tileferry.domain.errors import (
    IllegalTransitionError,
    LeaseLostError,
    MisuseError,
    SatelliteProviderError,
)
from tileferry.domain.partitions import (
    PartitionStatus,
    TerminalityPolicy,
    TerminalReason,
    apply_verdict,
    find_terminal_reason,
    get_readable_run,
    requeue,
)
from tileferry.domain.runs import RunId, VerdictOutcome
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles.provider_faults import ProviderFault

KEY = partition_key()
BROKEN = SatelliteProviderError(reason="reset", fault=ProviderFault.UNREACHABLE)
MINUTE_S, HOUR_S, DAY_S = 60.0, 3_600.0, 86_400.0
NOT_CONTROL = [actor for actor in Actor if actor not in {Actor.OPERATOR, Actor.SCHEDULER}]


def get_outcome(desk: ControlPlane) -> tuple[PartitionStatus, int, RunId | None]:
    partition = get_partition(desk, KEY)
    return partition.status, partition.attempt_count, partition.current_run_id


# 1. Definition of retry


def test_spec3_s1_each_retry_has_its_own_run_and_raw_partition(control_plane: ControlPlane) -> None:
    first, second, third = create_judged_partition(control_plane, FAILED, FAILED, PASSED)
    assert len({first.run_id, second.run_id, third.run_id}) == 3
    assert all(control_plane.reader.has_raw(run.run_id) for run in (first, second, third))
    verdicts = control_plane.reader.list_partition_attempts(KEY)
    assert [one.run_id for one in verdicts] == [first.run_id, second.run_id, third.run_id]


def test_spec3_s1_retry_covers_entire_partition(control_plane: ControlPlane) -> None:
    first, second = create_judged_partition(control_plane, FAILED, PASSED)
    assert first.payload == second.payload == acquire_work(KEY).to_payload()


@pytest.mark.parametrize("outcome", VerdictOutcome)
def test_spec3_s1_only_the_validator_marks_success_or_failure(
    control_plane: ControlPlane, outcome: VerdictOutcome
) -> None:
    enqueue_partitions(control_plane)
    run = claim_partition_run(control_plane, KEY)
    with control_plane.store.open_unit() as unit:
        partition = unit.get_partitions([KEY]).get(KEY)
        assert partition is not None
        for actor in Actor:
            if actor is not Actor.VALIDATOR:
                with pytest.raises(IllegalTransitionError, match="only validator may"):
                    apply_verdict(partition, create_verdict(run, outcome), unit.now, actor=actor)
    control_plane.control.process_result(
        run, create_verdict(run, outcome), sealed=create_sealed(run, KEY)
    )
    assert [event.actor for event in list_state_changes(control_plane)] == [
        "scheduler",
        "validator",
    ]


# 2. State transitions


def test_spec3_s2_passed_run_becomes_current_run(control_plane: ControlPlane) -> None:
    (run,) = create_judged_partition(control_plane, PASSED)
    assert get_outcome(control_plane) == (PartitionStatus.SUCCESS, 1, run.run_id)
    assert get_partition(control_plane, KEY).active_run_id is None


def test_spec3_s2_needs_review_is_success_with_flag(control_plane: ControlPlane) -> None:
    (run,) = create_judged_partition(control_plane, NEEDS_REVIEW)
    assert get_outcome(control_plane) == (PartitionStatus.SUCCESS, 1, run.run_id)
    assert get_partition(control_plane, KEY).needs_review


def test_spec3_s2_failed_verdict_sets_no_current_run(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED)
    assert get_outcome(control_plane) == (PartitionStatus.FAILED, 1, None)
    assert get_partition(control_plane, KEY).error_message == REJECTION_REASON


def test_spec3_s2_failed_partition_is_not_requeued_by_sweep(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED)
    before = get_partition(control_plane, KEY)
    for _ in range(5):
        control_plane.pass_time(DAY_S)
        assert control_plane.control.sweep() == 0
        assert control_plane.control.get_next_run_to_process(W1, lease=LEASE) is None
    after = get_partition(control_plane, KEY)
    assert (after.status, after.last_run_id) == (PartitionStatus.FAILED, before.last_run_id)
    assert len(list_state_changes(control_plane)) == 2


def test_spec3_s2_s7_only_control_plane_can_requeue_failure(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED)
    control_plane.pass_time(DAY_S)
    with control_plane.store.open_unit() as unit:
        partition = unit.get_partitions([KEY]).get(KEY)
        assert partition is not None
        for actor in NOT_CONTROL:
            with pytest.raises(IllegalTransitionError, match="only operator, scheduler may"):
                requeue(
                    partition,
                    RunId("r"),
                    actor=actor,
                    now=unit.now,
                    terminality=TerminalityPolicy(),
                    reason="why",
                )
    assert get_partition(control_plane, KEY).status is PartitionStatus.FAILED


def test_spec3_s2_operator_and_scheduler_can_requeue_failure(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED)
    control_plane.partitions.retry([KEY], OVERRIDE)
    assert get_partition(control_plane, KEY).status is PartitionStatus.PENDING
    judge_partition(control_plane, FAILED)
    control_plane.pass_time(HOUR_S)
    assert control_plane.partitions.retry_due() == 1
    assert get_partition(control_plane, KEY).status is PartitionStatus.PENDING
    actors = [
        event.actor for event in list_state_changes(control_plane) if event.transition == "requeue"
    ]
    assert actors == ["operator", "scheduler"]


def test_spec3_s2_second_failure_is_counted_and_stays_failed(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED, FAILED)
    assert get_outcome(control_plane) == (PartitionStatus.FAILED, 2, None)


def test_spec3_s2_late_verdict_on_given_up_run_counts_once(control_plane: ControlPlane) -> None:
    """Failed to failed: the validator was at it when somebody gave the run up."""
    enqueue_partitions(control_plane)
    run = give_up_partition(control_plane)
    assert get_outcome(control_plane) == (PartitionStatus.FAILED, 0, None)
    with control_plane.store.open_unit() as unit:
        partition = unit.get_partitions([KEY]).get(KEY)
        assert partition is not None
        unit.save_partition(apply_verdict(partition, create_verdict(run, FAILED), unit.now))
    assert get_outcome(control_plane) == (PartitionStatus.FAILED, 1, None)
    with control_plane.store.open_unit() as unit:
        partition = unit.get_partitions([KEY]).get(KEY)
        assert partition is not None
        with pytest.raises(IllegalTransitionError, match="no run is active, not run"):
            apply_verdict(partition, create_verdict(run, FAILED), unit.now)


def test_spec3_s2_s5_terminal_is_a_policy_result_not_a_status(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED)
    control_plane.partitions.mark_terminal([KEY], OVERRIDE)
    marked = get_partition(control_plane, KEY)
    assert (marked.status, marked.terminal_marker) == (PartitionStatus.FAILED, OVERRIDE.reason)
    reason = find_terminal_reason(
        marked, control_plane.policies.terminality, control_plane.reader.now()
    )
    assert reason is TerminalReason.MARKED
    assert set(PartitionStatus) == {"pending", "success", "failed"}


def test_spec3_s2_s5_success_is_not_retried_automatically(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, PASSED)
    assert control_plane.reader.find_planned_retry(KEY) is None
    control_plane.pass_time(30 * DAY_S)
    assert control_plane.partitions.retry_due() == 0
    assert control_plane.control.get_next_run_to_process(W1, lease=LEASE) is None


def test_spec3_s2_successful_reprocessing_replaces_current_run(control_plane: ControlPlane) -> None:
    first, second = create_judged_partition(control_plane, NEEDS_REVIEW, PASSED)
    assert get_outcome(control_plane) == (PartitionStatus.SUCCESS, 2, second.run_id)
    assert second.run_id != first.run_id
    assert not get_partition(control_plane, KEY).needs_review


def test_spec3_s2_success_stays_readable_during_and_after_failed_reprocessing(
    control_plane: ControlPlane,
) -> None:
    (first,) = create_judged_partition(control_plane, PASSED)
    control_plane.partitions.retry([KEY], OVERRIDE)
    assert get_readable_run(get_partition(control_plane, KEY)) == first.run_id
    judge_partition(control_plane, FAILED)
    assert get_outcome(control_plane) == (PartitionStatus.SUCCESS, 2, first.run_id)
    assert get_partition(control_plane, KEY).error_message == REJECTION_REASON
    control_plane.partitions.retry([KEY], OVERRIDE)
    give_up_partition(control_plane)
    assert get_outcome(control_plane) == (PartitionStatus.SUCCESS, 2, first.run_id)
    assert get_readable_run(get_partition(control_plane, KEY)) == first.run_id


# 3. Attempt semantics


def test_invariant_9_spec3_s3_each_verdict_counts_as_one_attempt(
    control_plane: ControlPlane,
) -> None:
    create_judged_partition(control_plane, FAILED, NEEDS_REVIEW, FAILED, PASSED)
    assert get_partition(control_plane, KEY).attempt_count == 4
    verdicts = control_plane.reader.list_partition_attempts(KEY)
    assert [one.attempt for one in verdicts] == [1, 2, 3, 4]
    assert [one.outcome for one in verdicts] == [FAILED, NEEDS_REVIEW, FAILED, PASSED]
    assert [one.explanation for one in verdicts] == [
        REJECTION_REASON,
        REJECTION_REASON,
        REJECTION_REASON,
        None,
    ]


def test_invariant_9_spec3_s3_only_verdicts_count_as_attempts(control_plane: ControlPlane) -> None:
    enqueue_partitions(control_plane)
    control_plane.control.process_error(claim_partition_run(control_plane, KEY), BROKEN)
    control_plane.pass_time(61)
    control_plane.control.release_run(claim_partition_run(control_plane, KEY))
    claim_partition_run(control_plane, KEY)
    control_plane.pass_time(61)
    assert control_plane.control.sweep() == 1
    assert get_outcome(control_plane) == (PartitionStatus.PENDING, 0, None)
    run_id = get_partition(control_plane, KEY).last_run_id
    control_plane.control.cancel(run_id, reason="wrong area", by="ann")
    assert get_outcome(control_plane) == (PartitionStatus.FAILED, 0, None)
    assert get_partition(control_plane, KEY).abandoned
    assert list(control_plane.reader.list_partition_attempts(KEY)) == []


def test_invariant_9_spec3_s3_s9_repeated_verdict_counts_once(control_plane: ControlPlane) -> None:
    enqueue_partitions(control_plane)
    run = judge_partition(control_plane, FAILED)
    for again in (FAILED, PASSED):
        with pytest.raises(LeaseLostError):
            control_plane.control.process_result(
                run, create_verdict(run, again), sealed=create_sealed(run, KEY)
            )
    assert get_outcome(control_plane) == (PartitionStatus.FAILED, 1, None)
    assert len(control_plane.reader.list_partition_attempts(KEY)) == 1


def test_invariant_9_spec3_s3_attempt_count_never_decreases(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, FAILED, FAILED)
    control_plane.partitions.mark_terminal([KEY], OVERRIDE)
    assert get_partition(control_plane, KEY).attempt_count == 2
    control_plane.partitions.retry([KEY], OVERRIDE)
    assert get_partition(control_plane, KEY).attempt_count == 2
    judge_partition(control_plane, PASSED)
    control_plane.partitions.retry([KEY], OVERRIDE)
    assert get_partition(control_plane, KEY).attempt_count == 3


def test_spec3_s3_s9_earlier_runs_and_verdicts_are_immutable(control_plane: ControlPlane) -> None:
    (first,) = create_judged_partition(control_plane, FAILED)
    kept = control_plane.get_run(first), control_plane.reader.list_partition_attempts(KEY)[0]
    control_plane.partitions.retry([KEY], OVERRIDE)
    judge_partition(control_plane, PASSED)
    assert (
        control_plane.get_run(first),
        control_plane.reader.list_partition_attempts(KEY)[0],
    ) == kept
    assert control_plane.reader.has_raw(first.run_id)


# 9. Invariants


def test_invariant_16_spec3_s9_verdict_without_own_raw_data_is_rejected(
    control_plane: ControlPlane,
) -> None:
    enqueue_partitions(control_plane, KEY, partition_key(2))
    run, other = control_plane.queue.claim(W1, limit=2, lease=LEASE)
    for outcome in (PASSED, NEEDS_REVIEW):
        with pytest.raises(MisuseError, match="succeeded without a raw partition"):
            control_plane.control.process_result(run, create_verdict(run, outcome))
    for sealed in (create_sealed(run, partition_key(2)), create_sealed(other, KEY)):
        for outcome in VerdictOutcome:
            with pytest.raises(MisuseError, match="was not sealed by run"):
                control_plane.control.process_result(
                    run, create_verdict(run, outcome), sealed=sealed
                )
    assert get_outcome(control_plane) == (PartitionStatus.PENDING, 0, None)
    assert control_plane.get_run(run) == run
    assert not control_plane.reader.has_raw(run.run_id)


def test_spec3_s9_only_success_is_readable(control_plane: ControlPlane) -> None:
    enqueue_partitions(control_plane)
    assert get_readable_run(get_partition(control_plane, KEY)) is None
    judge_partition(control_plane, FAILED)
    assert get_readable_run(get_partition(control_plane, KEY)) is None
    control_plane.partitions.retry([KEY], OVERRIDE)
    assert get_readable_run(get_partition(control_plane, KEY)) is None
    run = judge_partition(control_plane, PASSED)
    assert get_readable_run(get_partition(control_plane, KEY)) == run.run_id


def test_spec3_s9_partition_has_at_most_one_active_run(control_plane: ControlPlane) -> None:
    create_judged_partition(control_plane, PASSED)
    control_plane.partitions.retry([KEY], OVERRIDE)
    active = get_partition(control_plane, KEY).active_run_id
    with pytest.raises(IllegalTransitionError, match=f"run {active} is already in progress"):
        control_plane.partitions.retry([KEY], OVERRIDE)
    with pytest.raises(IllegalTransitionError, match="would have to be absent"):
        enqueue_partitions(control_plane)
    with pytest.raises(MisuseError, match="only through its partition"):
        control_plane.submit_run(acquire_work(KEY))
    assert get_partition(control_plane, KEY).active_run_id == active
    assert [run.run_id for run in control_plane.queue.claim(W1, limit=9, lease=LEASE)] == [active]
