"""What a worker holds: its leases are renewed beside its work, and it stops when one is lost."""

from collections.abc import Sequence
from datetime import timedelta

from attrs import define, field

from tileferry.application.ports.clock import Clock
from tileferry.application.ports.work import RunQueue
from tileferry.domain.errors import DatabaseError, LeaseLostError
from tileferry.domain.runs import Run, RunId

BEATS_PER_LEASE = 3
"""Two beats may fail before a lease is over."""


@define(kw_only=True, eq=False)
class HeldRuns:
    """The runs of a worker. Threads of its own claim them, work on them, and renew their leases."""

    queue: RunQueue
    clock: Clock
    lease: timedelta
    _runs: dict[RunId, Run] = field(factory=dict, init=False)
    """Those that have not ended."""
    _sure_until_s: dict[RunId, float] = field(factory=dict, init=False)
    """Until then, by the monotonic clock, nobody else can have them."""

    @property
    def every_s(self) -> float:
        """How often the heart has to beat."""
        return self.lease.total_seconds() / BEATS_PER_LEASE

    def took(self, claimed: Sequence[Run], *, asked_s: float) -> None:
        """Hold what was claimed, at some time after it was asked for."""
        until_s = asked_s + self.lease.total_seconds()
        self._sure_until_s.update((run.run_id, until_s) for run in claimed)
        self._runs.update((run.run_id, run) for run in claimed)

    def beat(self) -> bool:
        """Renew the leases there are; it has to be done again and again."""
        held = list(self._runs.values())
        if not held:
            return True
        asked_s = self.clock.monotonic()
        try:
            renewed = set(self.queue.renew(held, lease=self.lease))
        except DatabaseError:
            return True  # it may be back before the leases are over
        until_s = asked_s + self.lease.total_seconds()
        for run in held:
            if self._runs.get(run.run_id) is run:  # and has not ended in the meantime
                self._sure_until_s[run.run_id] = until_s if run.run_id in renewed else 0.0
        return True

    def ended(self, run: Run) -> None:
        """Renew the lease of this one no more."""
        self._runs.pop(run.run_id, None)
        self._sure_until_s.pop(run.run_id, None)

    def check(self, run: Run) -> None:
        """Stop a worker that may not work on a run any more.

        That is one whose lease was lost, and one that was asleep for so long that it must be.
        """
        if self.clock.monotonic() >= self._sure_until_s.get(run.run_id, 0.0):
            raise lost(run)


def lost(run: Run) -> LeaseLostError:
    """Return what a worker is stopped by."""
    return LeaseLostError(run_id=run.run_id, worker=run.lease_owner or "", epoch=run.lease_epoch)
