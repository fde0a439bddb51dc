"""Keys, fingerprints, and the life of a record."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.strategies import json_values

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import (
    IdempotencyConflictError,
    IdempotencyInProgressError,
    IdempotencyLostError,
    InvalidValueError,
    MisuseError,
)
from tileferry.domain.idempotency import (
    ABANDONED_AFTER,
    Completed,
    IdempotencyRecord,
    InProgress,
    PermanentFailure,
    claim,
    compute_payload_fingerprint,
    require_record,
)
from tileferry.domain.retry import compute_idempotency_key

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
LEASE = timedelta(seconds=30)
KEEP = timedelta(hours=24)
SECOND = timedelta(seconds=1)

params = st.dictionaries(st.text(max_size=6), json_values, max_size=4)


# Keys


def test_spec2_key_example_matches_first_release() -> None:
    key = compute_idempotency_key(
        operation="kill_switch_update",
        tenant_id="tenant-123",
        correlation_id="corr-456",
        additional_params={"switch_name": "all_execution"},
    )
    assert key == "fb1f95b5efe4a18f904c2e2beb82dd219bffe04f8ede1e4b4cb80b289833f358"


def test_spec2_equal_parameters_give_same_key() -> None:
    one = compute_idempotency_key("op", "t", "c", {"a": 1, "b": {"x": 1.0, "y": [1, 2]}})
    two = compute_idempotency_key("op", "t", "c", {"b": {"y": (1, 2), "x": 1}, "a": 1})
    assert one == two


def test_spec2_absent_and_empty_parameters_give_same_key() -> None:
    assert compute_idempotency_key("op") == compute_idempotency_key("op", "", "", {})


def test_key_depends_on_each_argument_position() -> None:
    keys = {
        compute_idempotency_key("a"),
        compute_idempotency_key("b"),
        compute_idempotency_key("a", "x"),
        compute_idempotency_key("a", None, "x"),
        compute_idempotency_key("a", None, None, {"x": ""}),
        compute_idempotency_key("a", None, None, {"x": None}),
        compute_idempotency_key("a", None, None, {"x": True}),
        compute_idempotency_key("a", None, None, {"x": 1}),
        compute_idempotency_key("a", None, None, {"x": "1"}),
    }
    assert len(keys) == 9


def test_invalid_arguments_are_rejected_by_name() -> None:
    for operation in ("", None, 5, ["x"], "\ud800"):
        with pytest.raises(InvalidValueError, match="operation: must be non-empty text"):
            compute_idempotency_key(operation)  # type: ignore[arg-type]  # the point
    with pytest.raises(InvalidValueError, match="tenant_id: must be text, or not given"):
        compute_idempotency_key("op", 0)  # type: ignore[arg-type]  # the point
    with pytest.raises(InvalidValueError, match="correlation_id: must be text, or not given"):
        compute_idempotency_key("op", "t", [])  # type: ignore[arg-type]  # the point
    with pytest.raises(InvalidValueError, match="additional_params: must be a mapping"):
        compute_idempotency_key("op", "t", "c", [])  # type: ignore[arg-type]  # the point
    with pytest.raises(InvalidValueError, match=r"key\.additional_params\.x: must be a finite"):
        compute_idempotency_key("op", None, None, {"x": float("nan")})


@given(params, params)
def test_only_equal_parameters_share_key(
    left: dict[str, JsonValue], right: dict[str, JsonValue]
) -> None:
    key = compute_idempotency_key("op", None, None, left)
    assert key == compute_idempotency_key("op", None, None, dict(reversed(left.items())))
    if left != right:
        assert key != compute_idempotency_key("op", None, None, right)


def test_fingerprints_distinguish_payloads() -> None:
    payloads: list[JsonValue | bytes]
    payloads = [b"", b"{}", {}, [], "", None, {"a": 1}, {"a": 2}, b'{"a":1}']
    prints = {compute_payload_fingerprint(payload) for payload in payloads}
    assert len(prints) == 9
    assert compute_payload_fingerprint({"a": 1, "b": 2}) == compute_payload_fingerprint(
        {"b": 2, "a": 1.0}
    )
    assert (
        compute_payload_fingerprint(b"tile")
        == "8c58f789a7489ef307d12810db94867e8d56cff2bf519d36e07994e5322dacaf"
    )
    assert compute_payload_fingerprint({"a": 1}) != compute_idempotency_key("a")
    with pytest.raises(InvalidValueError, match=r"payload\.x"):
        compute_payload_fingerprint({"x": float("inf")})


# Records


def claim_key(existing: IdempotencyRecord | None = None, **changes: Any) -> IdempotencyRecord:
    request: dict[str, Any] = {
        "key": "k",
        "fingerprint": "f",
        "owner": "me",
        "now": NOW,
        "lease": LEASE,
    }
    return claim(existing, **{**request, **changes})


def test_first_claim_is_in_progress_with_lease() -> None:
    assert claim_key() == IdempotencyRecord(
        key="k",
        fingerprint="f",
        epoch=1,
        state=InProgress(owner="me", lease_expires_at=NOW + LEASE),
        expires_at=None,
    )


def test_key_in_progress_is_rejected_for_other_owner() -> None:
    with pytest.raises(IdempotencyInProgressError) as refusal:
        claim_key(claim_key(), owner="you", now=NOW + LEASE - SECOND)
    assert refusal.value.key == "k"
    assert refusal.value.owner == "me"
    assert refusal.value.lease_expires_at == NOW + LEASE


def test_record_has_owner_and_cleared_record_is_lost() -> None:
    mine = claim_key()
    done = mine.complete("me", 1, b"1", now=NOW, keep=None)
    assert (mine.owner, done.owner) == ("me", "nobody")
    assert require_record(done, mine) is done
    with pytest.raises(IdempotencyLostError, match="the key was cleared"):
        require_record(None, mine)


def test_repeated_claim_by_owner_is_idempotent() -> None:
    mine = claim_key()
    assert claim_key(mine, now=NOW + LEASE - SECOND) is mine


def test_expired_lease_is_taken_over_with_new_epoch() -> None:
    later = NOW + LEASE
    taken = claim_key(claim_key(), owner="you", now=later)
    assert taken == evolve(
        claim_key(), epoch=2, state=InProgress(owner="you", lease_expires_at=later + LEASE)
    )


def test_different_payload_under_same_key_is_rejected_in_every_state() -> None:
    mine = claim_key()
    states = [
        mine,
        mine.complete("me", 1, b"1", now=NOW, keep=None),
        mine.fail("me", 1, ValueError("no"), now=NOW, keep=None),
    ]
    for record in states:
        with pytest.raises(IdempotencyConflictError) as refusal:
            claim_key(record, fingerprint="other", now=NOW + SECOND)
        assert refusal.value.key == "k"
        assert refusal.value.recorded_fingerprint == "f"
        assert refusal.value.offered_fingerprint == "other"


def test_spec2_claim_returns_completed_record_unchanged() -> None:
    done = claim_key().complete("me", 1, b"null", now=NOW + SECOND, keep=KEEP)
    assert done == evolve(
        claim_key(),
        state=Completed(result=b"null", recorded_at=NOW + SECOND),
        expires_at=NOW + SECOND + KEEP,
    )
    assert claim_key(done, owner="you", now=NOW + LEASE * 2) is done


def test_claim_returns_final_failure_unchanged() -> None:
    failed = claim_key().fail("me", 1, ValueError("no"), now=NOW, keep=None)
    assert failed.state == PermanentFailure(
        error_type="ValueError", error_message="no", recorded_at=NOW
    )
    assert failed.expires_at is None
    assert claim_key(failed, owner="you", now=NOW + LEASE * 2) is failed


def test_claims_are_purged_after_lease_but_outcomes_are_kept() -> None:
    end = NOW + LEASE + ABANDONED_AFTER
    assert claim_key().removable_at == end
    assert not claim_key().is_removable(end - SECOND)
    assert claim_key().is_removable(end)
    assert claim_key().release("me", 1, now=NOW).is_removable(NOW + ABANDONED_AFTER)
    for_ever = claim_key().complete("me", 1, b"1", now=NOW, keep=None)
    assert (for_ever.removable_at, for_ever.is_removable(end)) == (None, False)
    done = claim_key().complete("me", 1, b"1", now=NOW, keep=KEEP)
    assert not done.is_removable(NOW + KEEP - SECOND)
    assert done.is_removable(NOW + KEEP)


def test_claim_of_expired_record_starts_over_with_next_epoch() -> None:
    done = claim_key().complete("me", 1, b"1", now=NOW, keep=KEEP)
    assert not done.is_expired(NOW + KEEP - SECOND)
    assert done.is_expired(NOW + KEEP)
    assert not claim_key().is_expired(NOW + KEEP * 1000)
    again = claim_key(done, owner="you", fingerprint="other", now=NOW + KEEP)
    assert again == IdempotencyRecord(
        key="k",
        fingerprint="other",
        epoch=2,
        state=InProgress(owner="you", lease_expires_at=NOW + KEEP + LEASE),
    )


def test_owner_renews_lease() -> None:
    renewed = claim_key().renew("me", 1, now=NOW + LEASE - SECOND, lease=LEASE)
    assert renewed == evolve(
        claim_key(), state=InProgress(owner="me", lease_expires_at=NOW + LEASE * 2 - SECOND)
    )


@pytest.mark.parametrize(("owner", "epoch"), [("you", 1), ("me", 2), ("me", 0)])
def test_non_holder_cannot_change_record(owner: str, epoch: int) -> None:
    record = claim_key()
    lost = f"{owner} does not hold idempotency key k: epoch {epoch} has ended; me holds the key"
    with pytest.raises(IdempotencyLostError, match=lost):
        record.renew(owner, epoch, now=NOW, lease=LEASE)
    with pytest.raises(IdempotencyLostError, match=lost):
        record.complete(owner, epoch, b"1", now=NOW, keep=None)
    with pytest.raises(IdempotencyLostError, match=lost) as refusal:
        record.fail(owner, epoch, ValueError(), now=NOW, keep=None)
    assert (refusal.value.key, refusal.value.owner) == ("k", owner)
    with pytest.raises(IdempotencyLostError, match=lost):
        record.release(owner, epoch, now=NOW)


def test_released_claim_can_be_claimed_at_once() -> None:
    back = claim_key().release("me", 1, now=NOW)
    assert back == evolve(claim_key(), state=InProgress(owner="me", lease_expires_at=NOW))
    assert claim_key(back, owner="you").epoch == 2


@pytest.mark.parametrize("after", [LEASE, LEASE * 2])
def test_expired_lease_is_not_renewed(after: timedelta) -> None:
    with pytest.raises(IdempotencyLostError, match="the lease expired at 2026-11-01 12:00:30"):
        claim_key().renew("me", 1, now=NOW + after, lease=LEASE)


def test_late_completion_is_accepted_unless_key_was_taken_over() -> None:
    late = NOW + LEASE * 9
    done = claim_key().complete("me", 1, b"1", now=late, keep=None)
    assert done.state == Completed(result=b"1", recorded_at=late)
    taken = claim_key(claim_key(), owner="me", now=late)
    with pytest.raises(IdempotencyLostError, match="epoch 1 has ended; me holds the key"):
        taken.complete("me", 1, b"1", now=late, keep=None)


@pytest.mark.parametrize("length", [timedelta(0), timedelta(seconds=-5), 30, timedelta(days=4000)])
def test_invalid_lease_or_retention_is_rejected(length: Any) -> None:
    with pytest.raises(InvalidValueError, match="lease: must be a positive duration"):
        claim_key(lease=length)
    with pytest.raises(InvalidValueError, match="lease: must be a positive duration"):
        claim_key().renew("me", 1, now=NOW, lease=length)
    with pytest.raises(InvalidValueError, match="keep: must be a positive duration"):
        claim_key().complete("me", 1, b"1", now=NOW, keep=length)


def test_claim_with_record_of_other_key_is_rejected() -> None:
    with pytest.raises(MisuseError, match="returned the record of key k for key other"):
        claim_key(claim_key(), key="other", now=NOW + LEASE)


def test_invalid_records_are_rejected() -> None:
    with pytest.raises(InvalidValueError, match="work in progress ends with its lease"):
        evolve(claim_key(), expires_at=NOW)
    with pytest.raises(InvalidValueError, match=r"IdempotencyRecord\.state: must be a InProgress"):
        evolve(claim_key(), state=None)  # type: ignore[arg-type]  # the point
    with pytest.raises(InvalidValueError, match="now: must be a time with a time zone"):
        claim_key(now=NOW.replace(tzinfo=None))
    with pytest.raises(InvalidValueError, match="now: must be a time with a time zone"):
        claim_key().is_expired(NOW.replace(tzinfo=None))
    with pytest.raises(InvalidValueError, match="now: must be a time with a time zone"):
        claim_key().is_removable(NOW.replace(tzinfo=None))
    with pytest.raises(InvalidValueError, match=r"Completed\.result: must be a bytes"):
        claim_key().complete("me", 1, "text", now=NOW, keep=None)  # type: ignore[arg-type]  # the point


def test_failure_message_is_escaped_when_recorded() -> None:
    failed = claim_key().fail("me", 1, ValueError("a\udcff\n"), now=NOW, keep=None)
    assert isinstance(failed.state, PermanentFailure)
    assert failed.state.error_message == "a\\udcff\\n"


def test_completed_record_cannot_be_completed_again() -> None:
    done = claim_key().complete("me", 1, b"1", now=NOW, keep=None)
    with pytest.raises(IdempotencyLostError, match="the work is already finished"):
        done.complete("me", 1, b"2", now=NOW, keep=None)


class IdempotencyRecordMachine(RuleBasedStateMachine):
    """Callers come, work, finish, crash and come back; time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.record: IdempotencyRecord | None = None
        self.results: list[bytes] = []
        self.epochs: list[int] = []

    @rule(owner=st.sampled_from("abc"))
    def claim_by(self, owner: str) -> None:
        try:
            after = claim_key(self.record, owner=owner, now=self.now)
        except IdempotencyInProgressError:
            return
        if self.record is None or after.epoch != self.record.epoch:
            self.epochs.append(after.epoch)
        self.record = after

    @precondition(lambda self: self.record is not None)
    @rule(owner=st.sampled_from("abc"), behind=st.integers(0, 2))
    def complete_by(self, owner: str, behind: int) -> None:
        assert self.record is not None
        result = f"{owner}{len(self.results)}".encode()
        epoch = self.record.epoch - behind
        try:
            self.record = self.record.complete(owner, epoch, result, now=self.now, keep=None)
        except IdempotencyLostError:
            return
        assert behind == 0
        self.results.append(result)

    @rule(seconds=st.integers(1, 40))
    def advance_clock(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @invariant()
    def at_most_one_result_is_kept(self) -> None:
        assert len(self.results) <= 1
        if self.results:
            assert self.record is not None
            assert isinstance(self.record.state, Completed)
            assert self.record.state.result == self.results[0]

    @invariant()
    def epochs_only_increase(self) -> None:
        assert self.epochs == sorted(set(self.epochs))


TestIdempotencyRecordMachine = IdempotencyRecordMachine.TestCase
