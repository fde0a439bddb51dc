"""What every queue of runs must do about errors: retries, gates, tokens, and what is kept."""

import pytest
from support.work_desk import (
    LEASE,
    W1,
    W2,
    Desk,
    all_due,
    broken,
    busy,
    download,
    memory_desk,
    postgres_desk,
)

from tileferry.domain.audit import StateChanged
from tileferry.domain.errors import (
    IllegalTransitionError,
    InvalidValueError,
)
from tileferry.domain.retry import RetryBudget, replay
from tileferry.domain.runs import (
    AttemptOutcome,
    RunStatus,
    WorkerId,
)


@pytest.fixture(params=["memory", "postgres"])
def poor(request: pytest.FixtureRequest) -> Desk:
    """A desk whose sources have tokens for two retries, and earn half a one by a new run."""
    budget = RetryBudget(capacity=2.0, earned_per_attempt=0.5, refill_per_s=0.01)
    if request.param == "memory":
        return memory_desk(budget=budget)
    return postgres_desk(request.getfixturevalue("database"), budget=budget)


# Errors and their retries


def test_spec4_the_retries_of_a_run_wait_longer_and_longer_and_end(desk: Desk) -> None:
    run = desk.submitted()
    delays = []
    for attempt in range(1, 9):
        after = desk.control.process_error(desk.claimed(), broken())
        if after.next_retry_at is None:
            break
        assert after.retry_count == attempt
        delays.append(round((after.next_retry_at - desk.reader.now()).total_seconds()))
        desk.pass_time(delays[-1] + 1)
    assert delays == [60, 120, 240, 480, 960, 1920, 3600]
    known = desk.known(run)
    assert (known.status, known.error_class) == (RunStatus.ERROR, "retryable")
    assert desk.control.get_next_run_to_process(W1, lease=LEASE) is None


def test_spec4_a_final_error_is_not_tried_again(desk: Desk) -> None:
    run = desk.submitted()
    desk.control.process_error(
        desk.claimed(), InvalidValueError(field="bbox", value=1, problem="is none")
    )
    known = desk.known(run)
    assert (known.status, known.error_class, known.next_retry_at, known.retry_count) == (
        RunStatus.ERROR,
        "final",
        None,
        0,
    )


def test_spec4_a_rate_limit_with_a_hint_costs_no_attempt(desk: Desk) -> None:
    run = desk.submitted()
    after = desk.control.process_error(desk.claimed(), busy(100))
    assert after.next_retry_at is not None
    wait_s = (after.next_retry_at - desk.reader.now()).total_seconds()
    assert (after.retry_count, after.error_class) == (0, "rate_limited")
    assert wait_s == pytest.approx(100, abs=2)
    assert desk.known(run) == after


def test_spec4_a_rate_limit_without_a_hint_backs_off(desk: Desk) -> None:
    desk.submitted()
    after = desk.control.process_error(desk.claimed(), busy(None))
    assert after.next_retry_at is not None
    assert after.retry_count == 1
    wait_s = (after.next_retry_at - desk.reader.now()).total_seconds()
    assert wait_s == pytest.approx(60, abs=2)


def test_spec4_a_success_clears_what_the_retries_left(desk: Desk) -> None:
    run = desk.submitted()
    desk.control.process_error(desk.claimed(), broken())
    desk.pass_time(61)
    held = desk.claimed()
    assert held.error_class == "retryable"
    desk.queue.complete([held])
    known = desk.known(run)
    assert known.status is RunStatus.PASSED
    assert (known.retry_count, known.next_retry_at, known.error_class, known.error_message) == (
        0,
        None,
        None,
        None,
    )


# Gates and tokens


def test_a_source_that_asks_for_patience_gets_it_from_all_its_runs_uncharged(desk: Desk) -> None:
    desk.submitted(download("F1"))
    other = desk.submitted(download("F2"))
    elsewhere = desk.submitted(download("F3", source="sat"))
    desk.control.process_error(desk.claimed(), busy(300))
    assert desk.claimed().run_id == elsewhere.run_id
    assert desk.control.get_next_run_to_process(W1, lease=LEASE) is None
    (gate, _), _ = desk.reader.gates()
    assert not gate.is_open(desk.reader.now())
    desk.pass_time(301)
    assert {desk.claimed().run_id, desk.claimed().run_id} >= {other.run_id}
    assert desk.known(other).retry_count == 0


def test_a_gate_never_opens_earlier_than_was_promised(desk: Desk) -> None:
    for flight in ("F1", "F2"):
        desk.submitted(download(flight))
    first, second = desk.queue.claim(W1, limit=2, lease=LEASE)
    desk.control.process_error(first, busy(300))
    desk.control.process_error(second, busy(10))
    desk.pass_time(60)
    assert desk.control.get_next_run_to_process(W1, lease=LEASE) is None


