"""What every store of idempotency records must do: the domain's rules, for all at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.audit_events import AT, used
from support.idempotency_rows import make_older
from support.nats_server import LOGGER

from tileferry.adapters.memory import ManualClock, MemoryAuditSink, MemoryIdempotencyStore
from tileferry.adapters.nats import JetStreamIdempotencyStore
from tileferry.adapters.postgres import Database, PostgresAuditLog, PostgresIdempotencyStore
from tileferry.application.ports.audit import AuditLog
from tileferry.application.ports.idempotency import IdempotencyStore
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
)

SECOND = timedelta(seconds=1)


@frozen(kw_only=True)
class Kept:
    """A store, and how time passes for it.

    ``pass_time`` makes everything that the store holds so much older. A store whose time cannot be
    moved may sleep there, and have a short lease and keep; all tests take theirs from here.
    """

    store: IdempotencyStore
    pass_time: Callable[[timedelta], None]
    another: Callable[[], IdempotencyStore]
    """Opens the same store once more, as another process would."""
    log: AuditLog | None = None
    """Where the store's ``audit_sink`` writes, if it has one."""
    lease: timedelta = 25 * SECOND
    keep: timedelta = 55 * SECOND
    step: timedelta = 10 * SECOND
    """No sum of steps ends near a lease or a keep, so that real time may pass beside."""


@pytest.fixture(params=["memory", "memory without audit", "postgres", "jetstream"])
def kept(request: pytest.FixtureRequest) -> Kept:
    if request.param == "jetstream":
        return in_jetstream(request)
    if request.param == "postgres":
        return in_postgres(request.getfixturevalue("database"))
    return in_memory(MemoryAuditSink() if request.param == "memory" else None)


def in_memory(sink: MemoryAuditSink | None = None) -> Kept:
    clock = ManualClock(AT.timestamp())
    memory = MemoryIdempotencyStore(clock=clock, audit_sink=sink)
    return Kept(
        store=memory,
        pass_time=lambda passed: clock.pass_time(passed.total_seconds()),
        another=lambda: memory,
        log=sink,
    )


def in_postgres(database: Database) -> Kept:
    log = PostgresAuditLog(database=database)
    return Kept(
        store=PostgresIdempotencyStore(database=database, audit_sink=log),
        pass_time=partial(make_older, database),
        another=lambda: PostgresIdempotencyStore(database=database, audit_sink=log),
        log=log,
    )


def in_jetstream(request: pytest.FixtureRequest) -> Kept:
    connect, name = request.getfixturevalue("connect"), request.getfixturevalue("nats_name")
    clock = ManualClock(AT.timestamp())

    def opened() -> JetStreamIdempotencyStore:
        return JetStreamIdempotencyStore.open(
            connect(), clock=clock, logger=LOGGER, bucket=name, accept_weak_durability=True
        )

    return Kept(
        store=opened(),
        pass_time=lambda passed: clock.pass_time(passed.total_seconds()),
        another=opened,
    )


def claimed(
    kept: Kept,
    key: str = "k",
    *,
    owner: str = "me",
    fingerprint: str = "f",
    store: IdempotencyStore | None = None,
) -> IdempotencyRecord:
    return (store or kept.store).claim(key, fingerprint=fingerprint, owner=owner, lease=kept.lease)


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


NO_DURATIONS: list[Any] = [timedelta(0), -SECOND, timedelta(days=4_000), 30]


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


# Many at once


def test_of_many_callers_one_gets_the_key(kept: Kept) -> None:
    stores = [kept.store if number % 2 else kept.another() for number in range(8)]
    for key in ("a", "b", "c"):

        def attempt(number: int, key: str = key) -> str:
            try:
                return claimed(kept, key, owner=f"{number}", store=stores[number]).owner
            except IdempotencyInProgressError as refusal:
                return f"refused for {refusal.owner}"

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(attempt, range(8)))
        (winner,) = [answer for answer in answers if not answer.startswith("refused")]
        assert sorted(answers) == sorted([winner, *[f"refused for {winner}"] * 7])


def test_of_many_callers_one_takes_an_ended_lease_over(kept: Kept) -> None:
    claimed(kept)
    kept.pass_time(kept.lease)

    def attempt(number: int) -> int:
        try:
            return claimed(kept, owner=f"{number}").epoch
        except IdempotencyInProgressError:
            return 0

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(attempt, range(8))) == [0] * 7 + [2]


def test_of_many_endings_one_counts(kept: Kept) -> None:
    held = claimed(kept)

    def attempt(number: int) -> bytes | None:
        result = f"{number}".encode()
        try:
            kept.store.complete(held, result, keep=None, event=used(number, "k"))
        except IdempotencyLostError:
            return None
        return result

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(attempt, range(8)))
    (result,) = [answer for answer in answers if answer is not None]
    found = kept.store.find("k")
    assert found is not None
    assert isinstance(found.state, Completed)
    assert found.state.result == result
    assert kept.log is None or len(list(kept.log.entries())) == 1


# The rules, against the domain's own


NAMES = ["claim", "claim-another", "renew", "complete", "fail", "release", "clear", "pass", "sweep"]
ACTIONS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 2)), min_size=3, max_size=14)


@given(actions=ACTIONS)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_history_goes_as_in_the_domain(kept: Kept, actions: list[tuple[str, int]]) -> None:
    """Any store does as the one in memory, which does nothing but apply the domain's functions."""
    model = evolve(in_memory(), lease=kept.lease, keep=kept.keep, step=kept.step)
    kept.store.clear("k")
    histories = [History(each) for each in (kept, model)]
    for action, who in actions:
        seen = [history.after(action, who) for history in histories]
        assert seen[0] == seen[1], (action, who)


class History:
    """What three callers see of one key."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.claims: dict[int, IdempotencyRecord] = {}

    def after(self, action: str, who: int) -> tuple[object, object]:
        try:
            answer = self.take(action, who)
        except (IdempotencyConflictError, IdempotencyInProgressError, IdempotencyLostError) as no:
            answer = type(no)
        return answer, told(self.kept.store.find("k"))

    def take(self, action: str, who: int) -> object:
        kept, store = self.kept, self.kept.store
        if action.startswith("claim"):
            record = claimed(kept, owner=f"{who}", fingerprint=action)
            self.claims[who] = record
            return told(record)
        whole: dict[str, Callable[[], object]] = {
            "clear": lambda: store.clear("k"),
            "sweep": lambda: store.forget_expired(limit=5),
            "pass": lambda: kept.pass_time(kept.step * (who + 1)),
        }
        if action in whole:
            return whole[action]()
        of_claim: dict[str, Callable[[IdempotencyRecord], object]] = {
            "renew": lambda held: told(store.renew(held, lease=kept.lease)),
            "complete": lambda held: told(store.complete(held, b"%d" % who, keep=kept.keep)),
            "fail": lambda held: told(store.fail(held, ValueError(f"{who}"), keep=kept.keep)),
            "release": store.release,
        }
        held = self.claims.get(who)
        return None if held is None else of_claim[action](held)


def told(record: IdempotencyRecord | None) -> object:
    """What a record says, but for the times, which come from two clocks."""
    if record is None:
        return None
    state = record.state
    if isinstance(state, InProgress):
        said: object = state.owner
    else:
        said = state.result if isinstance(state, Completed) else state.error_message
    return (record.key, record.fingerprint, record.epoch, type(state), said)
