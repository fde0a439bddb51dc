"""What every store of idempotency records must do with outcomes: keep, refuse, audit, forget."""

from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from support.audit_events import used
from support.idempotency_stores import NO_DURATIONS, Kept, claimed

from tileferry.domain.errors import (
    IdempotencyConflictError,
    IdempotencyLostError,
    InvalidValueError,
)
from tileferry.domain.idempotency import (
    ABANDONED_AFTER,
    Completed,
    FailedForGood,
    IdempotencyRecord,
    InProgress,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# Ending


def test_spec2_a_result_is_given_to_every_later_caller(kept: Kept) -> None:
    done = kept.store.complete(claimed(kept), b'{"a":1}', keep=kept.keep)
    assert isinstance(done.state, Completed)
    assert (done.state.result, done.epoch, done.fingerprint) == (b'{"a":1}', 1, "f")
    assert done.expires_at == done.state.recorded_at + kept.keep
    assert claimed(kept, owner="you") == done
    assert kept.another().find("k") == done


def test_any_bytes_are_a_result(kept: Kept) -> None:
    for number, result in enumerate([b"", b"null", b"\x00\xff", bytes(range(256)) * 1_000]):
        kept.store.complete(claimed(kept, f"{number}"), result, keep=None)
        found = kept.store.find(f"{number}")
        assert found is not None
        assert isinstance(found.state, Completed)
        assert found.state.result == result


def test_a_final_failure_is_given_to_every_later_caller(kept: Kept) -> None:
    failed = kept.store.fail(claimed(kept), ValueError("not\x00 this ☁\n"), keep=kept.keep)
    assert isinstance(failed.state, FailedForGood)
    assert failed.state.error_type == "ValueError"
    assert failed.state.error_message == "not\\x00 this ☁\\n"
    assert failed.expires_at == failed.state.recorded_at + kept.keep
    assert claimed(kept, owner="you") == failed


def test_an_outcome_that_is_kept_for_ever_does_not_expire(kept: Kept) -> None:
    done = kept.store.complete(claimed(kept), b"1", keep=None)
    assert done.expires_at is None
    kept.pass_time(kept.keep)
    assert kept.store.forget_expired(limit=10) == 0
    assert claimed(kept, owner="you").state == kept.store.find("k").state  # type: ignore[union-attr]


def test_an_outcome_can_be_recorded_after_the_lease_while_nobody_took_the_key(kept: Kept) -> None:
    held = claimed(kept)
    kept.pass_time(kept.lease)
    assert isinstance(kept.store.complete(held, b"1", keep=None).state, Completed)


def test_whoever_lost_a_key_changes_nothing(kept: Kept) -> None:
    stale = claimed(kept)
    kept.pass_time(kept.lease)
    mine = claimed(kept, owner="you")
    attempts: list[Callable[[IdempotencyRecord], object]] = [
        lambda held: kept.store.renew(held, lease=kept.lease),
        lambda held: kept.store.complete(held, b"1", keep=None, event=used(1, "k")),
        lambda held: kept.store.fail(held, ValueError(), keep=None, event=used(1, "k")),
        kept.store.release,
    ]
    for attempt in attempts:
        for held in (stale, evolve(mine, epoch=1), evolve(stale, epoch=2), evolve(mine, epoch=3)):
            with pytest.raises(IdempotencyLostError, match="does not hold idempotency key k"):
                attempt(held)
    assert kept.store.find("k") == mine
    assert kept.log is None or list(kept.log.entries()) == []


def test_an_outcome_is_not_replaced(kept: Kept) -> None:
    held = claimed(kept)
    done = kept.store.complete(held, b"1", keep=None)
    for late in (held, done):
        with pytest.raises(IdempotencyLostError, match="the work was finished before"):
            kept.store.complete(late, b"2", keep=None)
        with pytest.raises(IdempotencyLostError, match="the work was finished before"):
            kept.store.fail(late, ValueError("no"), keep=None)
    assert kept.store.find("k") == done


def test_an_outcome_that_cannot_be_kept_is_refused(kept: Kept) -> None:
    held = claimed(kept)
    for keep in NO_DURATIONS:
        with pytest.raises(InvalidValueError, match="keep: must be a duration"):
            kept.store.complete(held, b"1", keep=keep, event=used(1, "k"))
        with pytest.raises(InvalidValueError, match="keep: must be a duration"):
            kept.store.fail(held, ValueError(), keep=keep)
    with pytest.raises(InvalidValueError, match=r"Completed\.result"):
        kept.store.complete(held, "text", keep=None)  # type: ignore[arg-type]  # the point
    assert kept.store.find("k") == held
    assert kept.log is None or list(kept.log.entries()) == []


# Audit


def test_invariant_19_an_outcome_and_its_event_are_one(kept: Kept) -> None:
    assert (kept.store.audit_sink is None) == (kept.log is None)
    done, failed = used(1, "done"), used(2, "failed")
    kept.store.complete(claimed(kept, "done"), b"1", keep=None, event=done)
    kept.store.fail(claimed(kept, "failed"), ValueError(), keep=None, event=failed)
    kept.store.complete(claimed(kept, "silent"), b"1", keep=None)
    if kept.log is not None:
        bodies = [entry.body for entry in kept.log.entries()]
        assert bodies == [done.canonical_bytes(), failed.canonical_bytes()]


def test_invariant_19_an_outcome_whose_event_cannot_be_written_is_not_recorded(kept: Kept) -> None:
    held = claimed(kept)
    unwritable = evolve(used(1, "k"), additional_context={"bad": float("nan")})
    if kept.log is None:  # whoever else gets the event will say that it cannot be written
        done = kept.store.complete(held, b"1", keep=None, event=unwritable)
        assert isinstance(done.state, Completed)
        return
    with pytest.raises(InvalidValueError, match="additional_context"):
        kept.store.complete(held, b"1", keep=None, event=unwritable)
    assert kept.store.find("k") == held
    assert list(kept.log.entries()) == []


# Forgetting


def test_an_expired_outcome_is_not_known_any_more(kept: Kept) -> None:
    kept.store.complete(claimed(kept), b"1", keep=kept.keep)
    kept.pass_time(5 * kept.step)
    assert kept.store.find("k") is not None
    kept.pass_time(kept.keep)
    assert kept.store.find("k") is None
    assert kept.store.clear("k") is False


def test_an_expired_key_may_be_claimed_with_another_payload(kept: Kept) -> None:
    kept.store.fail(claimed(kept), ValueError(), keep=kept.keep)
    kept.pass_time(kept.keep)
    again = claimed(kept, fingerprint="g", owner="you")
    assert (again.fingerprint, again.owner, again.expires_at) == ("g", "you", None)
    assert kept.store.find("k") == again


def test_a_cleared_key_is_new_and_its_holder_has_lost_it(kept: Kept) -> None:
    held = claimed(kept)
    assert kept.store.clear("k") is True
    assert kept.store.find("k") is None
    with pytest.raises(IdempotencyLostError, match="the key was cleared"):
        kept.store.complete(held, b"1", keep=None)
    assert claimed(kept, owner="you", fingerprint="g").owner == "you"
    with pytest.raises(IdempotencyLostError):
        kept.store.complete(held, b"1", keep=None)


def test_a_recorded_result_can_be_cleared(kept: Kept) -> None:
    kept.store.complete(claimed(kept), b"1", keep=None)
    assert kept.another().clear("k") is True
    assert kept.store.clear("k") is False
    assert isinstance(claimed(kept, fingerprint="g").state, InProgress)


def test_expired_records_are_removed_a_few_at_a_time_and_no_others(kept: Kept) -> None:
    for number in range(5):
        kept.store.complete(claimed(kept, f"old {number}"), b"1", keep=kept.keep)
    claimed(kept, "held")
    kept.store.complete(claimed(kept, "for ever"), b"1", keep=None)
    kept.pass_time(kept.keep)
    kept.store.complete(claimed(kept, "new"), b"1", keep=kept.keep)
    assert [kept.store.forget_expired(limit=3) for _ in range(3)] == [3, 2, 0]
    assert all(kept.store.find(key) is not None for key in ("held", "for ever", "new"))


def test_claims_that_nobody_came_back_to_are_removed_at_last(kept: Kept) -> None:
    abandoned = claimed(kept, "abandoned")
    kept.store.release(claimed(kept, "given back"))
    kept.pass_time(kept.lease + ABANDONED_AFTER - kept.step)
    claimed(kept, "held")
    assert kept.store.forget_expired(limit=10) == 1  # the one given back had no lease left
    assert kept.store.find("given back") is None
    assert kept.store.find("abandoned") is not None
    with pytest.raises(IdempotencyConflictError):
        claimed(kept, "abandoned", owner="you", fingerprint="g")
    kept.pass_time(kept.step)
    assert [kept.store.forget_expired(limit=10) for _ in range(2)] == [1, 0]
    assert kept.store.find("abandoned") is None
    assert kept.store.find("held") is not None
    with pytest.raises(IdempotencyLostError, match="the key was cleared"):
        kept.store.complete(abandoned, b"1", keep=None)
    again = claimed(kept, "abandoned", owner="you", fingerprint="g")
    assert (again.owner, again.fingerprint, again.epoch) == ("you", "g", 1)
