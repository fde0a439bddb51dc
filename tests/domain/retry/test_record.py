"""A decision can be made again from what its event holds."""

import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from support.strategies import failures, policies

from tileferry.domain.canonical import canonical_json
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import (
    DecisionRecord,
    Difference,
    Failure,
    Final,
    GiveUp,
    GiveUpReason,
    RateLimited,
    Retryable,
    RetryAt,
    RetryPolicy,
    decide,
    replay,
)


def record_of(policy: RetryPolicy, failure: Failure) -> DecisionRecord:
    return DecisionRecord(policy=policy, failure=failure, decision=decide(policy, failure))


def through_storage(record: DecisionRecord) -> DecisionRecord:
    return DecisionRecord.from_json(json.loads(canonical_json(record.as_json())))


EXAMPLE = record_of(
    RetryPolicy(deadline_s=500.5),
    Failure(
        key="k",
        attempt=1,
        error=RateLimited(retry_after_s=30.0),
        rate_limited=2,
        elapsed_s=1.5,
        budget_tokens=7.25,
    ),
)


def test_policies_that_differ_by_a_type_only_are_not_taken_for_each_other() -> None:
    form: Any = record_of(RetryPolicy(max_attempts=1), Failure(key="k", attempt=1, error=Final()))
    data = form.as_json()
    assert DecisionRecord.from_json(data).policy.max_attempts == 1
    for name, value in (("max_attempts", True), ("max_attempts", 1.0), ("jitter_enabled", 1)):
        with pytest.raises(InvalidValueError, match=name):
            DecisionRecord.from_json({**data, "policy": {**data["policy"], name: value}})


def test_the_stored_form() -> None:
    assert EXAMPLE.as_json() == {
        "policy": {
            "max_attempts": 3,
            "base_delay": 1.0,
            "max_delay": 30.0,
            "backoff_multiplier": 2.0,
            "jitter_enabled": True,
            "jitter_factor": 0.1,
            "backoff": "exponential",
            "deadline_s": 500.5,
            "max_rate_limited": 10,
            "max_retry_after_s": 300.0,
        },
        "failure": {
            "key": "k",
            "attempt": 1,
            "error": {"class": "rate_limited", "retry_after_s": 30.0},
            "rate_limited": 2,
            "elapsed_s": 1.5,
            "budget_tokens": 7.25,
        },
        "decision": {
            "outcome": "retry",
            "reason": "retry_after",
            "delay_s": 30.0,
            "attempt": 1,
            "rate_limited": 3,
        },
    }


def test_the_stored_form_of_giving_up() -> None:
    record = record_of(RetryPolicy(), Failure(key="k", attempt=2, error=Final()))
    assert record.as_json()["decision"] == {"outcome": "give_up", "reason": "final", "attempts": 2}
    assert through_storage(record) == record


@given(policies(), failures)
def test_invariant_20_a_stored_decision_replays_to_the_byte(
    policy: RetryPolicy, failure: Failure
) -> None:
    record = record_of(policy, failure)
    stored = through_storage(record)
    assert stored == record
    assert replay(stored) is None
    assert canonical_json(stored.as_json()) == canonical_json(record.as_json())


def test_whole_numbers_in_a_policy_replay_like_their_floats() -> None:
    record = record_of(
        RetryPolicy(max_attempts=9, base_delay=3, max_delay=500, backoff_multiplier=7),
        Failure(key="k", attempt=5, error=Retryable(), elapsed_s=3),
    )
    assert replay(through_storage(record)) is None


def test_a_decision_that_was_changed_is_shown_beside_the_true_one() -> None:
    assert isinstance(EXAMPLE.decision, RetryAt)
    forged = evolve(EXAMPLE, decision=evolve(EXAMPLE.decision, delay_s=29.0))
    assert replay(forged) == Difference(recorded=forged.decision, recomputed=EXAMPLE.decision)


def test_a_policy_that_was_changed_makes_a_difference() -> None:
    forged = evolve(EXAMPLE, policy=evolve(EXAMPLE.policy, max_rate_limited=1))
    assert replay(forged) == Difference(
        recorded=EXAMPLE.decision,
        recomputed=GiveUp(reason=GiveUpReason.RATE_LIMIT_EXHAUSTED, attempts=1),
    )


def _without(path: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(canonical_json(EXAMPLE.as_json()))
    *parents, last = path.split(".")
    place = data
    for parent in parents:
        place = place[parent]
    del place[last]
    return data


@pytest.mark.parametrize(
    "path",
    [
        "policy",
        "failure",
        "decision",
        "policy.base_delay",
        "failure.error",
        "failure.error.class",
        "decision.outcome",
        "decision.reason",
    ],
)
def test_a_record_with_a_hole_is_refused(path: str) -> None:
    with pytest.raises(InvalidValueError, match="is not a decision record") as refusal:
        DecisionRecord.from_json(_without(path))
    assert path.rsplit(".", maxsplit=1)[-1] in str(refusal.value)
    assert "another version" in refusal.value.remedy


def _with(part: str, **values: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(canonical_json(EXAMPLE.as_json()))
    data[part].update(values)
    return data


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (_with("decision", outcome="shrug"), r"decision\.outcome: is not known \(got 'shrug'\)"),
        (_with("failure", error={"class": "odd"}), r"error\.class: is not known \(got 'odd'\)"),
        (_with("policy", max_attempts=0), r"RetryPolicy\.max_attempts"),
        (_with("policy", base_delay="much"), "is not a decision record"),
        (_with("policy", backoff="linear"), "is not a decision record"),
        (_with("policy", base_delay=10**400), "is not a decision record"),
        (_with("failure", error=None), "is not a decision record"),
        (_with("policy", base_delay=True), "is not a decision record"),
        (_with("policy", base_delay="1"), "is not a decision record"),
        (_with("decision", delay_s="inf"), "is not a decision record"),
        (_with("decision", delay_s=True), "is not a decision record"),
        (_with("decision", delay_s=-3), r"RetryAt\.delay_s"),
        (_with("decision", attempt="x"), r"RetryAt\.attempt"),
        (_with("decision", rate_limited=None), r"RetryAt\.rate_limited"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(data: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        DecisionRecord.from_json(data)
