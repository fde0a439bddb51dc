"""What every queue of runs must do about errors: retries, gates, tokens, and what is kept."""

import pytest
from attrs import evolve
from support.control_plane import (
    LEASE,
    W1,
    W2,
    ControlPlane,
    download_work,
    rate_limited_error,
    unreachable_error,
)

from tileferry.domain.audit import (
    StateChanged,
)
from tileferry.domain.errors import (
    IllegalTransitionError,
    InvalidValueError,
    LeaseLostError,
    NotFoundError,
)
from tileferry.domain.retry import (
    replay_decision,
)
from tileferry.domain.runs import (
    AttemptOutcome,
    RunProgress,
    RunStatus,
    WorkerId,
)

# Errors and their retries


def test_spec4_retries_back_off_and_end(control_plane: ControlPlane) -> None:
    run = control_plane.submit_run()
    delays = []
    for attempt in range(1, 9):
        after = control_plane.control.process_error(control_plane.claim_run(), unreachable_error())
        if after.next_retry_at is None:
            break
        assert after.retry_count == attempt
        delays.append(round((after.next_retry_at - control_plane.reader.now()).total_seconds()))
        control_plane.pass_time(delays[-1] + 1)
    assert delays == [60, 120, 240, 480, 960, 1920, 3600]
    known = control_plane.get_run(run)
    assert (known.status, known.error_class) == (RunStatus.ERROR, "retryable")
    assert control_plane.control.get_next_run_to_process(W1, lease=LEASE) is None


def test_spec4_final_error_is_not_retried(control_plane: ControlPlane) -> None:
    run = control_plane.submit_run()
    control_plane.control.process_error(
        control_plane.claim_run(), InvalidValueError(field="bbox", value=1, problem="is none")
    )
    known = control_plane.get_run(run)
    assert (known.status, known.error_class, known.next_retry_at, known.retry_count) == (
        RunStatus.ERROR,
        "final",
        None,
        0,
    )


def test_spec4_rate_limit_with_retry_after_is_not_charged(control_plane: ControlPlane) -> None:
    run = control_plane.submit_run()
    after = control_plane.control.process_error(control_plane.claim_run(), rate_limited_error(100))
    assert after.next_retry_at is not None
    wait_s = (after.next_retry_at - control_plane.reader.now()).total_seconds()
    assert (after.retry_count, after.error_class) == (0, "rate_limited")
    assert wait_s == pytest.approx(100, abs=2)
    assert control_plane.get_run(run) == after


def test_spec4_rate_limit_without_retry_after_backs_off(control_plane: ControlPlane) -> None:
    control_plane.submit_run()
    after = control_plane.control.process_error(control_plane.claim_run(), rate_limited_error(None))
    assert after.next_retry_at is not None
    assert after.retry_count == 1
    wait_s = (after.next_retry_at - control_plane.reader.now()).total_seconds()
    assert wait_s == pytest.approx(60, abs=2)


def test_spec4_success_clears_retry_state(control_plane: ControlPlane) -> None:
    run = control_plane.submit_run()
    control_plane.control.process_error(control_plane.claim_run(), unreachable_error())
    control_plane.pass_time(61)
    held = control_plane.claim_run()
    assert held.error_class == "retryable"
    control_plane.queue.complete([held])
    known = control_plane.get_run(run)
    assert known.status is RunStatus.PASSED
    assert (known.retry_count, known.next_retry_at, known.error_class, known.error_message) == (
        0,
        None,
        None,
        None,
    )


# Gates and tokens


