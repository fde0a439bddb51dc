"""What a worker holds: its leases are renewed beside its work, and it stops when one is lost."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from attrs import define, field

from tileferry.application.ports.clock import Clock
from tileferry.application.ports.work import RunQueue
from tileferry.domain.errors import DatabaseError, LeaseLostError
from tileferry.domain.runs import Run, RunId, RunKind, WorkerId

BEATS_PER_LEASE = 3
"""Two beats may fail before a lease is over."""


@define(kw_only=True, eq=False)
class LeasedRuns:
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

    def hold(self, claimed: Sequence[Run], *, asked_s: float) -> None:
        """Hold what was claimed, at some time after it was asked for."""
        until_s = asked_s + self.lease.total_seconds()
        self._sure_until_s.update((run.run_id, until_s) for run in claimed)
        self._runs.update((run.run_id, run) for run in claimed)

    def renew_leases(self) -> bool:
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

    def drop(self, run: Run) -> None:
        """Renew the lease of this one no more."""
        self._runs.pop(run.run_id, None)
        self._sure_until_s.pop(run.run_id, None)

    def check(self, run: Run) -> None:
        """Stop a worker that may not work on a run any more.

        That is one whose lease was lost, and one that was asleep for so long that it must be.
        """
        if self.clock.monotonic() >= self._sure_until_s.get(run.run_id, 0.0):
            raise lease_lost_error(run)


def lease_lost_error(run: Run) -> LeaseLostError:
    """Return what a worker is stopped by."""
    return LeaseLostError(run_id=run.run_id, worker=run.lease_owner or "", epoch=run.lease_epoch)


_KEEP_BACK_S = 0.5
"""How long a pass may be kept back, to be reported with others."""


@define(kw_only=True, eq=False)
class RunClaimer:
    """Claims runs in batches, and reports passes together with the next claim."""

    queue: RunQueue
    held: LeasedRuns
    clock: Clock
    worker: WorkerId
    kinds: Sequence[RunKind]
    sources: Sequence[str] | None
    batch: int
    lease: timedelta
    give_back: Callable[[Sequence[Run]], None]
    _passed: list[Run] = field(factory=list, init=False)
    """Runs that passed, and that the queue does not know of yet."""
    _passed_since_s: float = field(default=0.0, init=False)

    def claim_batch(self) -> Sequence[Run]:
        """Tell the queue what has passed, and return what is to be done next."""
        passed, asked_s = self._passed, self.clock.monotonic()
        kept, claimed = self.queue.exchange(
            passed,
            self.worker,
            limit=self.batch,
            lease=self.lease,
            kinds=self.kinds,
            sources=self.sources,
        )
        self._passed = []
        self.held.hold(claimed, asked_s=asked_s)
        try:
            self._check_leases(passed, kept)
        except BaseException:
            self.give_back(claimed)
            raise
        return claimed

    def add_passed(self, run: Run) -> None:
        """Note that a run has passed. Until that is reported its lease goes on.

        A crash in between has the run done once more, which its kind allows.
        """
        if not self._passed:
            self._passed_since_s = self.clock.monotonic()
        self._passed.append(run)
        self.flush_if_late()

    def flush_if_late(self) -> None:
        """Tell the queue what has passed, once that was kept back for long enough."""
        if self._passed and self.clock.monotonic() - self._passed_since_s >= _KEEP_BACK_S:
            self.flush()

    def flush(self) -> None:
        """Tell the queue what has passed."""
        if self._passed:
            kept = self.queue.complete(self._passed)
            passed, self._passed = self._passed, []
            self._check_leases(passed, kept)

    def _check_leases(self, passed: Sequence[Run], kept: Sequence[RunId]) -> None:
        """Stop a worker that has passed a run which was not its own any more."""
        for run in passed:
            self.held.drop(run)
        counted = set(kept)
        for run in passed:
            if run.run_id not in counted:
                raise lease_lost_error(run)
