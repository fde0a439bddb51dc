"""The end of a run, and what it makes of the partition: design §3, row by row."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from tileferry.domain.errors import IllegalTransitionError, InvalidStateError
from tileferry.domain.partitions import (
    Partition,
    PartitionKey,
    PartitionStatus,
    TerminalityPolicy,
    TerminalReason,
    accept,
    apply_run_end,
    apply_verdict,
    enqueue,
    find_terminal_reason,
    find_verdict,
    get_readable_run,
    reject,
)
from tileferry.domain.runs import Run, RunId, RunKind, RunStatus, Verdict, VerdictOutcome
from tileferry.domain.state_machine import Actor

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)
R1, R2 = RunId("r1"), RunId("r2")
KEY = PartitionKey(
    source="osm", customer_id="acme", query_name="roads", logical_date=date(2024, 1, 1)
)


def make_partition(status: PartitionStatus, **fields: Any) -> Partition:
    return Partition(
        key=KEY, status=status, last_run_id=R2, created_at=NOW, updated_at=NOW, **fields
    )


PENDING = make_partition(PartitionStatus.PENDING, active_run_id=R2, attempt_count=1)
REPROCESSING = make_partition(
    PartitionStatus.SUCCESS, current_run_id=R1, active_run_id=R2, attempt_count=1
)


def make_ended_run(status: RunStatus, **fields: Any) -> Run:
    return Run(
        run_id=R2,
        kind=RunKind.ACQUIRE_PARTITION,
        source="osm",
        submitted_date=NOW,
        status=status,
        lease_epoch=1,
        **fields,
    )


def settle(run: Run, before: Partition = PENDING) -> tuple[str, Actor, str | None, Partition]:
    change = apply_run_end(before, run, NOW)
    assert change is not None
    assert change.before == before
    assert change.at == NOW
    return change.transition, change.actor, change.reason, change.after


def test_design_s3_passed_run_makes_partition_success() -> None:
    assert settle(make_ended_run(RunStatus.PASSED)) == (
        "accept",
        Actor.VALIDATOR,
        None,
        make_partition(PartitionStatus.SUCCESS, current_run_id=R2, attempt_count=2),
    )


def test_design_s3_needs_review_run_makes_success_with_review_flag() -> None:
    run = make_ended_run(RunStatus.NEEDS_REVIEW, error_message="2 stale")
    assert settle(run) == (
        "accept",
        Actor.VALIDATOR,
        "2 stale",
        make_partition(
            PartitionStatus.SUCCESS, current_run_id=R2, attempt_count=2, needs_review=True
        ),
    )


def test_design_s3_failed_run_makes_partition_failed() -> None:
    run = make_ended_run(RunStatus.FAILED, error_message="bad hash")
    assert settle(run) == (
        "reject",
        Actor.VALIDATOR,
        "bad hash",
        make_partition(PartitionStatus.FAILED, attempt_count=2, error_message="bad hash"),
    )


def test_design_s3_prior_success_stays_readable_after_failed_run() -> None:
    run = make_ended_run(RunStatus.FAILED, error_message="bad hash")
    _, _, _, after = settle(run, REPROCESSING)
    assert after == make_partition(
        PartitionStatus.SUCCESS, current_run_id=R1, attempt_count=2, error_message="bad hash"
    )
    assert get_readable_run(after) == R1


def test_design_s3_error_with_scheduled_retry_changes_nothing() -> None:
    run = make_ended_run(
        RunStatus.ERROR, error_class="retryable", error_message="boom", next_retry_at=NOW
    )
    assert apply_run_end(PENDING, run, NOW) is None
    assert apply_run_end(REPROCESSING, run, NOW) is None


def test_design_s3_permanent_error_fails_partition_and_may_be_terminal() -> None:
    run = make_ended_run(RunStatus.ERROR, error_class="final", error_message="boom")
    transition, actor, reason, after = settle(run)
    assert (transition, actor, reason) == ("abandon", Actor.SCHEDULER, "boom")
    assert after == make_partition(
        PartitionStatus.FAILED, attempt_count=1, error_message="boom", abandoned=True
    )
    strict, patient = TerminalityPolicy(max_attempts=1), TerminalityPolicy(max_attempts=2)
    assert find_terminal_reason(after, strict, NOW) is TerminalReason.ATTEMPTS_USED_UP
    assert find_terminal_reason(after, patient, NOW) is None


@pytest.mark.parametrize("status", [RunStatus.DISCOVERED, RunStatus.PROCESSING])
def test_run_that_has_not_ended_is_rejected(status: RunStatus) -> None:
    lease: dict[str, Any] = {"lease_owner": "w1", "lease_expires_at": NOW, "lease_epoch": 1}
    run = Run(
        run_id=R2,
        kind=RunKind.ACQUIRE_PARTITION,
        source="osm",
        submitted_date=NOW,
        status=status,
        **(lease if status is RunStatus.PROCESSING else {}),
    )
    with pytest.raises(InvalidStateError) as caught:
        apply_run_end(PENDING, run, NOW)
    assert caught.value.subject == "run r2"
    assert caught.value.problem == f"has not ended (status {status})"


def make_verdict(outcome: VerdictOutcome, run_id: RunId = R2) -> Verdict:
    reasons = () if outcome is VerdictOutcome.PASSED else ("one", "two")
    return Verdict(run_id=run_id, outcome=outcome, reasons=reasons)


@pytest.mark.parametrize(
    ("outcome", "after", "reason"),
    [
        (
            VerdictOutcome.PASSED,
            make_partition(PartitionStatus.SUCCESS, current_run_id=R2, attempt_count=2),
            None,
        ),
        (
            VerdictOutcome.NEEDS_REVIEW,
            make_partition(
                PartitionStatus.SUCCESS, current_run_id=R2, attempt_count=2, needs_review=True
            ),
            "one; two",
        ),
        (
            VerdictOutcome.FAILED,
            make_partition(PartitionStatus.FAILED, attempt_count=2, error_message="one; two"),
            "one; two",
        ),
    ],
)
def test_verdict_counts_exactly_one_attempt(
    outcome: VerdictOutcome, after: Partition, reason: str | None
) -> None:
    change = apply_verdict(PENDING, make_verdict(outcome), NOW)
    assert change.after == after
    assert change.reason == reason
    assert (change.actor, change.at) == (Actor.VALIDATOR, NOW)
    with pytest.raises(IllegalTransitionError):
        apply_verdict(change.after, make_verdict(outcome), NOW + timedelta(seconds=1))


@pytest.mark.parametrize("outcome", VerdictOutcome)
@pytest.mark.parametrize("actor", [actor for actor in Actor if actor is not Actor.VALIDATOR])
def test_only_validator_may_apply_verdict(outcome: VerdictOutcome, actor: Actor) -> None:
    with pytest.raises(IllegalTransitionError, match="only validator may"):
        apply_verdict(PENDING, make_verdict(outcome), NOW, actor=actor)


@pytest.mark.parametrize("outcome", VerdictOutcome)
def test_verdict_of_stale_run_is_rejected(outcome: VerdictOutcome) -> None:
    for before in (PENDING, REPROCESSING):
        with pytest.raises(IllegalTransitionError, match="run r2 is active, not run r1"):
            apply_verdict(before, make_verdict(outcome, R1), NOW)


def test_validator_ignores_terminality() -> None:
    worn = make_partition(PartitionStatus.PENDING, active_run_id=R2, attempt_count=1_000)
    for outcome in VerdictOutcome:
        assert apply_verdict(worn, make_verdict(outcome), NOW).after.attempt_count == 1_001


def test_verdict_is_derived_from_change() -> None:
    pending = enqueue(KEY, R1, actor=Actor.OPERATOR, now=NOW)
    assert find_verdict(pending) is None
    passed = accept(pending.after, R1, actor=Actor.VALIDATOR, now=NOW)
    remark = accept(pending.after, R1, actor=Actor.VALIDATOR, now=NOW, review_reason="look")
    failed = reject(pending.after, R1, actor=Actor.VALIDATOR, now=NOW, error="bad")
    assert [find_verdict(change) for change in (passed, remark, failed)] == [
        VerdictOutcome.PASSED,
        VerdictOutcome.NEEDS_REVIEW,
        VerdictOutcome.FAILED,
    ]