def test_rate_limited_source_delays_all_its_runs_without_charge(
    control_plane: ControlPlane,
) -> None:
    control_plane.submit_run(download_work("F1"))
    other = control_plane.submit_run(download_work("F2"))
    elsewhere = control_plane.submit_run(download_work("F3", source="sat"))
    control_plane.control.process_error(control_plane.claim_run(), rate_limited_error(300))
    assert control_plane.claim_run().run_id == elsewhere.run_id
    assert control_plane.control.get_next_run_to_process(W1, lease=LEASE) is None
    (gate, _), _ = control_plane.reader.list_gates()
    assert not gate.is_open(control_plane.reader.now())
    control_plane.pass_time(301)
    assert {control_plane.claim_run().run_id, control_plane.claim_run().run_id} >= {other.run_id}
    assert control_plane.get_run(other).retry_count == 0


def test_shorter_wait_does_not_open_gate_earlier(control_plane: ControlPlane) -> None:
    for flight in ("F1", "F2"):
        control_plane.submit_run(download_work(flight))
    first, second = control_plane.queue.claim(W1, limit=2, lease=LEASE)
    control_plane.control.process_error(first, rate_limited_error(300))
    control_plane.control.process_error(second, rate_limited_error(10))
    control_plane.pass_time(60)
    assert control_plane.control.get_next_run_to_process(W1, lease=LEASE) is None


# Progress


def test_progress_is_reported_with_the_lease_and_ends_with_the_attempt(
    control_plane: ControlPlane,
) -> None:
    for _ in range(2):
        control_plane.submit_run()
    held = control_plane.queue.claim(W1, limit=2, lease=LEASE)
    ids = [run.run_id for run in held]
    assert control_plane.reader.get_progress(ids) == {}
    progress = RunProgress(
        tiles_done=12, tiles_total=40, tiles_before=2, size_bytes=9, elapsed_s=5, waiting="rain"
    )
    control_plane.queue.renew(held, lease=LEASE, progress={ids[0]: progress})
    assert control_plane.reader.get_progress(ids) == {ids[0]: progress}
    control_plane.queue.renew(held, lease=LEASE)
    assert control_plane.reader.get_progress(ids) == {ids[0]: progress}
    stale = evolve(held[1], lease_epoch=9)
    control_plane.queue.renew([stale], lease=LEASE, progress={ids[1]: progress})
    assert control_plane.reader.get_progress(ids[1:]) == {}
    control_plane.control.process_error(held[0], unreachable_error())
    assert control_plane.reader.get_progress(ids) == {}
    control_plane.queue.renew(held[1:], lease=LEASE, progress={ids[1]: progress})
    control_plane.queue.complete(held[1:])
    assert control_plane.reader.get_progress(ids) == {}


# The operator


def test_operator_can_cancel_runs_that_have_not_ended(control_plane: ControlPlane) -> None:
    run = control_plane.submit_run()
    cancelled = control_plane.control.cancel(run.run_id, reason="wrong area", by="ann")
    assert (cancelled.status, cancelled.error_message) == (RunStatus.ERROR, "cancelled: wrong area")
    passed = control_plane.submit_run()
    control_plane.queue.complete([control_plane.claim_run()])
    with pytest.raises(IllegalTransitionError, match="would have to be discovered, processing"):
        control_plane.control.cancel(passed.run_id, reason="stop", by="ann")
    with pytest.raises(NotFoundError, match=r"run .* not found"):
        control_plane.control.cancel(control_plane.new_run_id(), reason="stop", by="ann")  # type: ignore[arg-type]


def test_invariant_12_cancelled_run_is_fenced_from_its_worker(control_plane: ControlPlane) -> None:
    run = control_plane.submit_run()
    other = control_plane.submit_run()
    held = control_plane.queue.claim(W1, limit=2, lease=LEASE)
    control_plane.control.cancel(run.run_id, reason="wrong area", by="ann")
    assert control_plane.queue.find_cancelled(held) == {run.run_id}
    assert control_plane.queue.renew(held, lease=LEASE) == [other.run_id]
    assert control_plane.queue.complete(held[:1]) == []
    with pytest.raises(LeaseLostError):
        control_plane.control.process_error(held[0], unreachable_error())
    with pytest.raises(LeaseLostError):
        control_plane.control.release_run(held[0])
    known = control_plane.get_run(run)
    assert (known.status, known.error_message) == (RunStatus.ERROR, "cancelled: wrong area")
    (attempt,) = control_plane.reader.list_attempts(run.run_id)
    assert (attempt.outcome, attempt.worker) == (AttemptOutcome.CANCELLED, W1)
    control_plane.control.retry_now(run.run_id, reason="right after all", by="ann")
    again = control_plane.claim_run(W2)
    assert control_plane.queue.find_cancelled([again]) == set()
    assert control_plane.queue.find_cancelled(held) == {run.run_id}  # of the older claim only


