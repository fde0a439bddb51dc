"""A retry decision with all its inputs, so that it can be recomputed."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, assert_never

from attrs import field, frozen

from tileferry.domain.canonical import JsonValue, canonical_json
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry.classify import ErrorClass, Final, RateLimited, Retryable
from tileferry.domain.retry.decision import (
    DECISION_VERSION,
    Decision,
    Failure,
    GiveUp,
    GiveUpReason,
    RetryAt,
    RetryReason,
    decide,
)
from tileferry.domain.retry.policy import BackoffKind, RetryPolicy
from tileferry.domain.validation import integer

Json = dict[str, JsonValue]
_UNRECORDED_VERSION = 1
"""The version of records that were written before versions were recorded."""


@frozen(kw_only=True)
class DecisionRecord:
    """A decision with its inputs.

    The policy's exception lists are left out: the failure has the error class that resulted from
    them.
    """

    policy: RetryPolicy
    failure: Failure
    decision: Decision
    function_version: int = field(default=DECISION_VERSION, validator=integer(1))
    """The version of the decision, its backoff and its jitter."""

    @property
    def policy_name(self) -> str | None:
        """The name of the policy; ``None`` in records from before names were recorded."""
        return self.policy.name

    def as_json(self) -> Json:
        """Return the record as a JSON object. A record without a name keeps its old form."""
        body: Json = {
            "policy": _policy_to_json(self.policy),
            "failure": _failure_to_json(self.failure),
            "decision": _decision_to_json(self.decision),
        }
        if self.policy_name is not None:
            body["policy_name"] = self.policy_name
            body["function_version"] = self.function_version
        return body

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "DecisionRecord":
        """Parse the output of ``as_json``, of this version or an earlier one."""
        try:
            return cls(
                policy=_policy_from_json(data["policy"], data.get("policy_name")),
                failure=_failure_from_json(data["failure"]),
                decision=_decision_from_json(data["decision"]),
                function_version=data.get("function_version", _UNRECORDED_VERSION),
            )
        except InvalidValueError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidValueError(
                field="decision_record",
                value=str(error),
                problem="is not a decision record",
                remedy="the event was written by another version, or changed since",
            ) from error


@frozen(kw_only=True)
class DecisionDifference:
    """A recomputed decision that differs from the recorded one."""

    recorded: Decision
    recomputed: Decision


@frozen(kw_only=True)
class UnreplayableDecision:
    """A decision computed by a function version that this release does not have."""

    function_version: int

    @property
    def problem(self) -> str:
        """Why it cannot be compared."""
        return f"cannot be replayed: written by function version {self.function_version}"


def replay_decision(record: DecisionRecord) -> DecisionDifference | UnreplayableDecision | None:
    """Recompute a decision; return ``None`` if it is identical."""
    if record.function_version > DECISION_VERSION:
        return UnreplayableDecision(function_version=record.function_version)
    again = decide(record.policy, record.failure, version=record.function_version)
    if canonical_json(_decision_to_json(again)) == canonical_json(
        _decision_to_json(record.decision)
    ):
        return None
    return DecisionDifference(recorded=record.decision, recomputed=again)


def _policy_to_json(policy: RetryPolicy) -> Json:
    return {
        "max_attempts": policy.max_attempts,
        "base_delay": policy.base_delay,
        "max_delay": policy.max_delay,
        "backoff_multiplier": policy.backoff_multiplier,
        "jitter_enabled": policy.jitter_enabled,
        "jitter_factor": policy.jitter_factor,
        "backoff": policy.backoff.value,
        "deadline_s": policy.deadline_s,
        "max_rate_limited": policy.max_rate_limited,
        "max_retry_after_s": policy.max_retry_after_s,
    }


def _policy_from_json(data: Mapping[str, Any], policy_name: Any) -> RetryPolicy:
    return _build_policy(policy_name, *[data[name] for name in _POLICY_FIELDS])


# A long log repeats few policies. The cache is typed because 1 and True are equal.
@lru_cache(maxsize=256, typed=True)
def _build_policy(policy_name: Any, *values: Any) -> RetryPolicy:
    data = dict(zip(_POLICY_FIELDS, values, strict=True))
    # Canonical JSON writes 1.0 as 1; converting back to float keeps the arithmetic the same.
    return RetryPolicy(
        name=policy_name,
        max_attempts=data["max_attempts"],
        base_delay=_parse_number(data["base_delay"]),
        max_delay=_parse_number(data["max_delay"]),
        backoff_multiplier=_parse_number(data["backoff_multiplier"]),
        jitter_enabled=data["jitter_enabled"],
        jitter_factor=_parse_number(data["jitter_factor"]),
        backoff=BackoffKind(data["backoff"]),
        deadline_s=_parse_optional_number(data["deadline_s"]),
        max_rate_limited=data["max_rate_limited"],
        max_retry_after_s=_parse_number(data["max_retry_after_s"]),
    )


_POLICY_FIELDS = tuple(_policy_to_json(RetryPolicy()))


def _failure_to_json(failure: Failure) -> Json:
    """Return a failure as JSON. Without a budget it keeps the form of version 1."""
    body: Json = {
        "key": failure.key,
        "attempt": failure.attempt,
        "error": _error_to_json(failure.error),
        "rate_limited": failure.rate_limited,
        "elapsed_s": failure.elapsed_s,
        "budget_tokens": failure.budget_tokens,
    }
    if failure.budget_wait_s is not None:
        body["budget_wait_s"] = failure.budget_wait_s
    return body


def _failure_from_json(data: Mapping[str, Any]) -> Failure:
    return Failure(
        key=data["key"],
        attempt=data["attempt"],
        error=_error_from_json(data["error"]),
        rate_limited=data["rate_limited"],
        elapsed_s=_parse_number(data["elapsed_s"]),
        budget_tokens=_parse_optional_number(data["budget_tokens"]),
        budget_wait_s=_parse_optional_number(data.get("budget_wait_s")),
    )


def _error_to_json(error: ErrorClass) -> Json:
    match error:
        case Final() | Retryable():
            return {"class": error.code}
        case RateLimited():
            return {"class": error.code, "retry_after_s": error.retry_after_s}
        case _:
            assert_never(error)


def _error_from_json(data: Mapping[str, Any]) -> ErrorClass:
    match data["class"]:
        case Final.code:
            return Final()
        case Retryable.code:
            return Retryable()
        case RateLimited.code:
            return RateLimited(retry_after_s=_parse_optional_number(data["retry_after_s"]))
        case unknown:
            raise InvalidValueError(field="error.class", value=unknown, problem="is not known")


def _decision_to_json(decision: Decision) -> Json:
    match decision:
        case RetryAt():
            return {
                "outcome": "retry",
                "reason": decision.reason.value,
                "delay_s": decision.delay_s,
                "attempt": decision.attempt,
                "rate_limited": decision.rate_limited,
            }
        case GiveUp():
            return {
                "outcome": "give_up",
                "reason": decision.reason.value,
                "attempts": decision.attempts,
            }
        case _:
            assert_never(decision)


def _decision_from_json(data: Mapping[str, Any]) -> Decision:
    match data["outcome"]:
        case "retry":
            return RetryAt(
                reason=RetryReason(data["reason"]),
                delay_s=_parse_number(data["delay_s"]),
                attempt=data["attempt"],
                rate_limited=data["rate_limited"],
            )
        case "give_up":
            return GiveUp(reason=GiveUpReason(data["reason"]), attempts=data["attempts"])
        case unknown:
            raise InvalidValueError(field="decision.outcome", value=unknown, problem="is not known")


def _parse_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _parse_optional_number(value: object) -> float | None:
    return None if value is None else _parse_number(value)
