"""The end of a run, and what it makes of the partition: design §3, row by row."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from tileferry.domain.actors import Actor
from tileferry.domain.errors import IllegalTransitionError, InvalidValueError
from tileferry.domain.partitions import (
    Partition,
    PartitionKey,
    PartitionStatus,
    TerminalityPolicy,
    TerminalReason,
    accept,
    after_run,
    apply_verdict,
    enqueue,
    readable_run,
    reject,
    terminal_reason,
    verdict_behind,
)
from tileferry.domain.runs import Run, RunId, RunKind, RunStatus, Verdict, VerdictOutcome

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)
R1, R2 = RunId("r1"), RunId("r2")
KEY = PartitionKey(
    source="osm", customer_id="acme", query_name="roads", logical_date=date(2024, 1, 1)
)


def partition(status: PartitionStatus, **fields: Any) -> Partition:
    return Partition(
        key=KEY, status=status, last_run_id=R2, created_at=NOW, updated_at=NOW, **fields
    )


PENDING = partition(PartitionStatus.PENDING, active_run_id=R2, attempt_count=1)
REPROCESSING = partition(
    PartitionStatus.SUCCESS, current_run_id=R1, active_run_id=R2, attempt_count=1
)


def ended(status: RunStatus, **fields: Any) -> Run:
    return Run(
        run_id=R2,
        kind=RunKind.ACQUIRE_PARTITION,
        source="osm",
        submitted_date=NOW,
        status=status,
        lease_epoch=1,
        **fields,
    )


def settled(run: Run, before: Partition = PENDING) -> tuple[str, Actor, str | None, Partition]:
    change = after_run(before, run, NOW)
    assert change is not None
    assert change.before == before
    assert change.at == NOW
    return change.transition, change.actor, change.reason, change.after


def test_design_s3_passed_is_success_of_this_run() -> None:
    assert settled(ended(RunStatus.PASSED)) == (
        "accept",
        Actor.VALIDATOR,
        None,
        partition(PartitionStatus.SUCCESS, current_run_id=R2, attempt_count=2),
    )


def test_design_s3_needs_review_is_success_with_a_review_flag() -> None:
    run = ended(RunStatus.NEEDS_REVIEW, error_message="2 stale")
    assert settled(run) == (
        "accept",
        Actor.VALIDATOR,
        "2 stale",
        partition(PartitionStatus.SUCCESS, current_run_id=R2, attempt_count=2, needs_review=True),
    )


def test_design_s3_failed_is_failed() -> None:
    run = ended(RunStatus.FAILED, error_message="bad hash")
    assert settled(run) == (
        "reject",
        Actor.VALIDATOR,
        "bad hash",
        partition(PartitionStatus.FAILED, attempt_count=2, error_message="bad hash"),
    )


def test_design_s3_after_failed_a_prior_success_stays_readable() -> None:
    run = ended(RunStatus.FAILED, error_message="bad hash")
    _, _, _, after = settled(run, REPROCESSING)
    assert after == partition(
        PartitionStatus.SUCCESS, current_run_id=R1, attempt_count=2, error_message="bad hash"
    )
    assert readable_run(after) == R1


def test_design_s3_an_error_with_a_retry_scheduled_changes_nothing() -> None:
    run = ended(RunStatus.ERROR, error_class="retryable", error_message="boom", next_retry_at=NOW)
    assert after_run(PENDING, run, NOW) is None
    assert after_run(REPROCESSING, run, NOW) is None


def test_design_s3_a_permanent_error_is_failed_and_terminal_when_policy_says_so() -> None:
    run = ended(RunStatus.ERROR, error_class="final", error_message="boom")
    transition, actor, reason, after = settled(run)
    assert (transition, actor, reason) == ("abandon", Actor.SCHEDULER, "boom")
    assert after == partition(
        PartitionStatus.FAILED, attempt_count=1, error_message="boom", abandoned=True
    )
    strict, patient = TerminalityPolicy(max_attempts=1), TerminalityPolicy(max_attempts=2)
    assert terminal_reason(after, strict, NOW) is TerminalReason.ATTEMPTS_USED_UP
    assert terminal_reason(after, patient, NOW) is None


@pytest.mark.parametrize("status", [RunStatus.DISCOVERED, RunStatus.PROCESSING])
def test_a_run_that_has_not_ended_says_nothing_about_its_partition(status: RunStatus) -> None:
    lease: dict[str, Any] = {"lease_owner": "w1", "lease_expires_at": NOW, "lease_epoch": 1}
    run = Run(
        run_id=R2,
        kind=RunKind.ACQUIRE_PARTITION,
        source="osm",
        submitted_date=NOW,
        status=status,
        **(lease if status is RunStatus.PROCESSING else {}),
    )
    with pytest.raises(InvalidValueError) as caught:
        after_run(PENDING, run, NOW)
    assert caught.value.field == "run.status"
    assert caught.value.value is status
    assert caught.value.problem == "run r2 has not ended"


def verdict(outcome: VerdictOutcome, run_id: RunId = R2) -> Verdict:
    reasons = () if outcome is VerdictOutcome.PASSED else ("one", "two")
    return Verdict(run_id=run_id, outcome=outcome, reasons=reasons)


@pytest.mark.parametrize(
    ("outcome", "after", "reason"),
    [
        (
            VerdictOutcome.PASSED,
            partition(PartitionStatus.SUCCESS, current_run_id=R2, attempt_count=2),
            None,
        ),
        (
            VerdictOutcome.NEEDS_REVIEW,
            partition(
                PartitionStatus.SUCCESS, current_run_id=R2, attempt_count=2, needs_review=True
            ),
            "one; two",
        ),
        (
            VerdictOutcome.FAILED,
            partition(PartitionStatus.FAILED, attempt_count=2, error_message="one; two"),
            "one; two",
        ),
    ],
)
def test_spec3_s3_every_verdict_is_exactly_one_attempt(
    outcome: VerdictOutcome, after: Partition, reason: str | None
) -> None:
    change = apply_verdict(PENDING, verdict(outcome), NOW)
    assert change.after == after
    assert change.reason == reason
    assert (change.actor, change.at) == (Actor.VALIDATOR, NOW)
    with pytest.raises(IllegalTransitionError):
        apply_verdict(change.after, verdict(outcome), NOW + timedelta(seconds=1))


@pytest.mark.parametrize("outcome", VerdictOutcome)
@pytest.mark.parametrize("actor", [actor for actor in Actor if actor is not Actor.VALIDATOR])
def test_spec3_s1_only_the_validator_marks_a_partition(
    outcome: VerdictOutcome, actor: Actor
) -> None:
    with pytest.raises(IllegalTransitionError, match="only validator may"):
        apply_verdict(PENDING, verdict(outcome), NOW, actor=actor)


@pytest.mark.parametrize("outcome", VerdictOutcome)
def test_a_stale_workers_verdict_is_refused(outcome: VerdictOutcome) -> None:
    for before in (PENDING, REPROCESSING):
        with pytest.raises(IllegalTransitionError, match="run r2 is active; run r1 has no say"):
            apply_verdict(before, verdict(outcome, R1), NOW)


def test_spec3_s5_the_validator_does_not_interpret_terminality() -> None:
    worn = partition(PartitionStatus.PENDING, active_run_id=R2, attempt_count=1_000)
    for outcome in VerdictOutcome:
        assert apply_verdict(worn, verdict(outcome), NOW).after.attempt_count == 1_001


def test_the_verdict_behind_a_change_is_known_from_it() -> None:
    pending = enqueue(KEY, R1, actor=Actor.OPERATOR, now=NOW)
    assert verdict_behind(pending) is None
    passed = accept(pending.after, R1, actor=Actor.VALIDATOR, now=NOW)
    remark = accept(pending.after, R1, actor=Actor.VALIDATOR, now=NOW, review_reason="look")
    failed = reject(pending.after, R1, actor=Actor.VALIDATOR, now=NOW, error="bad")
    assert [verdict_behind(change) for change in (passed, remark, failed)] == [
        VerdictOutcome.PASSED,
        VerdictOutcome.NEEDS_REVIEW,
        VerdictOutcome.FAILED,
    ]
