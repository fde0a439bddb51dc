"""The worker: claims runs, processes them and reports the results.

A worker never decides about retries: it reports, and the policy decides. It also does the
housekeeping of all workers: it rescues overdue runs, starts automatic retries that are due, and
removes expired idempotency keys.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from logging import INFO, Logger
from typing import Protocol, TypeVar

from attrs import define, field, frozen

from tileferry.application.control.key_expiry import KeyExpiry
from tileferry.application.control.partition_control import PartitionControl
from tileferry.application.control.queue_patience import STOP_CHECK_S, QueuePatience
from tileferry.application.control.run_claims import LeasedRuns, RunClaimer
from tileferry.application.control.run_control import RunControl
from tileferry.application.control.run_progress import RunProgressTracker
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.idempotency import Heartbeat
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    ProgressListener,
    QueueReached,
    RunFinished,
    RunStarted,
    WorkerIdle,
)
from tileferry.application.ports.work import ALL_KINDS, RunQueue
from tileferry.domain.errors import DatabaseError, LeaseLostError, TileManagerError
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.runs import (
    Run,
    RunId,
    RunKind,
    RunProgress,
    RunStatus,
    Verdict,
    VerdictOutcome,
    WorkerId,
)
from tileferry.domain.validation import integer, number

Result = TypeVar("Result")


@frozen(kw_only=True)
class RunResult:
    """The verdict of a run, with its raw partition if it has one."""

    verdict: Verdict
    sealed: SealedPartition | None = None


class RunHandler(Protocol):
    """Does the work of one kind of run."""

    def __call__(self, run: Run, check: Callable[[], None], /) -> RunResult:
        """Do the work. Call ``check`` often; it raises when the work has to stop."""
        ...


@frozen(kw_only=True)
class WorkerSettings:
    """The operator's settings of a worker."""

    lease_s: float = field(default=60.0, validator=number(0.1, 86_400))
    batch: int = field(default=1, validator=integer(1, 1_000))
    poll_s: float = field(default=1.0, validator=number(0.01, 3_600))
    sweep_s: float = field(default=5.0, validator=number(0.01, 3_600))
    until_idle: bool = False
    """Whether to stop when nothing is due, and nothing becomes due within the patience."""
    idle_patience_s: float = field(default=10.0, validator=number(0, 86_400))

    @property
    def lease(self) -> timedelta:
        """How long a claim lasts without a heartbeat."""
        return timedelta(seconds=self.lease_s)


