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
)
from tileferry.domain.idempotency import (
    ABANDONED_AFTER,
    Completed,
    FailedForGood,
    IdempotencyRecord,
    InProgress,
    claim,
    payload_fingerprint,
    still_known,
)
from tileferry.domain.retry import compute_idempotency_key

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
LEASE = timedelta(seconds=30)
KEEP = timedelta(hours=24)
SECOND = timedelta(seconds=1)

params = st.dictionaries(st.text(max_size=6), json_values, max_size=4)


# Keys


def test_spec2_key_example_is_64_hex_digits_and_stays_as_first_released() -> None:
    key = compute_idempotency_key(
        operation="kill_switch_update",
        tenant_id="tenant-123",
        correlation_id="corr-456",
        additional_params={"switch_name": "all_execution"},
    )
    assert key == "fb1f95b5efe4a18f904c2e2beb82dd219bffe04f8ede1e4b4cb80b289833f358"


def test_spec2_the_same_parameters_always_give_the_same_key() -> None:
    one = compute_idempotency_key("op", "t", "c", {"a": 1, "b": {"x": 1.0, "y": [1, 2]}})
    two = compute_idempotency_key("op", "t", "c", {"b": {"y": (1, 2), "x": 1}, "a": 1})
    assert one == two


def test_spec2_absent_and_empty_are_the_same() -> None:
    assert compute_idempotency_key("op") == compute_idempotency_key("op", "", "", {})


def test_each_argument_counts_in_its_own_place() -> None:
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


def test_bad_arguments_are_refused_by_name() -> None:
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
def test_equal_parameters_and_only_they_share_a_key(
    left: dict[str, JsonValue], right: dict[str, JsonValue]
) -> None:
    key = compute_idempotency_key("op", None, None, left)
    assert key == compute_idempotency_key("op", None, None, dict(reversed(left.items())))
    if left != right:
        assert key != compute_idempotency_key("op", None, None, right)


def test_fingerprints_tell_payloads_apart() -> None:
    payloads: list[JsonValue | bytes]
    payloads = [b"", b"{}", {}, [], "", None, {"a": 1}, {"a": 2}, b'{"a":1}']
    prints = {payload_fingerprint(payload) for payload in payloads}
    assert len(prints) == 9
    assert payload_fingerprint({"a": 1, "b": 2}) == payload_fingerprint({"b": 2, "a": 1.0})
    assert (
        payload_fingerprint(b"tile")
        == "8c58f789a7489ef307d12810db94867e8d56cff2bf519d36e07994e5322dacaf"
    )
    assert payload_fingerprint({"a": 1}) != compute_idempotency_key("a")
    with pytest.raises(InvalidValueError, match=r"payload\.x"):
        payload_fingerprint({"x": float("inf")})


# Records


def claimed(existing: IdempotencyRecord | None = None, **changes: Any) -> IdempotencyRecord:
    request: dict[str, Any] = {
        "key": "k",
        "fingerprint": "f",
        "owner": "me",
        "now": NOW,
        "lease": LEASE,
    }
    return claim(existing, **{**request, **changes})


def test_a_first_claim_is_in_progress_under_a_lease() -> None:
    assert claimed() == IdempotencyRecord(
        key="k",
        fingerprint="f",
        epoch=1,
        state=InProgress(owner="me", lease_expires_at=NOW + LEASE),
        expires_at=None,
    )


def test_a_key_in_progress_is_refused_to_others() -> None:
    with pytest.raises(IdempotencyInProgressError) as refusal:
        claimed(claimed(), owner="you", now=NOW + LEASE - SECOND)
    assert refusal.value.key == "k"
    assert refusal.value.owner == "me"
    assert refusal.value.lease_expires_at == NOW + LEASE


def test_a_record_knows_its_holder_and_a_cleared_one_is_lost() -> None:
    mine = claimed()
    done = mine.completed("me", 1, b"1", now=NOW, keep=None)
    assert (mine.owner, done.owner) == ("me", "nobody")
    assert still_known(done, mine) is done
    with pytest.raises(IdempotencyLostError, match="the key was cleared"):
        still_known(None, mine)


def test_a_call_that_did_not_hear_of_its_claim_finds_it() -> None:
    mine = claimed()
    assert claimed(mine, now=NOW + LEASE - SECOND) is mine


def test_a_lease_that_ended_is_taken_over_with_a_new_epoch() -> None:
    later = NOW + LEASE
    taken = claimed(claimed(), owner="you", now=later)
    assert taken == evolve(
        claimed(), epoch=2, state=InProgress(owner="you", lease_expires_at=later + LEASE)
    )


