"""Several worker processes under one command: starts them, and restarts those that crash."""

from collections.abc import Callable, Collection
from typing import Protocol

from attrs import define, field, frozen

from tileferry.application.ports.clock import Clock
from tileferry.domain.retry import Failure, Final, GiveUp, Retryable, RetryPolicy, decide

RESTART_POLICY = RetryPolicy(max_attempts=8, base_delay=0.5, max_delay=30.0, name="worker")
_STEADY_S = 60.0
_CHECK_S = 0.05


class FleetMember(Protocol):
    """A worker process."""

    def poll(self) -> int | None:
        """Return its exit code, negative for the signal that killed it; ``None`` if it runs."""
        ...


@frozen(kw_only=True)
class FleetRestart:
    """A worker crashed, and is started again after a delay."""

    number: int
    exit_code: int
    delay_s: float


@define(kw_only=True)
class _Place:
    """One of the workers: the current process, or when to start the next one."""

    number: int
    member: FleetMember | None = None
    start_at_s: float = 0.0
    started_s: float = 0.0
    attempt: int = 1
    exit_code: int | None = None
    """How it ended for good."""


@define(kw_only=True)
class WorkerFleet:
    """Keeps a number of workers running until each has ended for good."""

    name: str
    count: int
    start: Callable[[int], FleetMember]
    """Starts the worker with this number, from 1."""
    stop_all: Callable[[], None]
    """Asks all running workers to drain."""
    clock: Clock
    is_stopping: Callable[[], bool]
    ended_codes: Collection[int]
    """Exit codes of a worker that has nothing left to do."""
    final_codes: Collection[int]
    """Exit codes that another start would only repeat."""
    on_restart: Callable[[FleetRestart], None]
    policy: RetryPolicy = RESTART_POLICY
    lost: list[int] = field(factory=list, init=False)
    """The exit codes of workers that were given up."""
    _gave_up: bool = field(default=False, init=False)

    def run(self) -> list[int]:
        """Run until all workers have ended; return their exit codes.

        A worker that crashed is started again after a delay. If one crashes too often in a row, the
        others drain.
        """
        places = [_Place(number=number) for number in range(1, self.count + 1)]
        while any(place.exit_code is None for place in places):
            for place in places:
                if place.exit_code is None:
                    self._look(place)
            self.clock.sleep(_CHECK_S)
        return [place.exit_code for place in places if place.exit_code is not None]

    def _look(self, place: _Place) -> None:
        now_s = self.clock.monotonic()
        is_stopping = self._gave_up or self.is_stopping()
        if place.member is None:
            if is_stopping:
                place.exit_code = 0
            elif now_s >= place.start_at_s:
                place.member, place.started_s = self.start(place.number), now_s
            return
        code = place.member.poll()
        if code is None:
            return
        place.member = None
        if is_stopping or code in self.ended_codes:
            place.exit_code = code
        else:
            self._plan_restart(place, code, now_s)

    def _plan_restart(self, place: _Place, code: int, now_s: float) -> None:
        if now_s - place.started_s >= _STEADY_S:
            place.attempt = 1
        error = Final() if code in self.final_codes else Retryable()
        failure = Failure(key=f"{self.name}-{place.number}", attempt=place.attempt, error=error)
        decision = decide(self.policy, failure)
        if isinstance(decision, GiveUp):
            place.exit_code = code
            self.lost.append(code)
            self._gave_up = True
            self.stop_all()
            return
        place.attempt = decision.attempt
        place.start_at_s = now_s + decision.delay_s
        self.on_restart(FleetRestart(number=place.number, exit_code=code, delay_s=decision.delay_s))
