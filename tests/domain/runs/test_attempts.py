"""Attempts of a run: what each kind of end leaves behind."""

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from tileferry.domain.actors import Actor
from tileferry.domain.errors import IllegalTransitionError, InvalidValueError
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
    cancel,
    claim,
    complete,
    ended_attempt,
    newest_attempt,
    record_error,
    release,
    rescue,
    submit,
)

START = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
W1 = WorkerId("w1")


def new() -> Run:
    return submit(
        run_id=RunId("r1"),
        kind=RunKind.DOWNLOAD_AREA,
        source="osm",
        actor=Actor.OPERATOR,
        now=START,
        payload={"flight_id": "F1"},
    ).after


def held() -> Run:
    return claim(new(), actor=Actor.WORKER, owner=W1, now=START, lease=MINUTE).after


def test_an_error_ends_an_attempt_with_the_delay_that_follows() -> None:
    change = record_error(
        held(), Retryable(), "reset", actor=Actor.WORKER, owner=W1, epoch=1, now=START + MINUTE
    )
    attempt = ended_attempt(change, START)
    assert attempt is not None
    assert (attempt.outcome, attempt.worker, attempt.epoch) == (AttemptOutcome.ERROR, W1, 1)
    assert (attempt.began_at, attempt.ended_at, attempt.delay_s) == (START, START + MINUTE, 60.0)
    assert (attempt.error_class, attempt.error_message) == ("retryable", "reset")


def test_a_last_attempt_has_no_delay() -> None:
    change = record_error(held(), Final(), "no", actor=Actor.WORKER, owner=W1, epoch=1, now=START)
    attempt = ended_attempt(change, START)
    assert attempt is not None
    assert attempt.delay_s is None


def test_a_lost_worker_and_one_that_gave_back_are_told_apart() -> None:
    lost = ended_attempt(rescue(held(), actor=Actor.SWEEPER, now=START + MINUTE), START)
    back = ended_attempt(release(held(), actor=Actor.WORKER, owner=W1, epoch=1, now=START), START)
    assert lost is not None
    assert back is not None
    assert (lost.outcome, back.outcome) == (AttemptOutcome.LOST, AttemptOutcome.RELEASED)


def test_what_was_not_under_way_ends_no_attempt() -> None:
    assert (
        ended_attempt(cancel(new(), actor=Actor.OPERATOR, now=START, reason="why"), START) is None
    )
    verdict = Verdict(run_id=RunId("r1"), outcome=VerdictOutcome.PASSED)
    done = complete(held(), verdict, actor=Actor.WORKER, owner=W1, epoch=1, now=START)
    assert ended_attempt(done, START) is None


def test_a_release_costs_nothing_and_is_for_the_holder_only() -> None:
    after = release(held(), actor=Actor.WORKER, owner=W1, epoch=1, now=START).after
    assert (after.retry_count, after.rescues, after.next_retry_at) == (0, 0, START)
    with pytest.raises(IllegalTransitionError, match="does not hold its lease"):
        release(held(), actor=Actor.WORKER, owner=WorkerId("w2"), epoch=1, now=START)


def test_the_newest_attempt_is_told_by_the_run_itself() -> None:
    run = held()
    assert newest_attempt(run, W1, START, None).outcome is AttemptOutcome.UNDER_WAY
    failed = evolve(
        run,
        status=RunStatus.FAILED,
        error_message="bad",
        lease_owner=None,
        lease_expires_at=None,
    )
    last = newest_attempt(failed, W1, START, START + MINUTE)
    assert (last.outcome, last.error_message) == (AttemptOutcome.FAILED, "bad")
    with pytest.raises(InvalidValueError, match="is of no attempt of its own"):
        newest_attempt(new(), W1, START, None)
