"""Where a worker gets its runs from, and tells of those that just passed."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from attrs import define, field

from tileferry.application.leases import HeldRuns, lost
from tileferry.application.ports.background import Background, Task
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.work import RunQueue
from tileferry.domain.runs import Run, RunId, RunKind, WorkerId

_KEEP_BACK_S = 0.5
"""How long a pass may be kept back, to be reported with others."""


@define(eq=False)
class _Exchange:
    """One exchange of what has passed for what is next."""

    passed: Sequence[Run]
    kept: Sequence[RunId] = ()
    claimed: Sequence[Run] = ()
    task: Task | None = None
    """Where it goes on beside the work."""


@define(kw_only=True, eq=False)
class RunSupply:
    """Claims runs in batches. Of many short runs the next batch comes while one is worked on."""

    queue: RunQueue
    held: HeldRuns
    clock: Clock
    worker: WorkerId
    kinds: Sequence[RunKind]
    sources: Sequence[str] | None = None
    batch: int
    lease: timedelta
    give_back: Callable[[Sequence[Run]], None]
    background: Background | None = None
    _passed: list[Run] = field(factory=list, init=False)
    """Runs that passed, and that the queue does not know of yet."""
    _passed_since_s: float = field(default=0.0, init=False)
    _ahead: _Exchange | None = field(default=None, init=False)

    def next_batch(self) -> Sequence[Run]:
        """Tell the queue what has passed, and return what is to be done next."""
        exchange = self._ahead or self._begun(None)
        self._ahead = None
        claimed = self._ended(exchange)
        # A batch that is not full was the last for now. One run at a time is for long ones: the
        # next of those is better off with a worker that has nothing to do.
        if self.background is not None and len(claimed) == self.batch > 1:
            self._ahead = self._begun(self.background)
        return claimed

    def passed(self, run: Run) -> None:
        """Note that a run has passed. Until that is reported its lease goes on.

        A crash in between has the run done once more, which its kind allows.
        """
        now_s = self.clock.monotonic()
        if not self._passed:
            self._passed_since_s = now_s
        self._passed.append(run)
        self.flush_late()

    def flush_late(self) -> None:
        """Tell the queue what has passed, once that was kept back for long enough."""
        if self._passed and self.clock.monotonic() - self._passed_since_s >= _KEEP_BACK_S:
            self.flush()

    def flush(self) -> None:
        """Tell the queue what has passed."""
        if self._passed:
            passed, self._passed = self._passed, []
            try:
                kept = self.queue.complete(passed)
            except BaseException:
                self._passed = passed + self._passed
                raise
            self._check(passed, kept)

    def stop(self) -> None:
        """Tell what has passed, and give back what was claimed ahead."""
        exchange, self._ahead = self._ahead, None
        try:
            if exchange is not None:
                self.give_back(self._ended(exchange))
        finally:
            self.flush()

    # The steps

    def _begun(self, background: Background | None) -> _Exchange:
        exchange = _Exchange(self._passed)
        self._passed = []

        def carry_out() -> None:
            asked_s = self.clock.monotonic()
            exchange.kept, exchange.claimed = self.queue.exchange(
                exchange.passed,
                self.worker,
                limit=self.batch,
                lease=self.lease,
                kinds=self.kinds,
                sources=self.sources,
            )
            self.held.took(exchange.claimed, asked_s=asked_s)

        if background is not None:
            exchange.task = background.submit(carry_out)
            return exchange
        try:
            carry_out()
        except BaseException:
            self._passed = [*exchange.passed, *self._passed]
            raise
        return exchange

    def _ended(self, exchange: _Exchange) -> Sequence[Run]:
        """Wait for the end of an exchange, and return what it brought."""
        error = None if exchange.task is None else exchange.task.exception()
        if error is not None:
            self._passed = [*exchange.passed, *self._passed]
            raise error
        try:
            self._check(exchange.passed, exchange.kept)
        except BaseException:
            self.give_back(exchange.claimed)
            raise
        return exchange.claimed

    def _check(self, passed: Sequence[Run], kept: Sequence[RunId]) -> None:
        """Stop a worker that has passed a run which was not its own any more."""
        for run in passed:
            self.held.ended(run)
        counted = set(kept)
        for run in passed:
            if run.run_id not in counted:
                raise lost(run)
