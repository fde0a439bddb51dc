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
    DECISION_VERSION,
    DOWNLOAD_POLICY,
    PARTITION_POLICY,
    POLICY_MATRIX,
    RUN_POLICY,
    DecisionDifference,
    DecisionRecord,
    Failure,
    Final,
    GiveUp,
    GiveUpReason,
    RateLimited,
    Retryable,
    RetryAt,
    RetryCategory,
    RetryPolicy,
    UnreplayableDecision,
    build_upload_policy,
    decide,
    limit_to_run,
    replay_decision,
)


def make_record(policy: RetryPolicy, failure: Failure) -> DecisionRecord:
    return DecisionRecord(policy=policy, failure=failure, decision=decide(policy, failure))


def round_trip(record: DecisionRecord) -> DecisionRecord:
    return DecisionRecord.from_json(json.loads(canonical_json(record.as_json())))


EXAMPLE = make_record(
    RetryPolicy(deadline_s=500.5),
    Failure(
        key="k",
        attempt=1,
        error=RateLimited(retry_after_s=30.0),
        rate_limited=2,
        elapsed_s=1.5,
        budget_tokens=7.25,
        budget_wait_s=0.0,
    ),
)


def test_policy_values_of_wrong_type_are_rejected() -> None:
    form: Any = make_record(RetryPolicy(max_attempts=1), Failure(key="k", attempt=1, error=Final()))
    data = form.as_json()
    assert DecisionRecord.from_json(data).policy.max_attempts == 1
    for name, value in (("max_attempts", True), ("max_attempts", 1.0), ("jitter_enabled", 1)):
        with pytest.raises(InvalidValueError, match=name):
            DecisionRecord.from_json({**data, "policy": {**data["policy"], name: value}})


def test_record_json_format() -> None:
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
            "budget_wait_s": 0.0,
        },
        "decision": {
            "outcome": "retry",
            "reason": "retry_after",
            "delay_s": 30.0,
            "attempt": 1,
            "rate_limited": 3,
        },
        "policy_name": "custom",
        "function_version": 2,
    }


def test_design_5_25_record_carries_policy_name_and_function_version() -> None:
    for policy in (DOWNLOAD_POLICY, limit_to_run(DOWNLOAD_POLICY), RUN_POLICY, PARTITION_POLICY):
        stored = round_trip(make_record(policy, EXAMPLE.failure))
        assert stored.policy_name == policy.name
        assert stored.function_version == DECISION_VERSION
    assert [DOWNLOAD_POLICY.name, RUN_POLICY.name, PARTITION_POLICY.name] == [
        "DOWNLOAD",
        "RUN",
        "PARTITION",
    ]
    assert build_upload_policy(3, 2.0, 60.0).name == "UPLOAD"
    assert {category: policy.name for category, policy in POLICY_MATRIX.items()} == {
        category: category.name for category in RetryCategory
    }


def test_policy_name_does_not_count_in_comparisons() -> None:
    assert evolve(DOWNLOAD_POLICY, name="other") == DOWNLOAD_POLICY


def test_unknown_function_version_is_reported_as_such() -> None:
    data: Any = EXAMPLE.as_json()
    newer = DecisionRecord.from_json({**data, "function_version": 3})
    found = replay_decision(newer)
    assert found == UnreplayableDecision(function_version=3)
    assert isinstance(found, UnreplayableDecision)
    assert found.problem == "cannot be replayed: written by function version 3"
    assert round_trip(newer) == newer


@pytest.mark.parametrize("stored", [{"policy_name": "RUN", "function_version": 1}, {}])
def test_invariant_20_version_1_replays_to_its_own_answer(stored: dict[str, Any]) -> None:
    empty = Failure(key="k", attempt=1, error=RateLimited(retry_after_s=3.0), budget_tokens=0.5)
    data: Any = make_record(RetryPolicy(), empty).as_json()
    del data["policy_name"], data["function_version"]
    cancelled = {"outcome": "give_up", "reason": "budget_exhausted", "attempts": 1}
    old = DecisionRecord.from_json({**data, **stored, "decision": cancelled})
    assert replay_decision(old) is None
    assert replay_decision(round_trip(old)) is None
    assert isinstance(replay_decision(evolve(old, function_version=2)), DecisionDifference)


