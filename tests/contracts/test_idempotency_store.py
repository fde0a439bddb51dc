"""What every store of idempotency records must do with a claim: the domain's rules."""

from typing import Any

import pytest
from support.audit_events import used
from support.idempotency_stores import NO_DURATIONS, Kept, claimed

from tileferry.application.ports.idempotency import IdempotencyStore
from tileferry.domain.errors import (
    IdempotencyConflictError,
    IdempotencyInProgressError,
    IdempotencyLostError,
    InvalidValueError,
)
from tileferry.domain.idempotency import IdempotencyRecord, InProgress


def lease_end(record: IdempotencyRecord) -> Any:
    assert isinstance(record.state, InProgress)
    return record.state.lease_expires_at


# Claiming


def test_it_is_a_store(kept: Kept) -> None:
    assert isinstance(kept.store, IdempotencyStore)


def test_nothing_is_known_of_a_new_key(kept: Kept) -> None:
    assert kept.store.find("k") is None
    assert kept.store.clear("k") is False
    assert kept.store.forget_expired(limit=10) == 0


def test_a_claim_is_in_progress_under_a_lease_and_found(kept: Kept) -> None:
    record = claimed(kept)
    assert (record.key, record.fingerprint, record.epoch) == ("k", "f", 1)
    assert (record.owner, record.expires_at) == ("me", None)
    assert kept.store.find("k") == record
    assert kept.another().find("k") == record


def test_a_key_in_use_is_refused_to_others_and_says_until_when(kept: Kept) -> None:
    record = claimed(kept)
    with pytest.raises(IdempotencyInProgressError) as refusal:
        claimed(kept, owner="you", store=kept.another())
    assert (refusal.value.key, refusal.value.owner) == ("k", "me")
    assert refusal.value.lease_expires_at == lease_end(record)
    assert kept.store.find("k") == record


def test_a_claim_that_is_made_again_finds_itself(kept: Kept) -> None:
    assert claimed(kept) == claimed(kept) == claimed(kept, store=kept.another())


def test_keys_do_not_stand_in_each_others_way(kept: Kept) -> None:
    assert claimed(kept, "a").epoch == claimed(kept, "b", owner="you").epoch == 1


def test_a_lease_that_ended_is_taken_over_with_the_next_epoch(kept: Kept) -> None:
    first = claimed(kept)
    kept.pass_time(kept.lease)
    second = claimed(kept, owner="you")
    assert (second.epoch, second.owner) == (2, "you")
    assert lease_end(second) > lease_end(first) - kept.lease
    kept.pass_time(kept.lease)
    assert claimed(kept, owner="you").epoch == 3


def test_another_payload_is_refused_whatever_the_state(kept: Kept) -> None:
    held = claimed(kept, "completed")
    kept.store.complete(held, b"1", keep=None)
    kept.store.fail(claimed(kept, "failed"), ValueError("no"), keep=None)
    claimed(kept, "held")
    kept.store.release(claimed(kept, "released"))
    for key in ("held", "released", "completed", "failed"):
        with pytest.raises(IdempotencyConflictError) as refusal:
            claimed(kept, key, owner="you", fingerprint="g")
        assert refusal.value.key == key
        assert refusal.value.recorded_fingerprint == "f"
        assert refusal.value.offered_fingerprint == "g"


ODD = ["a\x00b", "a\\0b", "\\", "☁ é", "e\u0301", "x" * 20_000, "a.b*c>d", "' OR 1=1 --", " ", "%s"]


def test_anything_may_be_a_key_an_owner_or_a_fingerprint(kept: Kept) -> None:
    for odd in ODD:
        record = claimed(kept, odd, owner=odd, fingerprint=odd)
        assert (record.key, record.owner, record.fingerprint, record.epoch) == (odd, odd, odd, 1)
        done = kept.store.complete(record, b"1", keep=None, event=used(1, odd))
        assert kept.store.find(odd) == done
        assert claimed(kept, odd, fingerprint=odd) == done
        assert kept.store.find(odd + "x") is None
    assert [kept.store.clear(odd) for odd in ODD] == [True] * len(ODD)


def test_a_lease_without_a_sensible_length_is_refused(kept: Kept) -> None:
    for lease in NO_DURATIONS:
        with pytest.raises(InvalidValueError, match="lease: must be a duration"):
            kept.store.claim("k", fingerprint="f", owner="me", lease=lease)
    assert kept.store.find("k") is None
    held = claimed(kept)
    for lease in NO_DURATIONS:
        with pytest.raises(InvalidValueError, match="lease: must be a duration"):
            kept.store.renew(held, lease=lease)
    assert kept.store.find("k") == held


def test_what_is_no_text_is_refused(kept: Kept) -> None:
    no_texts: list[Any] = ["", None, "\ud800"]
    for bad in no_texts:
        for request in ({"key": bad}, {"owner": bad}, {"fingerprint": bad}):
            with pytest.raises(InvalidValueError, match="must be non-empty text"):
                claimed(kept, **request)
    assert kept.store.find("k") is None


# Renewing and giving back


def test_a_lease_is_renewed_before_it_ends_and_not_after(kept: Kept) -> None:
    held = claimed(kept)
    kept.pass_time(kept.step)
    renewed = kept.store.renew(held, lease=kept.lease)
    assert (renewed.epoch, renewed.owner) == (1, "me")
    kept.pass_time(2 * kept.step)  # beyond the first lease
    with pytest.raises(IdempotencyInProgressError):
        claimed(kept, owner="you")
    kept.pass_time(kept.lease)
    with pytest.raises(IdempotencyLostError, match="the lease ran out at"):
        kept.store.renew(held, lease=kept.lease)


def test_a_claim_that_is_given_back_is_the_next_callers_at_once(kept: Kept) -> None:
    kept.store.release(claimed(kept))
    assert kept.store.find("k") is not None
    assert claimed(kept, owner="you").epoch == 2
