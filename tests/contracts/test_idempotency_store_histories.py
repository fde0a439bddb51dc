"""Every store of idempotency records, with many callers: at once, and one after another."""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.audit_events import create_idempotency_used
from support.idempotency_stores import IdempotencyEnv, claim_in_env, create_memory_env

from tileferry.domain.errors import (
    IdempotencyConflictError,
    IdempotencyInProgressError,
    IdempotencyLostError,
)
from tileferry.domain.idempotency import Completed, IdempotencyRecord, InProgress

if TYPE_CHECKING:
    from collections.abc import Callable

# Many at once


def test_one_of_many_callers_claims_key(idempotency_env: IdempotencyEnv) -> None:
    stores = [
        idempotency_env.store if number % 2 else idempotency_env.another() for number in range(8)
    ]
    for key in ("a", "b", "c"):

        def attempt(number: int, key: str = key) -> str:
            try:
                return claim_in_env(
                    idempotency_env, key, owner=f"{number}", store=stores[number]
                ).owner
            except IdempotencyInProgressError as refusal:
                return f"refused for {refusal.owner}"

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(attempt, range(8)))
        (winner,) = [answer for answer in answers if not answer.startswith("refused")]
        assert sorted(answers) == sorted([winner, *[f"refused for {winner}"] * 7])


def test_one_of_many_callers_takes_over_expired_lease(idempotency_env: IdempotencyEnv) -> None:
    claim_in_env(idempotency_env)
    idempotency_env.pass_time(idempotency_env.lease)

    def attempt(number: int) -> int:
        try:
            return claim_in_env(idempotency_env, owner=f"{number}").epoch
        except IdempotencyInProgressError:
            return 0

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(attempt, range(8))) == [0] * 7 + [2]


def test_one_of_many_completions_is_recorded(idempotency_env: IdempotencyEnv) -> None:
    held = claim_in_env(idempotency_env)

    def attempt(number: int) -> bytes | None:
        result = f"{number}".encode()
        try:
            idempotency_env.store.complete(
                held, result, keep=None, event=create_idempotency_used(number, "k")
            )
        except IdempotencyLostError:
            return None
        return result

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(attempt, range(8)))
    (result,) = [answer for answer in answers if answer is not None]
    found = idempotency_env.store.find("k")
    assert found is not None
    assert isinstance(found.state, Completed)
    assert found.state.result == result
    assert idempotency_env.log is None or len(list(idempotency_env.log.iter_entries())) == 1


# The rules, against the domain's own


NAMES = ["claim", "claim-another", "renew", "complete", "fail", "release", "clear", "pass", "sweep"]
ACTIONS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 2)), min_size=3, max_size=14)


@given(actions=ACTIONS)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_random_histories_match_memory_store(
    idempotency_env: IdempotencyEnv, actions: list[tuple[str, int]]
) -> None:
    """Any store does as the one in memory, which does nothing but apply the domain's functions."""
    model = evolve(
        create_memory_env(),
        lease=idempotency_env.lease,
        keep=idempotency_env.keep,
        step=idempotency_env.step,
    )
    idempotency_env.store.clear("k")
    histories = [History(each) for each in (idempotency_env, model)]
    for action, who in actions:
        seen = [history.step(action, who) for history in histories]
        assert seen[0] == seen[1], (action, who)


class History:
    """What three callers see of one key."""

    def __init__(self, kept: IdempotencyEnv) -> None:
        self.kept = kept
        self.claims: dict[int, IdempotencyRecord] = {}

    def step(self, action: str, who: int) -> tuple[object, object]:
        try:
            answer = self.apply(action, who)
        except (IdempotencyConflictError, IdempotencyInProgressError, IdempotencyLostError) as no:
            answer = type(no)
        return answer, summarize_record(self.kept.store.find("k"))

    def apply(self, action: str, who: int) -> object:
        kept, store = self.kept, self.kept.store
        if action.startswith("claim"):
            record = claim_in_env(kept, owner=f"{who}", fingerprint=action)
            self.claims[who] = record
            return summarize_record(record)
        whole: dict[str, Callable[[], object]] = {
            "clear": lambda: store.clear("k"),
            "sweep": lambda: store.forget_expired(limit=5),
            "pass": lambda: kept.pass_time(kept.step * (who + 1)),
        }
        if action in whole:
            return whole[action]()
        of_claim: dict[str, Callable[[IdempotencyRecord], object]] = {
            "renew": lambda held: summarize_record(store.renew(held, lease=kept.lease)),
            "complete": lambda held: summarize_record(
                store.complete(held, b"%d" % who, keep=kept.keep)
            ),
            "fail": lambda held: summarize_record(
                store.fail(held, ValueError(f"{who}"), keep=kept.keep)
            ),
            "release": store.release,
        }
        held = self.claims.get(who)
        return None if held is None else of_claim[action](held)


def summarize_record(record: IdempotencyRecord | None) -> object:
    """What a record says, but for the times, which come from two clocks."""
    if record is None:
        return None
    state = record.state
    if isinstance(state, InProgress):
        said: object = state.owner
    else:
        said = state.result if isinstance(state, Completed) else state.error_message
    return (record.key, record.fingerprint, record.epoch, type(state), said)
