"""The retry decision. All retries are decided here; no delay is computed elsewhere."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from attrs import evolve, field, frozen, validators

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry.budget import can_pay_retry
from tileferry.domain.retry.classify import ErrorClass, Final, RateLimited, Retryable
from tileferry.domain.retry.delays import compute_jittered_delay
from tileferry.domain.retry.policy import RetryPolicy
from tileferry.domain.validation import check_aware, instance, integer, number, unicode


class RetryReason(StrEnum):
    """Why there is another attempt, and where its delay comes from."""

    BACKOFF = "backoff"
    RETRY_AFTER = "retry_after"
    RETRY_BUDGET = "retry_budget"
    """The retry budget is empty: the retry waits for a token."""

    @property
    def label(self) -> str:
        """The rule as text, as it is shown beside a wait."""
        return _RULE_LABELS[self]


_RULE_LABELS = {
    RetryReason.BACKOFF: "backoff",
    RetryReason.RETRY_AFTER: "Retry-After",
    RetryReason.RETRY_BUDGET: "retry budget",
}


class GiveUpReason(StrEnum):
    """Why there is no further attempt. An exhausted budget occurs in old records only."""

    FINAL = "final"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    RATE_LIMIT_EXHAUSTED = "rate_limit_exhausted"
    BUDGET_EXHAUSTED = "budget_exhausted"
    DEADLINE_EXCEEDED = "deadline_exceeded"

    @property
    def explanation(self) -> str:
        """The reason as text."""
        return _EXPLANATIONS[self]


_EXPLANATIONS = {
    GiveUpReason.FINAL: "the error is not retryable",
    GiveUpReason.ATTEMPTS_EXHAUSTED: "all attempts are used up",
    GiveUpReason.RATE_LIMIT_EXHAUSTED: "still rate-limited after the allowed number of waits",
    GiveUpReason.BUDGET_EXHAUSTED: "the retry budget is empty",
    GiveUpReason.DEADLINE_EXCEEDED: "the next attempt would start after the deadline",
}


@frozen(kw_only=True)
class Failure:
    """One failed attempt: the input of the decision."""

    key: str = field(validator=unicode)
    """The seed of the jitter: an idempotency key or the id of the call."""
    attempt: int = field(validator=integer(1))
    """The number of the charged attempt, from 1. A rate-limited attempt with a hint is not charged.
    """
    error: ErrorClass = field(validator=instance(Final, Retryable, RateLimited))
    rate_limited: int = field(default=0, validator=integer(0))
    """How often this operation was rate-limited before this failure."""
    elapsed_s: float = field(default=0.0, validator=number(0))
    """Time since the start of the first attempt."""
    budget_tokens: float | None = field(default=None, validator=validators.optional(number(0)))
    """The tokens of the retry budget; ``None`` if there is no budget."""
    budget_wait_s: float | None = field(default=None, validator=validators.optional(number(0)))
    """How long a retry waits for a token of the budget; ``None`` if there is no budget."""


@frozen(kw_only=True)
class RetryAt:
    """Retry after a delay."""

    delay_s: float = field(validator=number(0))
    reason: RetryReason = field(validator=instance(RetryReason))
    attempt: int = field(validator=integer(1))
    """The number of the next attempt."""
    rate_limited: int = field(validator=integer(0))
    """How often the operation has been rate-limited, including this failure."""


@frozen(kw_only=True)
class GiveUp:
    """Do not retry."""

    reason: GiveUpReason = field(validator=instance(GiveUpReason))
    attempts: int = field(validator=integer(1))
    """The total number of charged attempts."""

    @property
    def is_final(self) -> bool:
        """Whether the error itself is final. The caller then gets the original error."""
        return self.reason is GiveUpReason.FINAL


Decision: TypeAlias = RetryAt | GiveUp


DECISION_VERSION = 2
"""The version of ``decide`` and of the delays that it uses. Raise it when any answer changes, and
keep the earlier answers: decision records carry it, so that they replay to the byte.

