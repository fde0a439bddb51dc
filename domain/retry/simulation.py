"""Simulates a policy: its schedule for a persistent error, and the course of one operation."""

from collections.abc import Iterable

from attrs import evolve, frozen

from tileferry.domain.retry.classify import ErrorClass
from tileferry.domain.retry.decision import (
    Decision,
    Failure,
    GiveUpReason,
    RetryAt,
    RetryReason,
    decide,
)
from tileferry.domain.retry.delays import compute_nominal_delay
from tileferry.domain.retry.policy import RetryPolicy


@frozen(kw_only=True)
class ScheduledWait:
    """The wait after one failed call."""

    call: int
    """The number of the failed call, from 1."""
    attempt: int
    """The number of the charged attempt. A rate-limited call has the same number as the next call.
    """
    reason: RetryReason
    delay_s: float
    """Before jitter."""
    delay_s_min: float
    delay_s_max: float
    total_s_max: float
    """The maximum total of this wait and all earlier ones."""


@frozen(kw_only=True)
class RetrySchedule:
    """All waits, and why there are no more."""

    waits: tuple[ScheduledWait, ...]
    calls: int
    """The total number of calls."""
    ends_by: GiveUpReason

    @property
    def worst_case_s(self) -> float:
        """The maximum total of all waits, without the duration of the calls."""
        return self.waits[-1].total_s_max if self.waits else 0.0


def build_schedule(policy: RetryPolicy, error: ErrorClass) -> RetrySchedule:
    """Return the waits of a policy for an error that occurs on every call.

    Calls are assumed to take no time. The deadline is checked against the waits before jitter.
    """
    plain = evolve(policy, jitter_enabled=False)
    waits: list[ScheduledWait] = []
    failure = Failure(key="", attempt=1, error=error)
    total_s_max = 0.0
    while isinstance(decision := decide(plain, failure), RetryAt):
        shortest_s, longest_s = _compute_bounds(policy, failure.attempt, decision)
        total_s_max += longest_s
        if policy.deadline_s is not None:  # no retry starts after it, regardless of the jitter
            total_s_max = min(total_s_max, policy.deadline_s)
        waits.append(
            ScheduledWait(
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
    return RetrySchedule(waits=tuple(waits), calls=len(waits) + 1, ends_by=decision.reason)


def _compute_bounds(policy: RetryPolicy, attempt: int, decision: RetryAt) -> tuple[float, float]:
    """Return the minimum and maximum of a wait with jitter."""
    if decision.reason is RetryReason.RETRY_AFTER or not policy.jitter_enabled:
        return decision.delay_s, decision.delay_s
    nominal_s = compute_nominal_delay(policy, attempt)
    spread_s = nominal_s * policy.jitter_factor
    return nominal_s - spread_s, min(nominal_s + spread_s, policy.max_delay)


@frozen(kw_only=True)
class SimulatedAttempt:
    """A failed attempt and the decision."""

    started_s: float
    """Seconds after the start of the first attempt."""
    failure: Failure
    decision: Decision


@frozen(kw_only=True)
class Simulation:
    """The simulated course of an operation."""

    failures: tuple[SimulatedAttempt, ...]
    succeeds: bool
    waited_s: float
    """Total seconds spent waiting."""

    @property
    def attempts(self) -> int:
        """The number of calls, including the successful one."""
        return len(self.failures) + self.succeeds


def simulate(
    policy: RetryPolicy, errors: Iterable[ErrorClass], *, key: str, call_s: float = 0.0
) -> Simulation:
    """Simulate an operation whose first calls fail with ``errors`` and whose next call succeeds.

    Each call takes ``call_s``. The simulation ends early if the policy gives up.
    """
    failures: list[SimulatedAttempt] = []
    attempt, rate_limited, started_s, waited_s = 1, 0, 0.0, 0.0
    for error in errors:
        failure = Failure(
            key=key,
            attempt=attempt,
            error=error,
            rate_limited=rate_limited,
            elapsed_s=started_s + call_s,
        )
        decision = decide(policy, failure)
        failures.append(SimulatedAttempt(started_s=started_s, failure=failure, decision=decision))
        if not isinstance(decision, RetryAt):
            return Simulation(failures=tuple(failures), succeeds=False, waited_s=waited_s)
        attempt, rate_limited = decision.attempt, decision.rate_limited
        started_s += call_s + decision.delay_s
        waited_s += decision.delay_s
    return Simulation(failures=tuple(failures), succeeds=True, waited_s=waited_s)
