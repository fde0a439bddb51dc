"""What the books of partitions must show: retries, transitions, attempts, and what is kept."""

import pytest
from support.partition_desk import (
    ANN,
    FAILED,
    LOOK,
    PASSED,
    WHY,
    changes_of,
    claimed_of,
    enqueued,
    given_up,
    judged,
    known,
    made,
    verdict_on,
)
from support.work_desk import LEASE, W1, Desk, acquire, key, sealed_by

from tileferry.domain.actors import Actor
from tileferry.domain.errors import (
    IllegalTransitionError,
    InvalidValueError,
    LeaseLostError,
    SatelliteProviderError,
)
from tileferry.domain.partitions import (
    PartitionStatus,
    TerminalityPolicy,
    TerminalReason,
    apply_verdict,
    readable_run,
    requeue,
    terminal_reason,
)
from tileferry.domain.runs import RunId, VerdictOutcome
from tileferry.domain.tiles.provider_faults import ProviderFault

KEY = key()
BROKEN = SatelliteProviderError(reason="reset", fault=ProviderFault.UNREACHABLE)
MINUTE_S, HOUR_S, DAY_S = 60.0, 3_600.0, 86_400.0
NOT_CONTROL = [actor for actor in Actor if actor not in {Actor.OPERATOR, Actor.SCHEDULER}]


def outcome_of(desk: Desk) -> tuple[PartitionStatus, int, RunId | None]:
    partition = known(desk, KEY)
    return partition.status, partition.attempt_count, partition.current_run_id


# 1. Definition of retry


def test_spec3_s1_each_retry_has_a_new_run_and_a_raw_partition_of_its_own(desk: Desk) -> None:
    first, second, third = made(desk, FAILED, FAILED, PASSED)
    assert len({first.run_id, second.run_id, third.run_id}) == 3
    assert all(desk.reader.has_raw(run.run_id) for run in (first, second, third))
    verdicts = desk.reader.partition_attempts(KEY)
    assert [one.run_id for one in verdicts] == [first.run_id, second.run_id, third.run_id]


def test_spec3_s1_a_retry_is_of_the_entire_partition(desk: Desk) -> None:
    first, second = made(desk, FAILED, PASSED)
    assert first.payload == second.payload == acquire(KEY).payload()


@pytest.mark.parametrize("outcome", VerdictOutcome)
def test_spec3_s1_only_the_validator_marks_success_or_failure(
    desk: Desk, outcome: VerdictOutcome
) -> None:
    enqueued(desk)
    run = claimed_of(desk, KEY)
    with desk.store.unit() as unit:
        partition = unit.partitions([KEY]).get(KEY)
        assert partition is not None
        for actor in Actor:
            if actor is not Actor.VALIDATOR:
                with pytest.raises(IllegalTransitionError, match="only validator may"):
                    apply_verdict(partition, verdict_on(run, outcome), unit.now, actor=actor)
    desk.control.process_result(run, verdict_on(run, outcome), sealed=sealed_by(run, KEY))
    assert [event.actor for event in changes_of(desk)] == ["scheduler", "validator"]


# 2. State transitions


def test_spec3_s2_what_the_validator_accepts_speaks_for_the_partition(desk: Desk) -> None:
    (run,) = made(desk, PASSED)
    assert outcome_of(desk) == (PartitionStatus.SUCCESS, 1, run.run_id)
    assert known(desk, KEY).active_run_id is None


def test_spec3_s2_what_needs_review_is_a_success_with_a_flag(desk: Desk) -> None:
    (run,) = made(desk, LOOK)
    assert outcome_of(desk) == (PartitionStatus.SUCCESS, 1, run.run_id)
    assert known(desk, KEY).needs_review


def test_spec3_s2_what_the_validator_rejects_leaves_the_current_run(desk: Desk) -> None:
    made(desk, FAILED)
    assert outcome_of(desk) == (PartitionStatus.FAILED, 1, None)
    assert known(desk, KEY).error_message == WHY


def test_spec3_s2_a_failed_partition_never_goes_back_by_itself(desk: Desk) -> None:
    made(desk, FAILED)
    before = known(desk, KEY)
    for _ in range(5):
        desk.pass_time(DAY_S)
        assert desk.control.sweep() == 0
        assert desk.control.get_next_run_to_process(W1, lease=LEASE) is None
    after = known(desk, KEY)
    assert (after.status, after.last_run_id) == (PartitionStatus.FAILED, before.last_run_id)
    assert len(changes_of(desk)) == 2


