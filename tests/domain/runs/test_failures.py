"""Errors, lost workers, and what an operator does about them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import IllegalTransitionError
from tileferry.domain.retry import (
    QUARANTINE_POLICY,
    RUN_POLICY,
    DecisionRecord,
    ErrorClass,
    Failure,
    Final,
    GiveUp,
    GiveUpReason,
    RateLimited,
    Retryable,
    RetryAt,
    RetryPolicy,
    RetryReason,
    build_quarantine_policy,
    calculate_next_retry,
    replay_decision,
)
from tileferry.domain.runs import (
    MAX_RESCUES,
    Run,
    RunId,
    RunKind,
    RunStatus,
    WorkerId,
    cancel,
    claim,
    has_ended,
    is_due,
    is_permanent,
    record_error,
    rescue,
    retry_now,
)
from tileferry.domain.state_machine import Actor, Change

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)
SUBMITTED = NOW - timedelta(hours=2)
MINUTE = timedelta(minutes=1)
TICK = timedelta(microseconds=1)
W1 = WorkerId("w1")


def get_decision_record(change: Change[Run]) -> DecisionRecord:
    assert change.record is not None
    return change.record


def make_run(**fields: Any) -> Run:
    base: dict[str, Any] = {"kind": RunKind.DOWNLOAD_AREA, "submitted_date": SUBMITTED}
    return Run(run_id=RunId("r1"), source="osm", **{**base, **fields})


def make_processing_run(**fields: Any) -> Run:
    lease = {"lease_owner": W1, "lease_expires_at": NOW + MINUTE, "lease_epoch": 9}
    return make_run(**{"status": RunStatus.PROCESSING, **lease, **fields})


def record_failure(
    run: Run, error: ErrorClass, *, now: datetime = NOW, policy: RetryPolicy = RUN_POLICY
) -> Change[Run]:
    return record_error(
        run,
        error,
        "boom",
        actor=Actor.WORKER,
        owner=W1,
        epoch=run.lease_epoch,
        now=now,
        policy=policy,
    )


def test_recorded_error_carries_replayable_decision() -> None:
    run = make_processing_run(retry_count=2, rate_limited_count=4, rescues=1)
    change = record_failure(run, Retryable())
    failure = Failure(key="r1", attempt=3, error=Retryable(), rate_limited=4, elapsed_s=7200.0)
    assert change == Change(
        transition="record_error",
        actor=Actor.WORKER,
        before=run,
        after=make_run(
            status=RunStatus.ERROR,
            retry_count=3,
            rate_limited_count=4,
            next_retry_at=NOW + timedelta(seconds=240),
            error_class="retryable",
            error_message="boom",
            lease_epoch=9,
            rescues=1,
            needs_token=True,
        ),
        reason="boom",
        at=NOW,
        record=DecisionRecord(
            policy=RUN_POLICY,
            failure=failure,
            decision=RetryAt(delay_s=240.0, reason=RetryReason.BACKOFF, attempt=4, rate_limited=4),
        ),
    )
    assert replay_decision(get_decision_record(change)) is None


SCHEDULE_S = [60, 120, 240, 480, 960, 1920, 3600]


@pytest.mark.parametrize(("retries", "delay_s"), list(enumerate(SCHEDULE_S)))
def test_spec4_phase5_exponential_backoff(retries: int, delay_s: int) -> None:
    run = record_failure(make_processing_run(retry_count=retries), Retryable()).after
    assert run.status is RunStatus.ERROR
    assert run.next_retry_at == NOW + timedelta(seconds=delay_s)
    assert run.next_retry_at == calculate_next_retry(retries, Retryable(), RUN_POLICY, now=NOW)
    assert run.retry_count == retries + 1
    assert run.error_class == "retryable"


def test_spec4_phase5_error_is_permanent_after_eight_attempts() -> None:
    run, now, delays, decisions = make_run(), NOW, [], []
    for attempt in range(1, 9):
        run = claim(run, actor=Actor.WORKER, owner=W1, now=now, lease=MINUTE).after
        assert (run.lease_epoch, run.retry_count) == (attempt, attempt - 1)
        change = record_failure(run, Retryable(), now=now)
        run = change.after
        decisions.append(get_decision_record(change).decision)
        if run.next_retry_at is not None:
            delays.append((run.next_retry_at - now).total_seconds())
            now = run.next_retry_at
    assert delays == SCHEDULE_S
    assert decisions[-1] == GiveUp(reason=GiveUpReason.ATTEMPTS_EXHAUSTED, attempts=8)
    assert is_permanent(run)
    assert run.retry_count == 7
    assert run.error_class == "retryable"


def test_spec4_phase5_final_errors_are_not_retried() -> None:
    change = record_failure(make_processing_run(retry_count=1, rate_limited_count=1), Final())
    assert change.after == make_run(
        status=RunStatus.ERROR,
        retry_count=1,
        rate_limited_count=1,
        next_retry_at=None,
        error_class="final",
        error_message="boom",
        lease_epoch=9,
    )
    assert get_decision_record(change).decision == GiveUp(reason=GiveUpReason.FINAL, attempts=2)


def test_spec4_phase5_rate_limit_with_hint_is_not_charged() -> None:
    change = record_failure(
        make_processing_run(retry_count=7, rate_limited_count=1), RateLimited(90.0)
    )
    assert change.after == make_run(
        status=RunStatus.ERROR,
        retry_count=7,
        rate_limited_count=2,
        next_retry_at=NOW + timedelta(seconds=90),
        error_class="rate_limited",
        error_message="boom",
        lease_epoch=9,
    )
    assert get_decision_record(change).failure.error == RateLimited(90.0)


def test_spec4_phase5_rate_limit_without_hint_is_charged() -> None:
    run = record_failure(make_processing_run(retry_count=1), RateLimited()).after
    assert run.next_retry_at == NOW + timedelta(seconds=120)
    assert (run.retry_count, run.rate_limited_count) == (2, 1)
    assert run.error_class == "rate_limited"


def test_rate_limits_are_bounded_by_count() -> None:
    last = record_failure(make_processing_run(rate_limited_count=99), RateLimited(1.0)).after
    assert last.rate_limited_count == 100
    assert not is_permanent(last)
    change = record_failure(make_processing_run(rate_limited_count=100), RateLimited(1.0))
    assert is_permanent(change.after)
    assert change.after.rate_limited_count == 100
    assert get_decision_record(change).decision == GiveUp(
        reason=GiveUpReason.RATE_LIMIT_EXHAUSTED, attempts=1
    )


def test_rate_limits_are_bounded_by_run_age() -> None:
    policy = evolve(RUN_POLICY, deadline_s=7200.0 + 90.0)
    assert not is_permanent(
        record_failure(make_processing_run(), RateLimited(89.0), policy=policy).after
    )
    change = record_failure(make_processing_run(), RateLimited(90.0), policy=policy)
    assert is_permanent(change.after)
    assert get_decision_record(change).decision == GiveUp(
        reason=GiveUpReason.DEADLINE_EXCEEDED, attempts=1
    )


def test_run_submitted_in_future_has_zero_age() -> None:
    assert (
        get_decision_record(
            record_failure(make_processing_run(submitted_date=NOW + MINUTE), Retryable())
        ).failure.elapsed_s
        == 0.0
    )


def test_jitter_is_derived_from_run_id() -> None:
    policy = evolve(RUN_POLICY, jitter_enabled=True)
    change = record_failure(make_processing_run(), Retryable(), policy=policy)
    assert get_decision_record(change).policy == policy
    assert change.after.next_retry_at == calculate_next_retry(
        0, Retryable(), policy, now=NOW, key="r1"
    )


def test_error_without_message_is_recorded_as_its_class() -> None:
    change = record_error(
        make_processing_run(), Retryable(), "", actor=Actor.WORKER, owner=W1, epoch=9, now=NOW
    )
    assert change.after.error_message == "retryable"
    assert change.reason == "retryable"


def test_rescued_run_is_due_at_once_without_charge() -> None:
    run = make_processing_run(retry_count=2, rate_limited_count=1, rescues=1, lease_expires_at=NOW)
    lost = "the lease of worker w1 expired at 2024-01-05 12:00:00 UTC"
    assert rescue(run, actor=Actor.SWEEPER, now=NOW) == Change(
        transition="rescue",
        actor=Actor.SWEEPER,
        before=run,
        after=make_run(
            status=RunStatus.ERROR,
            retry_count=2,
            rate_limited_count=1,
            next_retry_at=NOW,
            error_class="retryable",
            error_message=lost,
            lease_epoch=9,
            rescues=2,
        ),
        reason=lost,
        at=NOW,
        record=DecisionRecord(
            policy=QUARANTINE_POLICY,
            failure=Failure(key="r1", attempt=2, error=Retryable()),
            decision=RetryAt(delay_s=0.0, reason=RetryReason.BACKOFF, attempt=3, rate_limited=0),
        ),
    )


def test_run_with_live_lease_is_not_rescued() -> None:
    with pytest.raises(IllegalTransitionError) as caught:
        rescue(make_processing_run(lease_expires_at=NOW + TICK), actor=Actor.SWEEPER, now=NOW)
    assert caught.value.problem == "its lease is valid until 2024-01-05 12:00:00 UTC"


def test_sixth_rescue_gives_up_run() -> None:
    assert MAX_RESCUES == 5
    fifth = rescue(
        make_processing_run(rescues=4, lease_expires_at=NOW), actor=Actor.SWEEPER, now=NOW
    ).after
    assert fifth.rescues == 5
    assert is_due(fifth, NOW)
    sixth = rescue(
        make_processing_run(rescues=5, lease_expires_at=NOW), actor=Actor.SWEEPER, now=NOW
    )
    message = (
        "given up after losing 6 workers: the lease of worker w1 expired at 2024-01-05 12:00:00 UTC"
    )
    assert sixth.after == make_run(
        status=RunStatus.ERROR,
        error_class="final",
        error_message=message,
        lease_epoch=9,
        rescues=6,
    )
    assert is_permanent(sixth.after)
    only = rescue(
        make_processing_run(lease_expires_at=NOW),
        actor=Actor.SWEEPER,
        now=NOW,
        policy=build_quarantine_policy(0),
    ).after
    assert (only.error_message or "").startswith("given up after losing 1 worker: ")
    assert sixth.reason == message


def test_max_rescues_is_configurable() -> None:
    run = make_processing_run(lease_expires_at=NOW)
    assert is_permanent(
        rescue(run, actor=Actor.SWEEPER, now=NOW, policy=build_quarantine_policy(0)).after
    )
    assert not is_permanent(
        rescue(run, actor=Actor.SWEEPER, now=NOW, policy=build_quarantine_policy(1)).after
    )


def test_new_run_can_be_cancelled() -> None:
    change = cancel(make_run(), actor=Actor.OPERATOR, now=NOW, reason="not needed")
    assert change == Change(
        transition="cancel",
        actor=Actor.OPERATOR,
        before=make_run(),
        after=make_run(
            status=RunStatus.ERROR, error_class="final", error_message="cancelled: not needed"
        ),
        reason="not needed",
        at=NOW,
    )
    assert is_permanent(change.after)


def test_run_in_progress_can_be_cancelled_and_its_lease_ends() -> None:
    change = cancel(make_processing_run(), actor=Actor.OPERATOR, now=NOW, reason="wrong area")
    after = change.after
    assert (after.lease_owner, after.lease_expires_at, after.lease_epoch) == (None, None, 9)
    assert (after.error_message, is_permanent(after)) == ("cancelled: wrong area", True)


@pytest.mark.parametrize(
    ("error", "needs_token"),
    [
        (Retryable(), True),
        (RateLimited(), True),
        (RateLimited(retry_after_s=5.0), False),
        (Final(), False),
    ],
)
def test_only_backoff_costs_a_token(error: ErrorClass, needs_token: bool) -> None:  # noqa: FBT001  # a parameter of the test
    after = record_failure(make_processing_run(), error).after
    assert after.needs_token is needs_token
    if after.next_retry_at is not None:
        assert not retry_now(after, actor=Actor.OPERATOR, now=NOW, reason="now").after.needs_token
        assert not cancel(after, actor=Actor.OPERATOR, now=NOW, reason="no").after.needs_token


def make_waiting_run(**fields: Any) -> Run:
    base = {"next_retry_at": NOW + MINUTE, "error_class": "rate_limited", "error_message": "boom"}
    counts = {"retry_count": 2, "rate_limited_count": 1, "lease_epoch": 3, "rescues": 1}
    return make_run(**{"status": RunStatus.ERROR, **base, **counts, **fields})


def test_waiting_run_can_be_cancelled_and_keeps_its_counts() -> None:
    run = cancel(make_waiting_run(), actor=Actor.OPERATOR, now=NOW, reason="enough").after
    assert run == make_waiting_run(
        next_retry_at=None, error_class="final", error_message="cancelled: enough"
    )
    with pytest.raises(IllegalTransitionError) as caught:
        cancel(run, actor=Actor.OPERATOR, now=NOW, reason="again")
    assert caught.value.problem == "it is already given up"


@pytest.mark.parametrize("kind", RunKind)
def test_operator_can_make_waiting_run_due(kind: RunKind) -> None:
    change = retry_now(make_waiting_run(kind=kind), actor=Actor.OPERATOR, now=NOW, reason="fixed")
    assert change == Change(
        transition="retry_now",
        actor=Actor.OPERATOR,
        before=make_waiting_run(kind=kind),
        after=make_waiting_run(kind=kind, next_retry_at=NOW),
        reason="fixed",
        at=NOW,
    )


@pytest.mark.parametrize("kind", [RunKind.DOWNLOAD_AREA, RunKind.UPLOAD_FLIGHT])
def test_operator_can_retry_given_up_run_once(kind: RunKind) -> None:
    spent = make_waiting_run(kind=kind, next_retry_at=None, retry_count=7)
    run = retry_now(spent, actor=Actor.OPERATOR, now=NOW, reason="fixed").after
    assert run == make_waiting_run(kind=kind, next_retry_at=NOW, retry_count=7)
    run = claim(run, actor=Actor.WORKER, owner=W1, now=NOW, lease=MINUTE).after
    assert is_permanent(record_failure(run, Retryable()).after)


def test_given_up_partition_run_cannot_be_retried() -> None:
    run = make_waiting_run(kind=RunKind.ACQUIRE_PARTITION, next_retry_at=None)
    with pytest.raises(IllegalTransitionError) as caught:
        retry_now(run, actor=Actor.OPERATOR, now=NOW, reason="fixed")
    assert str(caught.value) == (
        "run r1 is error: operator may not retry it now: its partition failed with it and needs a "
        "new run; retry the partition, or plan and apply a backfill if it left no raw partition"
    )


FAULTS = st.sampled_from(["lost worker", Final(), Retryable(), RateLimited(), RateLimited(5.0)])


@given(faults=st.lists(FAULTS, min_size=1, max_size=4))
def test_every_run_ends_under_permanent_faults(faults: list[ErrorClass | str]) -> None:
    policy = RetryPolicy(max_attempts=4, max_rate_limited=3)
    run, now, claims = make_run(), NOW, 0
    while not has_ended(run):
        now = max(now, run.next_retry_at or now)
        run = claim(run, actor=Actor.WORKER, owner=W1, now=now, lease=MINUTE).after
        fault = faults[claims % len(faults)]
        claims += 1
        if isinstance(fault, str):
            now += MINUTE
            run = rescue(run, actor=Actor.SWEEPER, now=now).after
        else:
            run = record_failure(run, fault, now=now, policy=policy).after
    assert is_permanent(run)
    assert claims <= 3 + 3 + MAX_RESCUES + 1


def test_attempt_that_improved_starts_the_count_of_failures_again() -> None:
    run = make_processing_run(retry_count=7, rate_limited_count=100)
    assert is_permanent(record_failure(run, Retryable()).after)
    for error, retries, waits in ((Retryable(), 1, 0), (RateLimited(retry_after_s=5.0), 0, 1)):
        change = record_error(
            run, error, "reset", actor=Actor.WORKER, owner=W1, epoch=9, now=NOW, improved=True
        )
        after = change.after
        assert (after.retry_count, after.rate_limited_count) == (retries, waits)
        assert not is_permanent(after)
        assert replay_decision(get_decision_record(change)) is None
    final = record_error(
        run, Final(), "no", actor=Actor.WORKER, owner=W1, epoch=9, now=NOW, improved=True
    )
    assert is_permanent(final.after)
