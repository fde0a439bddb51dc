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
    """The runs of a worker. The heart beats in another thread than the work is done in."""

    queue: RunQueue
    clock: Clock
    lease: timedelta
    _runs: dict[RunId, Run] = field(factory=dict, init=False)
    """Those that have not ended."""
    _sure_until_s: float = field(default=0.0, init=False)
    """Until then, by the monotonic clock, nobody else can have them."""
    _lost: set[RunId] = field(factory=set, init=False)

    @property
    def every_s(self) -> float:
        """How often the heart has to beat."""
        return self.lease.total_seconds() / BEATS_PER_LEASE

    def took(self, claimed: Sequence[Run], *, asked_s: float) -> None:
        """Hold what was claimed, at some time after it was asked for."""
        self._sure_until_s = asked_s + self.lease.total_seconds()
        self._runs = {run.run_id: run for run in claimed}

    def beat(self) -> bool:
        """Renew the leases there are; it has to be done again and again."""
        runs = self._runs  # another claim has another
        held = list(runs.values())
        if not held:
            return True
        asked_s = self.clock.monotonic()
        try:
            renewed = self.queue.renew(held, lease=self.lease)
        except DatabaseError:
            return True  # it may be back before the leases are over
        # One that ended in the meantime could not be renewed, and is not lost.
        gone = {run.run_id for run in held} - set(renewed)
        self._lost |= gone & runs.keys()
        if runs is self._runs:
            self._sure_until_s = asked_s + self.lease.total_seconds()
        return True

    def ended(self, run: Run) -> None:
        """Renew the lease of this one no more."""
        self._runs.pop(run.run_id, None)

    def check(self, run: Run) -> None:
        """Stop a worker that may not work on a run any more.

        That is one whose lease was lost, and one that was asleep for so long that it must be.
        """
        if run.run_id in self._lost or self.clock.monotonic() >= self._sure_until_s:
            raise LeaseLostError(
                run_id=run.run_id, worker=run.lease_owner or "", epoch=run.lease_epoch
            )
