"""What a policy does about an error that stays: each wait with its bounds, and the end."""

from attrs import evolve, frozen

from tileferry.domain.retry.backoff import nominal_delay
from tileferry.domain.retry.classify import ErrorClass
from tileferry.domain.retry.decide import Failure, GiveUpReason, RetryAt, RetryReason, decide
from tileferry.domain.retry.policy import RetryPolicy


@frozen(kw_only=True)
class Wait:
    """The wait that follows one failed call."""

    call: int
    """Which call failed, from 1."""
    attempt: int
    """The attempt it was charged as; a call that was told to wait is charged with its successor."""
    reason: RetryReason
    delay_s: float
    """Without jitter."""
    delay_s_min: float
    delay_s_max: float
    total_s_max: float
    """The most that this wait and all before it can add up to."""


@frozen(kw_only=True)
class Schedule:
    """All waits, and why there are no more."""

    waits: tuple[Wait, ...]
    calls: int
    """Calls made in all."""
    ends_by: GiveUpReason

    @property
    def worst_case_s(self) -> float:
        """The most that all waits can add up to; the calls' own time comes on top."""
        return self.waits[-1].total_s_max if self.waits else 0.0


def schedule(policy: RetryPolicy, error: ErrorClass) -> Schedule:
    """Play a policy through against one error that comes back every time.

    Calls are taken to need no time. A deadline is held against the waits without their jitter.
    """
    plain = evolve(policy, jitter_enabled=False)
    waits: list[Wait] = []
    failure = Failure(key="", attempt=1, error=error)
    total_s_max = 0.0
    while isinstance(decision := decide(plain, failure), RetryAt):
        shortest_s, longest_s = _bounds(policy, failure.attempt, decision)
        total_s_max += longest_s
        if policy.deadline_s is not None:  # no retry begins after it, whatever the jitter
            total_s_max = min(total_s_max, policy.deadline_s)
        waits.append(
            Wait(
                call=len(waits) + 1,
                attempt=failure.attempt,
                reason=decision.reason,
                delay_s=decision.delay_s,
                delay_s_min=shortest_s,
                delay_s_max=longest_s,
                total_s_max=total_s_max,
            )
        )
        failure = evolve(
            failure,
            attempt=decision.attempt,
            rate_limited=decision.rate_limited,
            elapsed_s=failure.elapsed_s + decision.delay_s,
        )
    return Schedule(waits=tuple(waits), calls=len(waits) + 1, ends_by=decision.reason)


def _bounds(policy: RetryPolicy, attempt: int, decision: RetryAt) -> tuple[float, float]:
    """Return the shortest and the longest that jitter makes of a wait."""
    if decision.reason is RetryReason.RETRY_AFTER or not policy.jitter_enabled:
        return decision.delay_s, decision.delay_s
    nominal_s = nominal_delay(policy, attempt)
    spread_s = nominal_s * policy.jitter_factor
    return nominal_s - spread_s, min(nominal_s + spread_s, policy.max_delay)