def test_spec3_s2_s7_nobody_but_the_control_plane_takes_a_failure_back(desk: Desk) -> None:
    made(desk, FAILED)
    desk.pass_time(DAY_S)
    with desk.store.unit() as unit:
        partition = unit.partitions([KEY]).get(KEY)
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
    assert known(desk, KEY).status is PartitionStatus.FAILED


def test_spec3_s2_the_control_plane_takes_a_failure_back_when_it_says_so(desk: Desk) -> None:
    made(desk, FAILED)
    desk.partitions.retry([KEY], ANN)
    assert known(desk, KEY).status is PartitionStatus.PENDING
    judged(desk, FAILED)
    desk.pass_time(HOUR_S)
    assert desk.partitions.retry_due() == 1
    assert known(desk, KEY).status is PartitionStatus.PENDING
    actors = [event.actor for event in changes_of(desk) if event.transition == "requeue"]
    assert actors == ["operator", "scheduler"]


def test_spec3_s2_a_further_failure_counts_and_stays_failed(desk: Desk) -> None:
    made(desk, FAILED, FAILED)
    assert outcome_of(desk) == (PartitionStatus.FAILED, 2, None)


def test_spec3_s2_a_verdict_on_a_run_that_was_given_up_counts_once(desk: Desk) -> None:
    """Failed to failed: the validator was at it when somebody gave the run up."""
    enqueued(desk)
    run = given_up(desk)
    assert outcome_of(desk) == (PartitionStatus.FAILED, 0, None)
    with desk.store.unit() as unit:
        partition = unit.partitions([KEY]).get(KEY)
        assert partition is not None
        unit.save_partition(apply_verdict(partition, verdict_on(run, FAILED), unit.now))
    assert outcome_of(desk) == (PartitionStatus.FAILED, 1, None)
    with desk.store.unit() as unit:
        partition = unit.partitions([KEY]).get(KEY)
        assert partition is not None
        with pytest.raises(IllegalTransitionError, match="has no say in it"):
            apply_verdict(partition, verdict_on(run, FAILED), unit.now)


def test_spec3_s2_s5_terminal_is_a_matter_of_policy_and_no_status(desk: Desk) -> None:
    made(desk, FAILED)
    desk.partitions.mark_terminal([KEY], ANN)
    marked = known(desk, KEY)
    assert (marked.status, marked.terminal_marker) == (PartitionStatus.FAILED, ANN.reason)
    reason = terminal_reason(marked, desk.policies.terminality, desk.reader.now())
    assert reason is TerminalReason.MARKED
    assert set(PartitionStatus) == {"pending", "success", "failed"}


def test_spec3_s2_s5_a_success_is_not_tried_again_by_itself(desk: Desk) -> None:
    made(desk, PASSED)
    assert desk.reader.planned_retry(KEY) is None
    desk.pass_time(30 * DAY_S)
    assert desk.partitions.retry_due() == 0
    assert desk.control.get_next_run_to_process(W1, lease=LEASE) is None


def test_spec3_s2_reprocessing_that_succeeds_replaces_the_current_run(desk: Desk) -> None:
    first, second = made(desk, LOOK, PASSED)
    assert outcome_of(desk) == (PartitionStatus.SUCCESS, 2, second.run_id)
    assert second.run_id != first.run_id
    assert not known(desk, KEY).needs_review


def test_spec3_s2_a_success_stays_readable_while_it_is_reprocessed_and_when_that_fails(
    desk: Desk,
) -> None:
    (first,) = made(desk, PASSED)
    desk.partitions.retry([KEY], ANN)
    assert readable_run(known(desk, KEY)) == first.run_id
    judged(desk, FAILED)
    assert outcome_of(desk) == (PartitionStatus.SUCCESS, 2, first.run_id)
    assert known(desk, KEY).error_message == WHY
    desk.partitions.retry([KEY], ANN)
    given_up(desk)
    assert outcome_of(desk) == (PartitionStatus.SUCCESS, 2, first.run_id)
    assert readable_run(known(desk, KEY)) == first.run_id


# 3. Attempt semantics


def test_invariant_9_spec3_s3_each_verdict_counts_once_whatever_it_says(desk: Desk) -> None:
    made(desk, FAILED, LOOK, FAILED, PASSED)
    assert known(desk, KEY).attempt_count == 4
    verdicts = desk.reader.partition_attempts(KEY)
    assert [one.attempt for one in verdicts] == [1, 2, 3, 4]
    assert [one.outcome for one in verdicts] == [FAILED, LOOK, FAILED, PASSED]
    assert [one.explanation for one in verdicts] == [WHY, WHY, WHY, None]