def test_another_payload_under_the_same_key_is_refused_in_every_state() -> None:
    mine = claimed()
    states = [
        mine,
        mine.completed("me", 1, b"1", now=NOW, keep=None),
        mine.failed_for_good("me", 1, ValueError("no"), now=NOW, keep=None),
    ]
    for record in states:
        with pytest.raises(IdempotencyConflictError) as refusal:
            claimed(record, fingerprint="other", now=NOW + SECOND)
        assert refusal.value.key == "k"
        assert refusal.value.recorded_fingerprint == "f"
        assert refusal.value.offered_fingerprint == "other"


def test_spec2_a_completed_record_is_given_back_unchanged() -> None:
    done = claimed().completed("me", 1, b"null", now=NOW + SECOND, keep=KEEP)
    assert done == evolve(
        claimed(),
        state=Completed(result=b"null", recorded_at=NOW + SECOND),
        expires_at=NOW + SECOND + KEEP,
    )
    assert claimed(done, owner="you", now=NOW + LEASE * 2) is done


def test_a_final_failure_is_given_back_unchanged() -> None:
    failed = claimed().failed_for_good("me", 1, ValueError("no"), now=NOW, keep=None)
    assert failed.state == FailedForGood(
        error_type="ValueError", error_message="no", recorded_at=NOW
    )
    assert failed.expires_at is None
    assert claimed(failed, owner="you", now=NOW + LEASE * 2) is failed


def test_a_claim_is_abandoned_long_after_its_lease_and_an_outcome_never() -> None:
    end = NOW + LEASE + ABANDONED_AFTER
    assert claimed().forgotten_at == end
    assert not claimed().may_be_forgotten(end - SECOND)
    assert claimed().may_be_forgotten(end)
    assert claimed().released("me", 1, now=NOW).may_be_forgotten(NOW + ABANDONED_AFTER)
    for_ever = claimed().completed("me", 1, b"1", now=NOW, keep=None)
    assert (for_ever.forgotten_at, for_ever.may_be_forgotten(end)) == (None, False)
    done = claimed().completed("me", 1, b"1", now=NOW, keep=KEEP)
    assert not done.may_be_forgotten(NOW + KEEP - SECOND)
    assert done.may_be_forgotten(NOW + KEEP)


def test_an_expired_record_is_as_good_as_none_but_its_epoch_goes_on() -> None:
    done = claimed().completed("me", 1, b"1", now=NOW, keep=KEEP)
    assert not done.is_expired(NOW + KEEP - SECOND)
    assert done.is_expired(NOW + KEEP)
    assert not claimed().is_expired(NOW + KEEP * 1000)
    again = claimed(done, owner="you", fingerprint="other", now=NOW + KEEP)
    assert again == IdempotencyRecord(
        key="k",
        fingerprint="other",
        epoch=2,
        state=InProgress(owner="you", lease_expires_at=NOW + KEEP + LEASE),
    )


def test_a_lease_is_renewed_by_its_owner() -> None:
    renewed = claimed().renewed("me", 1, now=NOW + LEASE - SECOND, lease=LEASE)
    assert renewed == evolve(
        claimed(), state=InProgress(owner="me", lease_expires_at=NOW + LEASE * 2 - SECOND)
    )


@pytest.mark.parametrize(("owner", "epoch"), [("you", 1), ("me", 2), ("me", 0)])
def test_whoever_does_not_hold_the_claim_changes_nothing(owner: str, epoch: int) -> None:
    record = claimed()
    lost = f"{owner} does not hold idempotency key k: epoch {epoch} is over, me has it"
    with pytest.raises(IdempotencyLostError, match=lost):
        record.renewed(owner, epoch, now=NOW, lease=LEASE)
    with pytest.raises(IdempotencyLostError, match=lost):
        record.completed(owner, epoch, b"1", now=NOW, keep=None)
    with pytest.raises(IdempotencyLostError, match=lost) as refusal:
        record.failed_for_good(owner, epoch, ValueError(), now=NOW, keep=None)
    assert (refusal.value.key, refusal.value.owner) == ("k", owner)
    with pytest.raises(IdempotencyLostError, match=lost):
        record.released(owner, epoch, now=NOW)


def test_a_claim_that_is_given_back_is_anybodys_at_once() -> None:
    back = claimed().released("me", 1, now=NOW)
    assert back == evolve(claimed(), state=InProgress(owner="me", lease_expires_at=NOW))
    assert claimed(back, owner="you").epoch == 2