@define(kw_only=True)
class Worker:
    """One worker. Any number of workers, on any number of machines, share one queue."""

    name: WorkerId
    queue: RunQueue
    control: RunControl
    partitions: PartitionControl
    keys: KeyExpiry
    handlers: Mapping[RunKind, RunHandler]
    heartbeat: Heartbeat
    clock: Clock
    logger: Logger
    settings: WorkerSettings = field(factory=WorkerSettings)
    kinds: Sequence[RunKind] = ALL_KINDS
    sources: Sequence[str] | None = None
    """The sources to claim runs of; ``None``: all."""
    is_stopping: Callable[[], bool] = lambda: False
    check_stop: Callable[[], None] = lambda: None
    """Raises ``KeyboardInterrupt`` when the current run has to stop as well."""
    stop_check_s: float = STOP_CHECK_S
    """How often to look for a stop request while there is nothing to do."""
    progress: ProgressListener = NULL_LISTENER
    deliver_events: Callable[[], None] = lambda: None
    """Delivers the audit events that wait for their sink; does not raise."""
    tracker: RunProgressTracker | None = None
    """Counts the progress of the current run; it must receive the events of the handlers."""
    ended: Counter[RunStatus] = field(factory=Counter, init=False)
    """The number of processed runs by final status."""
    unfinished: dict[RunId, RunFinished] = field(factory=dict, init=False)
    """The runs whose last attempt by this worker failed, and how; cancelled runs are left out."""
    cancelled: int = field(default=0, init=False)
    """How many of the processed runs an operator cancelled; they are in error."""
    _held: LeasedRuns = field(init=False)
    _supply: RunClaimer = field(init=False)
    _sweep_at_s: float = field(default=0.0, init=False)
    _started_s: float = field(default=0.0, init=False)
    """When the current run was started."""
    _announced_idle: bool = field(default=False, init=False)

    @_held.default
    def _make_leased_runs(self) -> LeasedRuns:
        return LeasedRuns(
            queue=self.queue,
            clock=self.clock,
            lease=self.settings.lease,
            get_progress=self._get_progress,
            call_patiently=self._call_patiently,
        )

    @_supply.default
    def _make_claimer(self) -> RunClaimer:
        return RunClaimer(
            queue=self.queue,
            held=self._held,
            clock=self.clock,
            worker=self.name,
            kinds=self.kinds,
            sources=self.sources,
            batch=self.settings.batch,
            lease=self.settings.lease,
            give_back=self._release_runs,
        )

    @property
    def _patience(self) -> QueuePatience:
        return QueuePatience(
            queue=self.queue,
            clock=self.clock,
            logger=self.logger,
            progress=self.progress,
            is_stopping=self.is_stopping,
            check_stop=self.check_stop,
            stop_check_s=self.stop_check_s,
        )

    @property
    def processed(self) -> int:
        """The number of processed runs."""
        return self.ended.total()

    def run(self) -> None:
        """Process runs until stopped, or with ``until_idle`` until nothing is due any more."""
        with self.heartbeat.start(self._held.renew_leases, every_s=self._held.every_s):
            try:
                self._take_runs()
            finally:
                self._supply.flush()

    def _take_runs(self) -> None:
        failures = 0
        while not self.is_stopping():
            try:
                self._run_housekeeping()
                claimed = self._supply.claim_batch()
                if failures:
                    self.progress(QueueReached(is_reached=True))
                failures = 0
                if claimed:
                    self._announced_idle = False
                    self._process_batch(claimed)
                elif self.settings.until_idle and not self._is_work_near():
                    return
                else:
                    self._patience.wait(self.settings.poll_s)
            except DatabaseError as error:
                failures += 1
                self._patience.wait_for_database(failures, error)

    def _is_work_near(self) -> bool:
        """Return whether a run is due, or will be within the patience.

        A run that is due but was not claimed waits for a token, or another worker is claiming it.
        """
        self._run_housekeeping(now=True)  # it may queue runs
        wait_s = self.queue.get_wait_s(kinds=self.kinds, sources=self.sources)
        if wait_s is None or wait_s > self.settings.idle_patience_s:
            return False
        if not self._announced_idle:
            self._announced_idle = True
            self.progress(WorkerIdle(wait_s=wait_s))
        return True

    def _run_housekeeping(self, *, now: bool = False) -> None:
        now_s = self.clock.monotonic()
        if now_s < self._sweep_at_s and not now:
            return
        self._sweep_at_s = now_s + self.settings.sweep_s
        self.deliver_events()
        for work in (self.control.sweep, self.partitions.retry_due, self.keys.sweep):
            try:
                work()
            except DatabaseError:
                raise
            except (
                TileManagerError
            ) as error:  # the failure concerns no run of this worker, and other workers sweep too
                self.logger.error("%s", error, extra={"kind": "worker.housekeeping_failed"})  # noqa: TRY400  # the message is complete

    def _process_batch(self, claimed: Sequence[Run]) -> None:
        for place, run in enumerate(claimed):
            if self.is_stopping():
                self._release_runs(claimed[place:])
                return
            try:
                self._process(run)
            except KeyboardInterrupt:
                self._release_runs(claimed[place + 1 :])
                raise
            except BaseException:
                for left in claimed[place:]:  # not started: let their leases expire
                    self._held.drop(left)
                raise

    def _release_runs(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self._held.drop(run)
            try:
                self.control.release_run(run)
            except LeaseLostError:
                if not self._is_cancelled(run):
                    raise

    def _process(self, run: Run) -> None:
        """Process one run and report its result, unless an operator cancels it meanwhile."""
        self._log_start(run)
        self._started_s = self.clock.monotonic()
        try:
            self._attempt(run)
        except LeaseLostError as error:
            if error.run_id != run.run_id or not self._is_cancelled(run):
                raise
            self._held.drop(run)
            self.logger.info(
                "run %s was cancelled; its work is stopped",
                run.run_id,
                extra={"kind": "run.cancelled", "run_id": run.run_id, "run_kind": str(run.kind)},
            )
            self._finish(run, RunStatus.ERROR, is_cancelled=True)

    def _attempt(self, run: Run) -> None:
        held = self._held
        try:
            held.check(run)
            self.progress(RunStarted(run_id=run.run_id, kind=run.kind, attempt=run.lease_epoch))
            result = self.handlers[run.kind](run, lambda: self._check(run))
        except LeaseLostError:
            raise
        except Exception as error:  # noqa: BLE001  # the policy decides about every error
            improved = self.tracker is not None and self.tracker.has_improved(run.run_id)
            after = self._report_end(
                run, partial(self.control.process_error, run, error, improved=improved)
            )
            self._finish(
                run,
                RunStatus.ERROR,
                problem=after.error_message,
                next_retry_at=after.next_retry_at,
            )
        except KeyboardInterrupt:
            self._release_runs([run])
            self._announce_end(run, RunStatus.DISCOVERED)
            raise
        except (
            BaseException
        ) as error:  # it ends this worker and may end the next one, so it counts as an attempt
            held.drop(run)
            self.control.process_error(run, error)
            raise
        else:
            self._report(run, result)
            verdict = result.verdict
            self._finish(run, RunStatus(verdict.outcome), problem=verdict.explanation)

    def _is_cancelled(self, run: Run) -> bool:
        """Return whether an operator cancelled the run; ``False`` if the database is away."""
        try:
            return run.run_id in self.queue.find_cancelled([run])
        except DatabaseError:
            return False

    def _finish(
        self,
        run: Run,
        status: RunStatus,
        *,
        problem: str | None = None,
        next_retry_at: datetime | None = None,
        is_cancelled: bool = False,
    ) -> None:
        self.ended[status] += 1
        self.cancelled += is_cancelled
        end = self._announce_end(
            run, status, problem=problem, next_retry_at=next_retry_at, is_cancelled=is_cancelled
        )
        self.unfinished.pop(run.run_id, None)
        if status in {RunStatus.FAILED, RunStatus.ERROR} and not is_cancelled:
            self.unfinished[run.run_id] = end

    def _announce_end(
        self,
        run: Run,
        status: RunStatus,
        *,
        problem: str | None = None,
        next_retry_at: datetime | None = None,
        is_cancelled: bool = False,
    ) -> RunFinished:
        end = RunFinished(
            run_id=run.run_id,
            kind=run.kind,
            status=status,
            duration_s=self.clock.monotonic() - self._started_s,
            progress=self._get_progress(run.run_id),
            problem=problem,
            next_retry_at=next_retry_at,
            is_cancelled=is_cancelled,
        )
        self.progress(end)
        return end

    def _get_progress(self, run_id: RunId) -> RunProgress | None:
        return None if self.tracker is None else self.tracker.get_progress(run_id)

    def _report(self, run: Run, result: RunResult) -> None:
        routine = (
            result.verdict.outcome is VerdictOutcome.PASSED
            and run.kind is not RunKind.ACQUIRE_PARTITION
            # The success of a retry is audited.
            and not (run.retry_count or run.rate_limited_count or run.rescues)
        )
        if not routine:
            self._report_end(
                run,
                partial(self.control.process_result, run, result.verdict, sealed=result.sealed),
            )
            return
        # A pass without a partition changes only the run, so several are reported together.
        self.control.log_end(run, result.verdict)
        self._supply.add_passed(run)

    def _report_end(self, run: Run, report: Callable[[], Result]) -> Result:
        """Report the end of a run; its lease is renewed until the database has the report."""
        try:
            return self._call_patiently(report)
        finally:
            self._held.drop(run)

    def _call_patiently(self, call: Callable[[], Result]) -> Result:
        return self._patience.call(call)

    def _check(self, run: Run) -> None:
        self._held.check(run)
        self._supply.flush_if_late()
        self.check_stop()

    def _log_start(self, run: Run) -> None:
        if not self.logger.isEnabledFor(INFO):
            return
        attempt = "initial attempt" if run.lease_epoch == 1 else f"attempt {run.lease_epoch}"
        self.logger.info(
            "run %s (%s) begins: %s",
            run.run_id,
            run.kind,
            attempt,
            extra={
                "kind": "run.started",
                "run_id": run.run_id,
                "run_kind": str(run.kind),
                "attempt": run.lease_epoch,
                "retry_count": run.retry_count,
                "rate_limited_count": run.rate_limited_count,
                "lease_epoch": run.lease_epoch,
            },
        )