def test_retries_are_paid_from_tokens_and_new_runs_are_not(poor: Desk) -> None:
    for _ in range(5):
        poor.submitted()
    for run in poor.queue.claim(W1, limit=5, lease=LEASE):
        poor.control.process_error(run, broken())
    poor.pass_time(61)
    new = poor.submitted()
    claimed = poor.queue.claim(W1, limit=9, lease=LEASE)
    assert sorted(run.retry_count for run in claimed) == [0, 1, 1]
    assert new.run_id in {run.run_id for run in claimed}
    assert poor.queue.claim(W1, limit=9, lease=LEASE) == []
    poor.pass_time(60)  # with what the new run has earned, enough for one
    assert len(poor.queue.claim(W1, limit=9, lease=LEASE)) == 1
    poor.pass_time(1_000)
    assert len(poor.queue.claim(W1, limit=9, lease=LEASE)) == 2


def test_what_was_rescued_or_asked_for_needs_no_token(poor: Desk) -> None:
    for _ in range(5):
        poor.submitted()
    claimed = poor.queue.claim(W1, limit=5, lease=LEASE)
    for run in claimed[:2]:
        poor.control.process_error(run, broken())
    poor.pass_time(61)
    poor.control.sweep()
    for run in claimed[:2]:
        poor.control.retry_now(run.run_id, reason="the link is back", by="ann")
    assert len(all_due(poor)) == 5


# The operator


def test_an_operator_can_cancel_what_waits_and_not_what_is_under_way(desk: Desk) -> None:
    run = desk.submitted()
    cancelled = desk.control.cancel(run.run_id, reason="wrong area", by="ann")
    assert (cancelled.status, cancelled.error_message) == (RunStatus.ERROR, "cancelled: wrong area")
    under_way = desk.submitted()
    desk.claimed()
    with pytest.raises(IllegalTransitionError, match="would have to be discovered, error"):
        desk.control.cancel(under_way.run_id, reason="stop", by="ann")
    with pytest.raises(InvalidValueError, match="names no run"):
        desk.control.cancel(desk.new_run_id(), reason="stop", by="ann")  # type: ignore[arg-type]


# What is kept


def test_every_attempt_is_kept_with_its_error_its_times_and_its_delay(desk: Desk) -> None:
    run = desk.submitted()
    desk.control.process_error(desk.claimed(), broken("reset"))
    desk.pass_time(61)
    desk.claimed(W2)
    desk.pass_time(61)
    desk.control.sweep()
    desk.control.give_back(desk.claimed(WorkerId("w3")))
    held = desk.claimed()
    (*ended, now) = desk.reader.attempts(run.run_id)
    assert [
        (one.epoch, one.worker, one.outcome, one.error_class, one.delay_s) for one in ended
    ] == [
        (1, "w1", AttemptOutcome.ERROR, "retryable", 60.0),
        (2, "w2", AttemptOutcome.LOST, "retryable", 0.0),
        (3, "w3", AttemptOutcome.RELEASED, "retryable", 0.0),
    ]
    assert ended[0].error_message == "satellite-provider: reset, after 1 attempt"
    assert all(one.ended_at is not None and one.began_at <= one.ended_at for one in ended)
    assert (now.epoch, now.outcome, now.ended_at) == (4, AttemptOutcome.UNDER_WAY, None)
    desk.queue.complete([held])
    last = desk.reader.attempts(run.run_id)[-1]
    assert (last.epoch, last.outcome, last.worker) == (4, AttemptOutcome.PASSED, W1)
    assert last.ended_at is not None


def test_invariant_20_each_decision_on_a_run_can_be_recomputed_from_its_event(desk: Desk) -> None:
    desk.submitted()
    desk.control.process_error(desk.claimed(), broken())
    desk.pass_time(61)
    desk.control.process_error(desk.claimed(), busy(5))
    decided = [
        event
        for event in desk.events()
        if isinstance(event, StateChanged) and event.transition == "record_error"
    ]
    assert len(decided) == 2
    for event in decided:
        assert event.decision_record is not None
        assert replay(event.decision_record) is None


def test_the_audit_tells_who_did_what_and_why(desk: Desk) -> None:
    run = desk.submitted()
    desk.control.process_error(desk.claimed(), broken())
    desk.control.retry_now(run.run_id, reason="the link is back", by="ann@laptop")
    changes = [event for event in desk.events() if isinstance(event, StateChanged)]
    assert [(event.transition, event.actor) for event in changes] == [
        ("submit", "operator"),
        ("record_error", "worker"),
        ("retry_now", "operator"),
    ]
    assert (changes[-1].reason, changes[-1].additional_context) == (
        "the link is back",
        {"by": "ann@laptop"},
    )


def test_ending_runs_and_claiming_the_next_is_one_step(desk: Desk) -> None:
    for _ in range(3):
        desk.submitted()
    first = desk.claimed()
    kept, claimed = desk.queue.exchange([first], W1, limit=5, lease=LEASE)
    assert (list(kept), len(claimed)) == ([first.run_id], 2)
    assert desk.reader.counts() == {RunStatus.PASSED: 1, RunStatus.PROCESSING: 2}