@pytest.mark.parametrize("after", [LEASE, LEASE * 2])
def test_a_lease_that_ran_out_is_not_renewed(after: timedelta) -> None:
    with pytest.raises(IdempotencyLostError, match="the lease ran out at 2026-11-01 12:00:30"):
        claimed().renewed("me", 1, now=NOW + after, lease=LEASE)


def test_finished_work_counts_after_the_lease_while_nobody_has_taken_the_key() -> None:
    late = NOW + LEASE * 9
    done = claimed().completed("me", 1, b"1", now=late, keep=None)
    assert done.state == Completed(result=b"1", recorded_at=late)
    taken = claimed(claimed(), owner="me", now=late)
    with pytest.raises(IdempotencyLostError, match="epoch 1 is over, me has it"):
        taken.completed("me", 1, b"1", now=late, keep=None)


@pytest.mark.parametrize("length", [timedelta(0), timedelta(seconds=-5), 30, timedelta(days=4000)])
def test_leases_and_keeping_last_a_sensible_time(length: Any) -> None:
    with pytest.raises(InvalidValueError, match="lease: must be a duration"):
        claimed(lease=length)
    with pytest.raises(InvalidValueError, match="lease: must be a duration"):
        claimed().renewed("me", 1, now=NOW, lease=length)
    with pytest.raises(InvalidValueError, match="keep: must be a duration"):
        claimed().completed("me", 1, b"1", now=NOW, keep=length)


def test_a_record_speaks_for_its_own_key_only() -> None:
    with pytest.raises(InvalidValueError, match="key: is not the key of the record, k"):
        claimed(claimed(), key="other", now=NOW + LEASE)


def test_records_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="work in progress ends with its lease"):
        evolve(claimed(), expires_at=NOW)
    with pytest.raises(InvalidValueError, match=r"IdempotencyRecord\.state: must be a InProgress"):
        evolve(claimed(), state=None)  # type: ignore[arg-type]  # the point
    with pytest.raises(InvalidValueError, match="now: must be a time with its zone"):
        claimed(now=NOW.replace(tzinfo=None))
    with pytest.raises(InvalidValueError, match="now: must be a time with its zone"):
        claimed().is_expired(NOW.replace(tzinfo=None))
    with pytest.raises(InvalidValueError, match="now: must be a time with its zone"):
        claimed().may_be_forgotten(NOW.replace(tzinfo=None))
    with pytest.raises(InvalidValueError, match=r"Completed\.result: must be a bytes"):
        claimed().completed("me", 1, "text", now=NOW, keep=None)  # type: ignore[arg-type]  # the point


def test_a_failure_that_cannot_be_written_is_recorded_all_the_same() -> None:
    failed = claimed().failed_for_good("me", 1, ValueError("a\udcff\n"), now=NOW, keep=None)
    assert isinstance(failed.state, FailedForGood)
    assert failed.state.error_message == "a\\udcff\\n"


def test_an_ended_record_cannot_end_again() -> None:
    done = claimed().completed("me", 1, b"1", now=NOW, keep=None)
    with pytest.raises(IdempotencyLostError, match="the work was finished before"):
        done.completed("me", 1, b"2", now=NOW, keep=None)


class RecordLife(RuleBasedStateMachine):
    """Callers come, work, finish, crash and come back; time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.record: IdempotencyRecord | None = None
        self.results: list[bytes] = []
        self.epochs: list[int] = []

    @rule(owner=st.sampled_from("abc"))
    def comes(self, owner: str) -> None:
        try:
            after = claimed(self.record, owner=owner, now=self.now)
        except IdempotencyInProgressError:
            return
        if self.record is None or after.epoch != self.record.epoch:
            self.epochs.append(after.epoch)
        self.record = after

    @precondition(lambda self: self.record is not None)
    @rule(owner=st.sampled_from("abc"), behind=st.integers(0, 2))
    def finishes(self, owner: str, behind: int) -> None:
        assert self.record is not None
        result = f"{owner}{len(self.results)}".encode()
        epoch = self.record.epoch - behind
        try:
            self.record = self.record.completed(owner, epoch, result, now=self.now, keep=None)
        except IdempotencyLostError:
            return
        assert behind == 0
        self.results.append(result)

    @rule(seconds=st.integers(1, 40))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @invariant()
    def at_most_one_result_and_it_stays(self) -> None:
        assert len(self.results) <= 1
        if self.results:
            assert self.record is not None
            assert isinstance(self.record.state, Completed)
            assert self.record.state.result == self.results[0]

    @invariant()
    def epochs_only_rise(self) -> None:
        assert self.epochs == sorted(set(self.epochs))


TestRecordLife = RecordLife.TestCase
