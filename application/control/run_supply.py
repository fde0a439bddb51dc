"""Where a worker gets its runs from, and tells of those that just passed."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from attrs import define, field

from tileferry.application.control.leases import HeldRuns, lost
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.work import RunQueue
from tileferry.domain.runs import Run, RunId, RunKind, WorkerId

_KEEP_BACK_S = 0.5
"""How long a pass may be kept back, to be reported with others."""


@define(kw_only=True, eq=False)
class RunSupply:
    """Claims runs in batches, and reports passes together with the next claim."""

    queue: RunQueue
    held: HeldRuns
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

    def next_batch(self) -> Sequence[Run]:
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
        self.held.took(claimed, asked_s=asked_s)
        try:
            self._check(passed, kept)
        except BaseException:
            self.give_back(claimed)
            raise
        return claimed

    def passed(self, run: Run) -> None:
        """Note that a run has passed. Until that is reported its lease goes on.

        A crash in between has the run done once more, which its kind allows.
        """
        if not self._passed:
            self._passed_since_s = self.clock.monotonic()
        self._passed.append(run)
        self.flush_late()

    def flush_late(self) -> None:
        """Tell the queue what has passed, once that was kept back for long enough."""
        if self._passed and self.clock.monotonic() - self._passed_since_s >= _KEEP_BACK_S:
            self.flush()

    def flush(self) -> None:
        """Tell the queue what has passed."""
        if self._passed:
            kept = self.queue.complete(self._passed)
            passed, self._passed = self._passed, []
            self._check(passed, kept)

    def _check(self, passed: Sequence[Run], kept: Sequence[RunId]) -> None:
        """Stop a worker that has passed a run which was not its own any more."""
        for run in passed:
            self.held.ended(run)
        counted = set(kept)
        for run in passed:
            if run.run_id not in counted:
                raise lost(run)