Version 1 gave up when the retry budget was empty, and charged a wait that the server asked for.
"""
_VERSION_BUDGET_CANCELS = 1


def decide(policy: RetryPolicy, failure: Failure, *, version: int = DECISION_VERSION) -> Decision:
    """Return whether and when to retry after a failed attempt."""
    error = failure.error
    if isinstance(error, Final):
        return GiveUp(reason=GiveUpReason.FINAL, attempts=failure.attempt)

    rate_limited = failure.rate_limited
    hint_s = None
    if isinstance(error, RateLimited):
        hint_s = error.retry_after_s
        rate_limited += 1
        if rate_limited > policy.max_rate_limited:
            reason = GiveUpReason.RATE_LIMIT_EXHAUSTED
            return GiveUp(reason=reason, attempts=failure.attempt)

    if hint_s is not None:  # a wait with a hint is not charged as an attempt
        retry = RetryAt(
            delay_s=cap_retry_after(hint_s, policy),
            reason=RetryReason.RETRY_AFTER,
            attempt=failure.attempt,
            rate_limited=rate_limited,
        )
    elif failure.attempt >= policy.max_attempts:
        return GiveUp(reason=GiveUpReason.ATTEMPTS_EXHAUSTED, attempts=failure.attempt)
    else:
        retry = RetryAt(
            delay_s=compute_jittered_delay(policy, failure.attempt, failure.key),
            reason=RetryReason.BACKOFF,
            attempt=failure.attempt + 1,
            rate_limited=rate_limited,
        )
    if version == _VERSION_BUDGET_CANCELS:
        tokens = failure.budget_tokens
        if tokens is not None and not can_pay_retry(tokens):
            return GiveUp(reason=GiveUpReason.BUDGET_EXHAUSTED, attempts=failure.attempt)
    else:
        retry = _await_token(retry, failure)
    if policy.deadline_s is not None and failure.elapsed_s + retry.delay_s >= policy.deadline_s:
        return GiveUp(reason=GiveUpReason.DEADLINE_EXCEEDED, attempts=failure.attempt)
    return retry


def cap_retry_after(hint_s: float, policy: RetryPolicy) -> float:
    """Return the requested wait, limited by the policy."""
    return min(hint_s, policy.max_retry_after_s)


def costs_token(decision: Decision) -> bool:
    """Return whether a decision takes a token from the retry budget.

    A wait that the server asked for takes none.
    """
    return isinstance(decision, RetryAt) and decision.reason is not RetryReason.RETRY_AFTER


def _await_token(retry: RetryAt, failure: Failure) -> RetryAt:
    """Return the retry, delayed until the retry budget has a token for it."""
    wait_s = failure.budget_wait_s or 0.0
    if not costs_token(retry) or wait_s <= retry.delay_s:
        return retry
    return evolve(retry, delay_s=wait_s, reason=RetryReason.RETRY_BUDGET)


def calculate_next_retry(
    retry_count: int,
    error_class: ErrorClass,
    config: RetryPolicy,
    *,
    now: datetime,
    key: str = "",
    rate_limited: int = 0,
    age_s: float = 0.0,
) -> datetime | None:
    """Return when a run that failed after ``retry_count`` retries may be retried; ``None`` for
    never.

    A policy with jitter needs the run's ``key``; otherwise all runs would retry at the same time.
    """
    check_aware(now)
    if config.jitter_enabled and not key:
        raise InvalidValueError(
            field="key", value=key, problem="must name the run, since the policy has jitter"
        )
    decision = decide(
        config,
        Failure(
            key=key,
            attempt=retry_count + 1,
            error=error_class,
            rate_limited=rate_limited,
            elapsed_s=age_s,
        ),
    )
    return now + timedelta(seconds=decision.delay_s) if isinstance(decision, RetryAt) else None
