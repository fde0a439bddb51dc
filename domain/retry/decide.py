"""The one retry decision: everything that retries asks here; no delay is computed elsewhere."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from attrs import field, frozen, validators

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry.budget import can_pay_retry
from tileferry.domain.retry.classify import ErrorClass, Final, RateLimited, Retryable
from tileferry.domain.retry.delays import compute_jittered_delay
from tileferry.domain.retry.policy import RetryPolicy
from tileferry.domain.validation import check_aware, instance, integer, number, unicode


class RetryReason(StrEnum):
    """Why there will be another attempt, and where its delay comes from."""

    BACKOFF = "backoff"
    RETRY_AFTER = "retry_after"


class GiveUpReason(StrEnum):
    """Why there will be none."""

    FINAL = "final"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    RATE_LIMIT_EXHAUSTED = "rate_limit_exhausted"
    BUDGET_EXHAUSTED = "budget_exhausted"
    DEADLINE_EXCEEDED = "deadline_exceeded"

    @property
    def explanation(self) -> str:
        """The reason in words."""
        return _EXPLANATIONS[self]


_EXPLANATIONS = {
    GiveUpReason.FINAL: "trying again cannot help",
    GiveUpReason.ATTEMPTS_EXHAUSTED: "all attempts are used up",
    GiveUpReason.RATE_LIMIT_EXHAUSTED: "the other side limits our rate and stays at it",
    GiveUpReason.BUDGET_EXHAUSTED: "the retry budget is empty, so that an outage is not made worse",
    GiveUpReason.DEADLINE_EXCEEDED: "the next attempt would start after the deadline",
}


@frozen(kw_only=True)
class Failure:
    """One failed attempt, as the decision sees it."""

    key: str = field(validator=unicode)
    """What the jitter is derived from: an idempotency key, or an id of the call."""
    attempt: int = field(validator=integer(1))
    """Which charged attempt this was, from 1. One that was only told to wait is not charged."""
    error: ErrorClass = field(validator=instance(Final, Retryable, RateLimited))
    rate_limited: int = field(default=0, validator=integer(0))
    """How often this operation was rate limited before this failure."""
    elapsed_s: float = field(default=0.0, validator=number(0))
    """Time since the first attempt began."""
    budget_tokens: float | None = field(default=None, validator=validators.optional(number(0)))
    """What the retry budget holds; ``None`` when none applies."""


@frozen(kw_only=True)
class RetryAt:
    """Try again after a delay."""

    delay_s: float = field(validator=number(0))
    reason: RetryReason = field(validator=instance(RetryReason))
    attempt: int = field(validator=integer(1))
    """The number that the next attempt carries."""
    rate_limited: int = field(validator=integer(0))
    """How often the operation has been rate limited by now."""


@frozen(kw_only=True)
class GiveUp:
    """Do not try again."""

    reason: GiveUpReason = field(validator=instance(GiveUpReason))
    attempts: int = field(validator=integer(1))
    """Charged attempts in all."""

    @property
    def is_final(self) -> bool:
        """Whether the error itself ended it: then the caller gets that error, as it is."""
        return self.reason is GiveUpReason.FINAL


Decision: TypeAlias = RetryAt | GiveUp


def decide(policy: RetryPolicy, failure: Failure) -> Decision:
    """Decide what follows a failed attempt."""
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

    if hint_s is not None:  # told when to come back: that costs no attempt
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
    return _check_affordable(retry, policy, failure)


def cap_retry_after(hint_s: float, policy: RetryPolicy) -> float:
    """Return how long a wait that the other side asked for may be."""
    return min(hint_s, policy.max_retry_after_s)


def _check_affordable(retry: RetryAt, policy: RetryPolicy, failure: Failure) -> Decision:
    """Withdraw a retry that the budget or the deadline does not allow."""
    if failure.budget_tokens is not None and not can_pay_retry(failure.budget_tokens):
        return GiveUp(reason=GiveUpReason.BUDGET_EXHAUSTED, attempts=failure.attempt)
    if policy.deadline_s is not None and failure.elapsed_s + retry.delay_s >= policy.deadline_s:
        return GiveUp(reason=GiveUpReason.DEADLINE_EXCEEDED, attempts=failure.attempt)
    return retry


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
    """Return when a run that failed after ``retry_count`` retries may be tried again, if ever.

    A policy with jitter needs the run's ``key``; without one all runs would come back in step.
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