# What is kept


def test_attempts_are_recorded_with_error_times_and_delay(control_plane: ControlPlane) -> None:
    run = control_plane.submit_run()
    control_plane.control.process_error(control_plane.claim_run(), unreachable_error("reset"))
    control_plane.pass_time(61)
    control_plane.claim_run(W2)
    control_plane.pass_time(61)
    control_plane.control.sweep()
    control_plane.control.release_run(control_plane.claim_run(WorkerId("w3")))
    held = control_plane.claim_run()
    (*ended, now) = control_plane.reader.list_attempts(run.run_id)
    assert [
        (one.epoch, one.worker, one.outcome, one.error_class, one.delay_s) for one in ended
    ] == [
        (1, "w1", AttemptOutcome.ERROR, "retryable", 60.0),
        (2, "w2", AttemptOutcome.LOST, "retryable", 0.0),
        (3, "w3", AttemptOutcome.RELEASED, None, 0.0),
    ]
    assert ended[0].error_message == "provider: reset, after 1 attempt"
    assert all(one.ended_at is not None and one.began_at <= one.ended_at for one in ended)
    assert (now.epoch, now.outcome, now.ended_at) == (4, AttemptOutcome.UNDER_WAY, None)
    control_plane.queue.complete([held])
    last = control_plane.reader.list_attempts(run.run_id)[-1]
    assert (last.epoch, last.outcome, last.worker) == (4, AttemptOutcome.PASSED, W1)
    assert last.ended_at is not None


def test_invariant_20_run_decisions_replay_from_their_events(control_plane: ControlPlane) -> None:
    control_plane.submit_run()
    control_plane.control.process_error(control_plane.claim_run(), unreachable_error())
    control_plane.pass_time(61)
    control_plane.control.process_error(control_plane.claim_run(), rate_limited_error(5))
    decided = [
        event
        for event in control_plane.events()
        if isinstance(event, StateChanged) and event.transition == "record_error"
    ]
    assert len(decided) == 2
    for event in decided:
        assert event.decision_record is not None
        assert replay_decision(event.decision_record) is None


def test_audit_records_actor_and_reason(control_plane: ControlPlane) -> None:
    run = control_plane.submit_run()
    control_plane.control.process_error(control_plane.claim_run(), unreachable_error())
    control_plane.control.retry_now(run.run_id, reason="the link is back", by="ann@laptop")
    changes = [event for event in control_plane.events() if isinstance(event, StateChanged)]
    assert [(event.transition, event.actor) for event in changes] == [
        ("submit", "operator"),
        ("record_error", "worker"),
        ("retry_now", "operator"),
    ]
    assert (changes[-1].reason, changes[-1].additional_context) == (
        "the link is back",
        {"by": "ann@laptop"},
    )


def test_exchange_completes_and_claims_in_one_step(control_plane: ControlPlane) -> None:
    for _ in range(3):
        control_plane.submit_run()
    first = control_plane.claim_run()
    kept, claimed = control_plane.queue.exchange([first], W1, limit=5, lease=LEASE)
    assert (list(kept), len(claimed)) == ([first.run_id], 2)
    assert control_plane.reader.count_runs() == {RunStatus.PASSED: 1, RunStatus.PROCESSING: 2}
