"""What a policy does about an error that stays: each wait with its bounds, and the end."""

from collections.abc import Iterable

from attrs import evolve, frozen

from tileferry.domain.retry.classify import ErrorClass
from tileferry.domain.retry.decide import (
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
class RetrySchedule:
    """All waits, and why there are no more."""

    waits: tuple[ScheduledWait, ...]
    calls: int
    """Calls made in all."""
    ends_by: GiveUpReason

    @property
    def worst_case_s(self) -> float:
        """The most that all waits can add up to; the calls' own time comes on top."""
        return self.waits[-1].total_s_max if self.waits else 0.0


def build_schedule(policy: RetryPolicy, error: ErrorClass) -> RetrySchedule:
    """Play a policy through against one error that comes back every time.

    Calls are taken to need no time. A deadline is held against the waits without their jitter.
    """
    plain = evolve(policy, jitter_enabled=False)
    waits: list[ScheduledWait] = []
    failure = Failure(key="", attempt=1, error=error)
    total_s_max = 0.0
    while isinstance(decision := decide(plain, failure), RetryAt):
        shortest_s, longest_s = _compute_bounds(policy, failure.attempt, decision)
        total_s_max += longest_s
        if policy.deadline_s is not None:  # no retry begins after it, whatever the jitter
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
    """Return the shortest and the longest that jitter makes of a wait."""
    if decision.reason is RetryReason.RETRY_AFTER or not policy.jitter_enabled:
        return decision.delay_s, decision.delay_s
    nominal_s = compute_nominal_delay(policy, attempt)
    spread_s = nominal_s * policy.jitter_factor
    return nominal_s - spread_s, min(nominal_s + spread_s, policy.max_delay)


@frozen(kw_only=True)
class SimulatedAttempt:
    """An attempt that failed, and what was decided."""

    started_s: float
    """Seconds after the first attempt began."""
    failure: Failure
    decision: Decision


@frozen(kw_only=True)
class Simulation:
    """How an operation would go."""

    failures: tuple[SimulatedAttempt, ...]
    succeeds: bool
    waited_s: float
    """Seconds spent waiting, in all."""

    @property
    def attempts(self) -> int:
        """Calls made, the successful one included."""
        return len(self.failures) + self.succeeds


def simulate(
    policy: RetryPolicy, errors: Iterable[ErrorClass], *, key: str, call_s: float = 0.0
) -> Simulation:
    """Play an operation whose first calls fail with ``errors`` and whose next one succeeds.

    Each call takes ``call_s``. The simulation ends early when the policy gives up.
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
