"""The runs that a worker has claimed: lease renewal, and batched claims and reports."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from attrs import define, field

from tileferry.application.ports.clock import Clock
from tileferry.application.ports.work import RunQueue
from tileferry.domain.errors import DatabaseError, LeaseLostError
from tileferry.domain.runs import Run, RunId, RunKind, RunProgress, WorkerId

BEATS_PER_LEASE = 3
"""Two heartbeats may fail before a lease expires."""
BEAT_S_MAX = 5.0


@define(kw_only=True, eq=False)
class LeasedRuns:
    """The runs that a worker holds. Its threads claim them, process them and renew their leases."""

    queue: RunQueue
    clock: Clock
    lease: timedelta
    get_progress: Callable[[RunId], RunProgress | None] = lambda _run_id: None
    """Returns the progress to report with a renewal."""
    call_patiently: Callable[[Callable[[], None]], None] = lambda call: call()
    """Makes a call to the queue, and repeats it while the database is away."""
    _runs: dict[RunId, Run] = field(factory=dict, init=False)
    """Runs that have not ended."""
    _sure_until_s: dict[RunId, float] = field(factory=dict, init=False)
    """Until this time (monotonic clock) no other worker can hold the run."""

    @property
    def every_s(self) -> float:
        """The interval between heartbeats, which also report progress and notice a cancel."""
        return min(self.lease.total_seconds() / BEATS_PER_LEASE, BEAT_S_MAX)

    def hold(self, claimed: Sequence[Run], *, asked_s: float) -> None:
        """Hold claimed runs; their leases count from ``asked_s``, when the claim was requested."""
        until_s = asked_s + self.lease.total_seconds()
        self._sure_until_s.update((run.run_id, until_s) for run in claimed)
        self._runs.update((run.run_id, run) for run in claimed)

    def renew_leases(self) -> bool:
        """Renew all leases; the caller repeats this every ``every_s`` seconds."""
        held = list(self._runs.values())
        if not held:
            return True
        try:
            self._renew(held)
        except DatabaseError:
            return True  # the next heartbeat tries again
        return True

    def _renew(self, held: Sequence[Run]) -> None:
        asked_s = self.clock.monotonic()
        renewed = set(
            self.queue.renew(held, lease=self.lease, progress=self._collect_progress(held))
        )
        until_s = asked_s + self.lease.total_seconds()
        for run in held:
            if self._runs.get(run.run_id) is run:  # it may have ended during the renewal
                self._sure_until_s[run.run_id] = until_s if run.run_id in renewed else 0.0

    def _collect_progress(self, held: Sequence[Run]) -> dict[RunId, RunProgress]:
        found = {run.run_id: self.get_progress(run.run_id) for run in held}
        return {run_id: progress for run_id, progress in found.items() if progress is not None}

    def drop(self, run: Run) -> None:
        """Stop renewing the lease of a run."""
        self._runs.pop(run.run_id, None)
        self._sure_until_s.pop(run.run_id, None)

    def check(self, run: Run) -> None:
        """Raise ``LeaseLostError`` if the worker may no longer process the run.

        If the lease may have expired, because the database was away or this process was suspended,
        it is renewed first: the work stands still until it is known that nobody else has the run.
        """
        if not self._is_sure(run) and self._sure_until_s.get(run.run_id):
            self.call_patiently(lambda: self._renew([run]))
        if not self._is_sure(run):
            raise lease_lost_error(run)

    def _is_sure(self, run: Run) -> bool:
        return self.clock.monotonic() < self._sure_until_s.get(run.run_id, 0.0)


def lease_lost_error(run: Run) -> LeaseLostError:
    return LeaseLostError(run_id=run.run_id, worker=run.lease_owner or "", epoch=run.lease_epoch)


_KEEP_BACK_S = 0.5
"""Maximum delay before a passed run is reported, so that several are reported together."""


@define(kw_only=True, eq=False)
class RunClaimer:
    """Claims runs in batches, and reports passed runs together with the next claim."""

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
    """Passed runs that are not reported to the queue yet."""
    _passed_since_s: float = field(default=0.0, init=False)

    def claim_batch(self) -> Sequence[Run]:
        """Report the passed runs and return the next runs to process."""
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
        """Record that a run has passed. Its lease is renewed until that is reported.

        After a crash in between, the run is processed again; its kind allows that.
        """
        if not self._passed:
            self._passed_since_s = self.clock.monotonic()
        self._passed.append(run)
        self.flush_if_late()

    def flush_if_late(self) -> None:
        """Report the passed runs if the oldest has reached the maximum delay.

        While the database is away they are kept; it is not the failure of another run.
        """
        now_s = self.clock.monotonic()
        if not self._passed or now_s - self._passed_since_s < _KEEP_BACK_S:
            return
        try:
            self.flush()
        except DatabaseError as error:
            if not error.is_unreachable:
                raise
            self._passed_since_s = now_s

    def flush(self) -> None:
        """Report the passed runs to the queue."""
        if self._passed:
            kept = self.queue.complete(self._passed)
            passed, self._passed = self._passed, []
            self._check_leases(passed, kept)

    def _check_leases(self, passed: Sequence[Run], kept: Sequence[RunId]) -> None:
        """Raise if a passed run no longer belonged to this worker."""
        for run in passed:
            self.held.drop(run)
        counted = set(kept)
        missing = [run for run in passed if run.run_id not in counted]
        cancelled = self.queue.find_cancelled(missing) if missing else ()
        for run in missing:
            if run.run_id not in cancelled:
                raise lease_lost_error(run)
