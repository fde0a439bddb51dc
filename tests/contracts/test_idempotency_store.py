"""What every store of idempotency records must do with a claim: the domain's rules."""

from typing import Any

import pytest
from support.audit_events import create_idempotency_used
from support.idempotency_stores import INVALID_DURATIONS, IdempotencyEnv, claim_in_env

from tileferry.application.ports.idempotency import IdempotencyStore
from tileferry.domain.errors import (
    IdempotencyConflictError,
    IdempotencyInProgressError,
    IdempotencyLostError,
    InvalidValueError,
)
from tileferry.domain.idempotency import IdempotencyRecord, InProgress


def get_lease_end(record: IdempotencyRecord) -> Any:
    assert isinstance(record.state, InProgress)
    return record.state.lease_expires_at


# Claiming


def test_store_implements_port(idempotency_env: IdempotencyEnv) -> None:
    assert isinstance(idempotency_env.store, IdempotencyStore)


def test_new_key_is_unknown(idempotency_env: IdempotencyEnv) -> None:
    assert idempotency_env.store.find("k") is None
    assert idempotency_env.store.clear("k") is False
    assert idempotency_env.store.forget_expired(limit=10) == 0


def test_claim_is_in_progress_and_can_be_found(idempotency_env: IdempotencyEnv) -> None:
    record = claim_in_env(idempotency_env)
    assert (record.key, record.fingerprint, record.epoch) == ("k", "f", 1)
    assert (record.owner, record.expires_at) == ("me", None)
    assert idempotency_env.store.find("k") == record
    assert idempotency_env.another().find("k") == record


def test_claimed_key_is_refused_to_others_with_lease_end(idempotency_env: IdempotencyEnv) -> None:
    record = claim_in_env(idempotency_env)
    with pytest.raises(IdempotencyInProgressError) as refusal:
        claim_in_env(idempotency_env, owner="you", store=idempotency_env.another())
    assert (refusal.value.key, refusal.value.owner) == ("k", "me")
    assert refusal.value.lease_expires_at == get_lease_end(record)
    assert idempotency_env.store.find("k") == record


def test_repeated_claim_by_same_owner_is_idempotent(idempotency_env: IdempotencyEnv) -> None:
    assert (
        claim_in_env(idempotency_env)
        == claim_in_env(idempotency_env)
        == claim_in_env(idempotency_env, store=idempotency_env.another())
    )


def test_keys_are_independent(idempotency_env: IdempotencyEnv) -> None:
    assert (
        claim_in_env(idempotency_env, "a").epoch
        == claim_in_env(idempotency_env, "b", owner="you").epoch
        == 1
    )


def test_expired_lease_is_taken_over_with_next_epoch(idempotency_env: IdempotencyEnv) -> None:
    first = claim_in_env(idempotency_env)
    idempotency_env.pass_time(idempotency_env.lease)
    second = claim_in_env(idempotency_env, owner="you")
    assert (second.epoch, second.owner) == (2, "you")
    assert get_lease_end(second) > get_lease_end(first) - idempotency_env.lease
    idempotency_env.pass_time(idempotency_env.lease)
    assert claim_in_env(idempotency_env, owner="you").epoch == 3


def test_different_payload_is_rejected_in_every_state(idempotency_env: IdempotencyEnv) -> None:
    held = claim_in_env(idempotency_env, "completed")
    idempotency_env.store.complete(held, b"1", keep=None)
    idempotency_env.store.fail(claim_in_env(idempotency_env, "failed"), ValueError("no"), keep=None)
    claim_in_env(idempotency_env, "held")
    idempotency_env.store.release(claim_in_env(idempotency_env, "released"))
    for key in ("held", "released", "completed", "failed"):
        with pytest.raises(IdempotencyConflictError) as refusal:
            claim_in_env(idempotency_env, key, owner="you", fingerprint="g")
        assert refusal.value.key == key
        assert refusal.value.recorded_fingerprint == "f"
        assert refusal.value.offered_fingerprint == "g"


ODD = ["a\x00b", "a\\0b", "\\", "☁ é", "e\u0301", "x" * 20_000, "a.b*c>d", "' OR 1=1 --", " ", "%s"]


def test_any_text_can_be_key_owner_or_fingerprint(idempotency_env: IdempotencyEnv) -> None:
    for odd in ODD:
        record = claim_in_env(idempotency_env, odd, owner=odd, fingerprint=odd)
        assert (record.key, record.owner, record.fingerprint, record.epoch) == (odd, odd, odd, 1)
        done = idempotency_env.store.complete(
            record, b"1", keep=None, event=create_idempotency_used(1, odd)
        )
        assert idempotency_env.store.find(odd) == done
        assert claim_in_env(idempotency_env, odd, fingerprint=odd) == done
        assert idempotency_env.store.find(odd + "x") is None
    assert [idempotency_env.store.clear(odd) for odd in ODD] == [True] * len(ODD)


def test_invalid_lease_duration_is_rejected(idempotency_env: IdempotencyEnv) -> None:
    for lease in INVALID_DURATIONS:
        with pytest.raises(InvalidValueError, match="lease: must be a positive duration"):
            idempotency_env.store.claim("k", fingerprint="f", owner="me", lease=lease)
    assert idempotency_env.store.find("k") is None
    held = claim_in_env(idempotency_env)
    for lease in INVALID_DURATIONS:
        with pytest.raises(InvalidValueError, match="lease: must be a positive duration"):
            idempotency_env.store.renew(held, lease=lease)
    assert idempotency_env.store.find("k") == held


def test_invalid_text_is_rejected(idempotency_env: IdempotencyEnv) -> None:
    no_texts: list[Any] = ["", None, "\ud800"]
    for bad in no_texts:
        for request in ({"key": bad}, {"owner": bad}, {"fingerprint": bad}):
            with pytest.raises(InvalidValueError, match="must be non-empty text"):
                claim_in_env(idempotency_env, **request)
    assert idempotency_env.store.find("k") is None


# Renewing and giving back


def test_lease_can_be_renewed_only_before_it_expires(idempotency_env: IdempotencyEnv) -> None:
    held = claim_in_env(idempotency_env)
    idempotency_env.pass_time(idempotency_env.step)
    renewed = idempotency_env.store.renew(held, lease=idempotency_env.lease)
    assert (renewed.epoch, renewed.owner) == (1, "me")
    idempotency_env.pass_time(2 * idempotency_env.step)  # beyond the first lease
    with pytest.raises(IdempotencyInProgressError):
        claim_in_env(idempotency_env, owner="you")
    idempotency_env.pass_time(idempotency_env.lease)
    with pytest.raises(IdempotencyLostError, match="the lease expired at"):
        idempotency_env.store.renew(held, lease=idempotency_env.lease)


def test_released_claim_is_available_at_once(idempotency_env: IdempotencyEnv) -> None:
    idempotency_env.store.release(claim_in_env(idempotency_env))
    assert idempotency_env.store.find("k") is not None
    assert claim_in_env(idempotency_env, owner="you").epoch == 2
