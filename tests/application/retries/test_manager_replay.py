"""Every decision that the log tells of comes out the same when it is made again."""

from random import Random

import pytest
from attrs import evolve
from support import crash_processes
from support.audit_events import create_random_history

from tileferry.domain.audit import RetryAttempted, event_from_bytes
from tileferry.domain.canonical import canonical_json
from tileferry.domain.retry import DecisionDifference, RetryAt, decide, replay_decision

HISTORIES = 10_000 if crash_processes.SOAK_FACTOR > 1 else 300
PARTS = 4
"""So that several processors can share the work."""


@pytest.mark.parametrize("seed", range(PARTS))
def test_invariant_20_random_histories_replay_identically(seed: int) -> None:
    chance = Random(seed)  # noqa: S311  # one that can be repeated is the point
    decisions = retries = 0
    for _ in range(HISTORIES // PARTS):
        for event in create_random_history(chance):
            body = event.canonical_bytes()
            record = getattr(event_from_bytes(body), "decision_record", None)
            if record is None:
                continue
            assert replay_decision(record) is None
            again = evolve(record, decision=decide(record.policy, record.failure))
            assert canonical_json(again.as_json()) in body
            decisions += 1
            retries += isinstance(record.decision, RetryAt)
    assert decisions > HISTORIES // PARTS
    assert 0.3 < retries / decisions < 0.9  # both kinds are there in numbers


def test_invariant_20_delay_off_by_one_bit_is_detected() -> None:
    chance = Random(21)  # noqa: S311  # as above
    forged = 0
    while forged < 50:
        for event in create_random_history(chance):
            if not isinstance(event, RetryAttempted) or event.delay_seconds == 0:
                continue
            record = event.decision_record
            assert isinstance(record.decision, RetryAt)
            off = record.decision.delay_s * (1 + 2**-52)
            changed = evolve(record, decision=evolve(record.decision, delay_s=off))
            told = evolve(event, decision_record=changed, delay_seconds=off)
            read = event_from_bytes(told.canonical_bytes())
            assert isinstance(read, RetryAttempted)
            assert isinstance(replay_decision(read.decision_record), DecisionDifference)
            forged += 1
