"""The simulated parts of the queue: its database, and the work of runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define

from simulation.threads import Signal
from simulation.world import World
from tileferry.adapters.memory import MemoryAuditSink, MemoryWork
from tileferry.adapters.memory.work_unit import MemoryWorkUnit
from tileferry.domain.errors import InvalidValueError, RateLimitedError, SatelliteProviderError
from tileferry.domain.runs import Run, has_ended
from tileferry.domain.tiles import ProviderFault

IDLE_S = 600.0
STEP_S_MAX = 20.0


@define(eq=False)
class SimulatedJob:
    """The work of runs that have no partition: a few steps, any of which may fail."""

    world: World

    def do_step(self, run: Run) -> None:
        """Do a part of the work of a run."""
        world = self.world
        world.wait(0.1 + (STEP_S_MAX - 0.1) * world.schedule.random() ** 3)
        drawn = world.schedule.random()
        if drawn < 0.03:
            raise InvalidValueError(field="bbox", value=run.run_id, problem="cannot be served")
        if drawn < 0.1:
            raise SatelliteProviderError(reason="HTTP 503", fault=ProviderFault.UNREACHABLE)
        if drawn < 0.14:
            wait_s = (None, 5.0, 300.0)[int(world.schedule.random() * 3)]
            raise RateLimitedError(url="https://tiles", attempts=1, retry_after_s=wait_s)


class SimulatedWork(MemoryWork):
    """The database of the control plane; it tells waiting workers when a run is submitted."""

    def __init__(self, world: World, audit_log: MemoryAuditSink) -> None:
        super().__init__(clock=world, audit_sink=audit_log)
        self.submitted = Signal(world)

    def wait(self, seconds: float) -> bool:
        """Wait for a run, or for a stop of the worker."""
        data = self.submitted.world.current.process.data
        data["idle"] = True
        is_told = not self.submitted.wait(seconds)
        data["idle"] = False
        data["heartbeat"].resumed.set()
        return is_told

    @contextmanager
    def open_unit(self, *, by: str | None = None) -> Iterator[MemoryWorkUnit]:
        known = len(self._books.runs)
        with super().open_unit(by=by) as unit:
            yield unit
        if len(self._books.runs) > known:
            self.submitted.set()

    def wait_for_work(self, late_s: float) -> None:
        """Wait until something is due, as a timer does that starts workers, and a little more."""
        while (wait_s := self._get_wait_s()) > 0:
            self.submitted.wait(wait_s + late_s)

    def _get_wait_s(self) -> float:
        books, now = self._books, self.now()
        opens_at = {gate.source: gate.closed_until or now for gate in books.gates.values()}
        times = [
            run.lease_expires_at or max(run.next_retry_at or now, opens_at[run.source])
            for run in books.runs.values()
            if not has_ended(run)
        ]
        times += [retry.next_run_at for retry in books.retries.values()]
        return min(((time - now).total_seconds() for time in times), default=IDLE_S)