@pytest.mark.parametrize(
    "fields", [{"function_version": 0}, {"function_version": "1"}, {"policy_name": 7}]
)
def test_invalid_name_or_version_is_rejected(fields: dict[str, Any]) -> None:
    data: Any = EXAMPLE.as_json()
    with pytest.raises(InvalidValueError, match=r"function_version|name"):
        DecisionRecord.from_json({**data, **fields})


def test_giveup_record_json_format() -> None:
    record = make_record(RetryPolicy(), Failure(key="k", attempt=2, error=Final()))
    assert record.as_json()["decision"] == {"outcome": "give_up", "reason": "final", "attempts": 2}
    assert round_trip(record) == record


@given(policies(), failures)
def test_invariant_20_stored_decision_replays_byte_for_byte(
    policy: RetryPolicy, failure: Failure
) -> None:
    record = make_record(policy, failure)
    stored = round_trip(record)
    assert stored == record
    assert replay_decision(stored) is None
    assert canonical_json(stored.as_json()) == canonical_json(record.as_json())


def test_integer_policy_values_replay_like_floats() -> None:
    record = make_record(
        RetryPolicy(max_attempts=9, base_delay=3, max_delay=500, backoff_multiplier=7),
        Failure(key="k", attempt=5, error=Retryable(), elapsed_s=3),
    )
    assert replay_decision(round_trip(record)) is None


def test_replay_reports_forged_decision() -> None:
    assert isinstance(EXAMPLE.decision, RetryAt)
    forged = evolve(EXAMPLE, decision=evolve(EXAMPLE.decision, delay_s=29.0))
    assert replay_decision(forged) == DecisionDifference(
        recorded=forged.decision, recomputed=EXAMPLE.decision
    )


def test_replay_reports_forged_policy() -> None:
    forged = evolve(EXAMPLE, policy=evolve(EXAMPLE.policy, max_rate_limited=1))
    assert replay_decision(forged) == DecisionDifference(
        recorded=EXAMPLE.decision,
        recomputed=GiveUp(reason=GiveUpReason.RATE_LIMIT_EXHAUSTED, attempts=1),
    )


def _remove_path(path: str) -> dict[str, Any]:
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
def test_record_with_missing_field_is_rejected(path: str) -> None:
    with pytest.raises(InvalidValueError, match="is not a decision record") as refusal:
        DecisionRecord.from_json(_remove_path(path))
    assert path.rsplit(".", maxsplit=1)[-1] in str(refusal.value)
    assert "another version" in refusal.value.remedy


def _replace_values(part: str, **values: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(canonical_json(EXAMPLE.as_json()))
    data[part].update(values)
    return data


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (
            _replace_values("decision", outcome="shrug"),
            r"decision\.outcome: is not known \(got 'shrug'\)",
        ),
        (
            _replace_values("failure", error={"class": "odd"}),
            r"error\.class: is not known \(got 'odd'\)",
        ),
        (_replace_values("policy", max_attempts=0), r"RetryPolicy\.max_attempts"),
        (_replace_values("policy", base_delay="much"), "is not a decision record"),
        (_replace_values("policy", backoff="linear"), "is not a decision record"),
        (_replace_values("policy", base_delay=10**400), "is not a decision record"),
        (_replace_values("failure", error=None), "is not a decision record"),
        (_replace_values("policy", base_delay=True), "is not a decision record"),
        (_replace_values("policy", base_delay="1"), "is not a decision record"),
        (_replace_values("decision", delay_s="inf"), "is not a decision record"),
        (_replace_values("decision", delay_s=True), "is not a decision record"),
        (_replace_values("decision", delay_s=-3), r"RetryAt\.delay_s"),
        (_replace_values("decision", attempt="x"), r"RetryAt\.attempt"),
        (_replace_values("decision", rate_limited=None), r"RetryAt\.rate_limited"),
    ],
)
def test_invalid_record_is_rejected(data: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        DecisionRecord.from_json(data)
