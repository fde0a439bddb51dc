"""What every store of idempotency records must do with outcomes: keep, refuse, audit, forget."""

from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from support.audit_events import create_idempotency_used
from support.idempotency_stores import INVALID_DURATIONS, IdempotencyEnv, claim_in_env

from tileferry.domain.errors import (
    IdempotencyConflictError,
    IdempotencyLostError,
    InvalidValueError,
)
from tileferry.domain.idempotency import (
    ABANDONED_AFTER,
    Completed,
    IdempotencyRecord,
    InProgress,
    PermanentFailure,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# Ending


def test_spec2_result_is_returned_to_every_later_caller(idempotency_env: IdempotencyEnv) -> None:
    done = idempotency_env.store.complete(
        claim_in_env(idempotency_env), b'{"a":1}', keep=idempotency_env.keep
    )
    assert isinstance(done.state, Completed)
    assert (done.state.result, done.epoch, done.fingerprint) == (b'{"a":1}', 1, "f")
    assert done.expires_at == done.state.recorded_at + idempotency_env.keep
    assert claim_in_env(idempotency_env, owner="you") == done
    assert idempotency_env.another().find("k") == done


def test_any_bytes_can_be_a_result(idempotency_env: IdempotencyEnv) -> None:
    for number, result in enumerate([b"", b"null", b"\x00\xff", bytes(range(256)) * 1_000]):
        idempotency_env.store.complete(
            claim_in_env(idempotency_env, f"{number}"), result, keep=None
        )
        found = idempotency_env.store.find(f"{number}")
        assert found is not None
        assert isinstance(found.state, Completed)
        assert found.state.result == result


def test_final_failure_is_returned_to_every_later_caller(idempotency_env: IdempotencyEnv) -> None:
    failed = idempotency_env.store.fail(
        claim_in_env(idempotency_env), ValueError("not\x00 this ☁\n"), keep=idempotency_env.keep
    )
    assert isinstance(failed.state, PermanentFailure)
    assert failed.state.error_type == "ValueError"
    assert failed.state.error_message == "not\\x00 this ☁\\n"
    assert failed.expires_at == failed.state.recorded_at + idempotency_env.keep
    assert claim_in_env(idempotency_env, owner="you") == failed


def test_outcome_without_expiry_is_kept_forever(idempotency_env: IdempotencyEnv) -> None:
    done = idempotency_env.store.complete(claim_in_env(idempotency_env), b"1", keep=None)
    assert done.expires_at is None
    idempotency_env.pass_time(idempotency_env.keep)
    assert idempotency_env.store.forget_expired(limit=10) == 0
    assert claim_in_env(idempotency_env, owner="you").state == idempotency_env.store.find("k").state  # type: ignore[union-attr]


def test_outcome_can_be_recorded_after_lease_if_key_is_unclaimed(
    idempotency_env: IdempotencyEnv,
) -> None:
    held = claim_in_env(idempotency_env)
    idempotency_env.pass_time(idempotency_env.lease)
    assert isinstance(idempotency_env.store.complete(held, b"1", keep=None).state, Completed)


def test_stale_holder_changes_nothing(idempotency_env: IdempotencyEnv) -> None:
    stale = claim_in_env(idempotency_env)
    idempotency_env.pass_time(idempotency_env.lease)
    mine = claim_in_env(idempotency_env, owner="you")
    attempts: list[Callable[[IdempotencyRecord], object]] = [
        lambda held: idempotency_env.store.renew(held, lease=idempotency_env.lease),
        lambda held: idempotency_env.store.complete(
            held, b"1", keep=None, event=create_idempotency_used(1, "k")
        ),
        lambda held: idempotency_env.store.fail(
            held, ValueError(), keep=None, event=create_idempotency_used(1, "k")
        ),
        idempotency_env.store.release,
    ]
    for attempt in attempts:
        for held in (stale, evolve(mine, epoch=1), evolve(stale, epoch=2), evolve(mine, epoch=3)):
            with pytest.raises(IdempotencyLostError, match="does not hold idempotency key k"):
                attempt(held)
    assert idempotency_env.store.find("k") == mine
    assert idempotency_env.log is None or list(idempotency_env.log.iter_entries()) == []


def test_recorded_outcome_is_not_replaced(idempotency_env: IdempotencyEnv) -> None:
    held = claim_in_env(idempotency_env)
    done = idempotency_env.store.complete(held, b"1", keep=None)
    for late in (held, done):
        with pytest.raises(IdempotencyLostError, match="the work is already finished"):
            idempotency_env.store.complete(late, b"2", keep=None)
        with pytest.raises(IdempotencyLostError, match="the work is already finished"):
            idempotency_env.store.fail(late, ValueError("no"), keep=None)
    assert idempotency_env.store.find("k") == done


def test_invalid_outcome_or_duration_is_rejected(idempotency_env: IdempotencyEnv) -> None:
    held = claim_in_env(idempotency_env)
    for keep in INVALID_DURATIONS:
        with pytest.raises(InvalidValueError, match="keep: must be a positive duration"):
            idempotency_env.store.complete(
                held, b"1", keep=keep, event=create_idempotency_used(1, "k")
            )
        with pytest.raises(InvalidValueError, match="keep: must be a positive duration"):
            idempotency_env.store.fail(held, ValueError(), keep=keep)
    with pytest.raises(InvalidValueError, match=r"Completed\.result"):
        idempotency_env.store.complete(held, "text", keep=None)  # type: ignore[arg-type]  # the point
    assert idempotency_env.store.find("k") == held
    assert idempotency_env.log is None or list(idempotency_env.log.iter_entries()) == []


# Audit


def test_invariant_19_outcome_and_event_are_recorded_together(
    idempotency_env: IdempotencyEnv,
) -> None:
    assert (idempotency_env.store.audit_sink is None) == (idempotency_env.log is None)
    done, failed = create_idempotency_used(1, "done"), create_idempotency_used(2, "failed")
    idempotency_env.store.complete(
        claim_in_env(idempotency_env, "done"), b"1", keep=None, event=done
    )
    idempotency_env.store.fail(
        claim_in_env(idempotency_env, "failed"), ValueError(), keep=None, event=failed
    )
    idempotency_env.store.complete(claim_in_env(idempotency_env, "silent"), b"1", keep=None)
    if idempotency_env.log is not None:
        bodies = [entry.body for entry in idempotency_env.log.iter_entries()]
        assert bodies == [done.canonical_bytes(), failed.canonical_bytes()]


def test_invariant_19_outcome_is_not_recorded_if_event_cannot_be_written(
    idempotency_env: IdempotencyEnv,
) -> None:
    held = claim_in_env(idempotency_env)
    unwritable = evolve(create_idempotency_used(1, "k"), additional_context={"bad": float("nan")})
    if (
        idempotency_env.log is None
    ):  # whoever else gets the event will say that it cannot be written
        done = idempotency_env.store.complete(held, b"1", keep=None, event=unwritable)
        assert isinstance(done.state, Completed)
        return
    with pytest.raises(InvalidValueError, match="additional_context"):
        idempotency_env.store.complete(held, b"1", keep=None, event=unwritable)
    assert idempotency_env.store.find("k") == held
    assert list(idempotency_env.log.iter_entries()) == []


# Forgetting


def test_expired_outcome_is_not_found(idempotency_env: IdempotencyEnv) -> None:
    idempotency_env.store.complete(claim_in_env(idempotency_env), b"1", keep=idempotency_env.keep)
    idempotency_env.pass_time(5 * idempotency_env.step)
    assert idempotency_env.store.find("k") is not None
    idempotency_env.pass_time(idempotency_env.keep)
    assert idempotency_env.store.find("k") is None
    assert idempotency_env.store.clear("k") is False


def test_expired_key_can_be_claimed_with_different_payload(idempotency_env: IdempotencyEnv) -> None:
    idempotency_env.store.fail(
        claim_in_env(idempotency_env), ValueError(), keep=idempotency_env.keep
    )
    idempotency_env.pass_time(idempotency_env.keep)
    again = claim_in_env(idempotency_env, fingerprint="g", owner="you")
    assert (again.fingerprint, again.owner, again.expires_at) == ("g", "you", None)
    assert idempotency_env.store.find("k") == again


def test_cleared_key_is_free_and_its_holder_loses_it(idempotency_env: IdempotencyEnv) -> None:
    held = claim_in_env(idempotency_env)
    assert idempotency_env.store.clear("k") is True
    assert idempotency_env.store.find("k") is None
    with pytest.raises(IdempotencyLostError, match="the key was cleared"):
        idempotency_env.store.complete(held, b"1", keep=None)
    assert claim_in_env(idempotency_env, owner="you", fingerprint="g").owner == "you"
    with pytest.raises(IdempotencyLostError):
        idempotency_env.store.complete(held, b"1", keep=None)


def test_recorded_result_can_be_cleared(idempotency_env: IdempotencyEnv) -> None:
    idempotency_env.store.complete(claim_in_env(idempotency_env), b"1", keep=None)
    assert idempotency_env.another().clear("k") is True
    assert idempotency_env.store.clear("k") is False
    assert isinstance(claim_in_env(idempotency_env, fingerprint="g").state, InProgress)


def test_only_expired_records_are_removed_up_to_limit(idempotency_env: IdempotencyEnv) -> None:
    for number in range(5):
        idempotency_env.store.complete(
            claim_in_env(idempotency_env, f"old {number}"), b"1", keep=idempotency_env.keep
        )
    claim_in_env(idempotency_env, "held")
    idempotency_env.store.complete(claim_in_env(idempotency_env, "for ever"), b"1", keep=None)
    idempotency_env.pass_time(idempotency_env.keep)
    idempotency_env.store.complete(
        claim_in_env(idempotency_env, "new"), b"1", keep=idempotency_env.keep
    )
    assert [idempotency_env.store.forget_expired(limit=3) for _ in range(3)] == [3, 2, 0]
    assert all(idempotency_env.store.find(key) is not None for key in ("held", "for ever", "new"))


def test_abandoned_claims_are_eventually_removed(idempotency_env: IdempotencyEnv) -> None:
    abandoned = claim_in_env(idempotency_env, "abandoned")
    idempotency_env.store.release(claim_in_env(idempotency_env, "given back"))
    idempotency_env.pass_time(idempotency_env.lease + ABANDONED_AFTER - idempotency_env.step)
    claim_in_env(idempotency_env, "held")
    assert (
        idempotency_env.store.forget_expired(limit=10) == 1
    )  # the one given back had no lease left
    assert idempotency_env.store.find("given back") is None
    assert idempotency_env.store.find("abandoned") is not None
    with pytest.raises(IdempotencyConflictError):
        claim_in_env(idempotency_env, "abandoned", owner="you", fingerprint="g")
    idempotency_env.pass_time(idempotency_env.step)
    assert [idempotency_env.store.forget_expired(limit=10) for _ in range(2)] == [1, 0]
    assert idempotency_env.store.find("abandoned") is None
    assert idempotency_env.store.find("held") is not None
    with pytest.raises(IdempotencyLostError, match="the key was cleared"):
        idempotency_env.store.complete(abandoned, b"1", keep=None)
    again = claim_in_env(idempotency_env, "abandoned", owner="you", fingerprint="g")
    assert (again.owner, again.fingerprint, again.epoch) == ("you", "g", 1)