def test_invariant_9_spec3_s3_what_is_no_verdict_is_not_counted(desk: Desk) -> None:
    enqueued(desk)
    desk.control.process_error(claimed_of(desk, KEY), BROKEN)
    desk.pass_time(61)
    desk.control.give_back(claimed_of(desk, KEY))
    claimed_of(desk, KEY)
    desk.pass_time(61)
    assert desk.control.sweep() == 1
    assert outcome_of(desk) == (PartitionStatus.PENDING, 0, None)
    run_id = known(desk, KEY).last_run_id
    desk.control.cancel(run_id, reason="wrong area", by="ann")
    assert outcome_of(desk) == (PartitionStatus.FAILED, 0, None)
    assert known(desk, KEY).abandoned
    assert list(desk.reader.partition_attempts(KEY)) == []


def test_invariant_9_spec3_s3_s9_the_same_verdict_twice_counts_once(desk: Desk) -> None:
    enqueued(desk)
    run = judged(desk, FAILED)
    for again in (FAILED, PASSED):
        with pytest.raises(LeaseLostError):
            desk.control.process_result(run, verdict_on(run, again), sealed=sealed_by(run, KEY))
    assert outcome_of(desk) == (PartitionStatus.FAILED, 1, None)
    assert len(desk.reader.partition_attempts(KEY)) == 1


def test_invariant_9_spec3_s3_the_count_never_falls(desk: Desk) -> None:
    made(desk, FAILED, FAILED)
    desk.partitions.mark_terminal([KEY], ANN)
    assert known(desk, KEY).attempt_count == 2
    desk.partitions.retry([KEY], ANN)
    assert known(desk, KEY).attempt_count == 2
    judged(desk, PASSED)
    desk.partitions.retry([KEY], ANN)
    assert known(desk, KEY).attempt_count == 3


def test_spec3_s3_s9_earlier_runs_and_their_verdicts_stay_as_they_are(desk: Desk) -> None:
    (first,) = made(desk, FAILED)
    kept = desk.known(first), desk.reader.partition_attempts(KEY)[0]
    desk.partitions.retry([KEY], ANN)
    judged(desk, PASSED)
    assert (desk.known(first), desk.reader.partition_attempts(KEY)[0]) == kept
    assert desk.reader.has_raw(first.run_id)


# 9. Invariants


def test_invariant_16_spec3_s9_no_run_speaks_for_a_partition_without_its_raw_data(
    desk: Desk,
) -> None:
    enqueued(desk, KEY, key(2))
    run, other = desk.queue.claim(W1, limit=2, lease=LEASE)
    for outcome in (PASSED, LOOK):
        with pytest.raises(InvalidValueError, match="cannot speak for its partition"):
            desk.control.process_result(run, verdict_on(run, outcome))
    for sealed in (sealed_by(run, key(2)), sealed_by(other, KEY)):
        for outcome in VerdictOutcome:
            with pytest.raises(InvalidValueError, match="is not what run"):
                desk.control.process_result(run, verdict_on(run, outcome), sealed=sealed)
    assert outcome_of(desk) == (PartitionStatus.PENDING, 0, None)
    assert desk.known(run) == run
    assert not desk.reader.has_raw(run.run_id)


def test_spec3_s9_consumers_read_nothing_but_a_success(desk: Desk) -> None:
    enqueued(desk)
    assert readable_run(known(desk, KEY)) is None
    judged(desk, FAILED)
    assert readable_run(known(desk, KEY)) is None
    desk.partitions.retry([KEY], ANN)
    assert readable_run(known(desk, KEY)) is None
    run = judged(desk, PASSED)
    assert readable_run(known(desk, KEY)) == run.run_id


def test_spec3_s9_a_partition_has_one_run_at_a_time(desk: Desk) -> None:
    made(desk, PASSED)
    desk.partitions.retry([KEY], ANN)
    active = known(desk, KEY).active_run_id
    with pytest.raises(IllegalTransitionError, match=f"run {active} is working on it already"):
        desk.partitions.retry([KEY], ANN)
    with pytest.raises(IllegalTransitionError, match="would have to be absent"):
        enqueued(desk)
    with pytest.raises(InvalidValueError, match="no run of it goes without its partition"):
        desk.submitted(acquire(KEY))
    assert known(desk, KEY).active_run_id == active
    assert [run.run_id for run in desk.queue.claim(W1, limit=9, lease=LEASE)] == [active]
