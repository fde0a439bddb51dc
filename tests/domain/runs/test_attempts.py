"""Attempts of a run: what each kind of end leaves behind."""

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from tileferry.domain.errors import IllegalTransitionError, InvalidStateError
from tileferry.domain.retry import Final, Retryable
from tileferry.domain.runs import (
    AttemptOutcome,
    Run,
    RunId,
    RunKind,
    RunStatus,
    Verdict,
    VerdictOutcome,
    WorkerId,
    build_ended_attempt,
    build_newest_attempt,
    cancel,
    claim,
    complete,
    is_due,
    record_error,
    release,
    rescue,
    submit,
)
from tileferry.domain.state_machine import Actor

START = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
W1 = WorkerId("w1")


def make_new_run() -> Run:
    return submit(
        run_id=RunId("r1"),
        kind=RunKind.DOWNLOAD_AREA,
        source="osm",
        actor=Actor.OPERATOR,
        now=START,
        payload={"flight_id": "F1"},
    ).after


def make_claimed_run() -> Run:
    return claim(make_new_run(), actor=Actor.WORKER, owner=W1, now=START, lease=MINUTE).after


def test_error_ends_attempt_and_records_retry_delay() -> None:
    change = record_error(
        make_claimed_run(),
        Retryable(),
        "reset",
        actor=Actor.WORKER,
        owner=W1,
        epoch=1,
        now=START + MINUTE,
    )
    attempt = build_ended_attempt(change, START)
    assert attempt is not None
    assert (attempt.outcome, attempt.worker, attempt.epoch) == (AttemptOutcome.ERROR, W1, 1)
    assert (attempt.began_at, attempt.ended_at, attempt.delay_s) == (START, START + MINUTE, 60.0)
    assert (attempt.error_class, attempt.error_message) == ("retryable", "reset")


def test_last_attempt_has_no_delay() -> None:
    change = record_error(
        make_claimed_run(), Final(), "no", actor=Actor.WORKER, owner=W1, epoch=1, now=START
    )
    attempt = build_ended_attempt(change, START)
    assert attempt is not None
    assert attempt.delay_s is None


def test_lost_and_released_attempts_have_different_outcomes() -> None:
    lost = build_ended_attempt(
        rescue(make_claimed_run(), actor=Actor.SWEEPER, now=START + MINUTE), START
    )
    back = build_ended_attempt(
        release(make_claimed_run(), actor=Actor.WORKER, owner=W1, epoch=1, now=START), START
    )
    assert lost is not None
    assert back is not None
    assert (lost.outcome, back.outcome) == (AttemptOutcome.LOST, AttemptOutcome.RELEASED)
    assert (lost.delay_s, back.delay_s) == (0.0, 0.0)


def test_released_attempt_does_not_repeat_an_earlier_error() -> None:
    run = evolve(make_claimed_run(), error_class="retryable", error_message="reset")
    change = release(run, actor=Actor.WORKER, owner=W1, epoch=1, now=START)
    assert (change.after.error_class, change.after.error_message) == ("retryable", "reset")
    back = build_ended_attempt(change, START)
    assert back is not None
    assert (back.error_class, back.error_message) == (None, None)


def test_cancelled_attempt_is_kept_with_the_reason() -> None:
    change = cancel(make_claimed_run(), actor=Actor.OPERATOR, now=START, reason="wrong area")
    attempt = build_ended_attempt(change, START)
    assert attempt is not None
    assert (attempt.outcome, attempt.epoch, attempt.delay_s) == (AttemptOutcome.CANCELLED, 1, None)
    assert attempt.error_message == "cancelled: wrong area"


def test_cancelled_or_completed_run_yields_no_ended_attempt() -> None:
    assert (
        build_ended_attempt(
            cancel(make_new_run(), actor=Actor.OPERATOR, now=START, reason="why"), START
        )
        is None
    )
    verdict = Verdict(run_id=RunId("r1"), outcome=VerdictOutcome.PASSED)
    done = complete(make_claimed_run(), verdict, actor=Actor.WORKER, owner=W1, epoch=1, now=START)
    assert build_ended_attempt(done, START) is None


def test_release_is_not_charged_and_requires_lease() -> None:
    after = release(make_claimed_run(), actor=Actor.WORKER, owner=W1, epoch=1, now=START).after
    assert (after.status, after.retry_count, after.rescues) == (RunStatus.DISCOVERED, 0, 0)
    assert is_due(after, START)
    with pytest.raises(IllegalTransitionError, match="does not hold its lease"):
        release(make_claimed_run(), actor=Actor.WORKER, owner=WorkerId("w2"), epoch=1, now=START)


def test_newest_attempt_is_derived_from_run() -> None:
    run = make_claimed_run()
    assert build_newest_attempt(run, W1, START, None).outcome is AttemptOutcome.UNDER_WAY
    failed = evolve(
        run,
        status=RunStatus.FAILED,
        error_message="bad",
        lease_owner=None,
        lease_expires_at=None,
    )
    last = build_newest_attempt(failed, W1, START, START + MINUTE)
    assert (last.outcome, last.error_message) == (AttemptOutcome.FAILED, "bad")
    with pytest.raises(InvalidStateError, match="has no current attempt"):
        build_newest_attempt(make_new_run(), W1, START, None)
