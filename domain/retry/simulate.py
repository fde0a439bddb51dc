"""A policy played through without waiting: what would happen, when, and how long at the worst."""

from collections.abc import Iterable

from attrs import frozen

from tileferry.domain.retry.classify import ErrorClass
from tileferry.domain.retry.decide import Decision, Failure, RetryAt, decide
from tileferry.domain.retry.policy import RetryPolicy


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
