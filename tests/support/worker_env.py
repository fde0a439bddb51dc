"""A worker over books in memory, whose work is what a test makes of it."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from attrs import define, field

from support.control_plane import ControlPlane
from tileferry.adapters.memory import ManualClock, MemoryIdempotencyStore
from tileferry.application.control.key_expiry import KeyExpiry
from tileferry.application.control.run_claims import BEAT_S_MAX
from tileferry.application.control.worker import (
    RunHandler,
    RunResult,
    Worker,
    WorkerSettings,
)
from tileferry.application.ports.work import ALL_KINDS
from tileferry.domain.errors import (
    StorageError,
)
from tileferry.domain.runs import (
    Run,
    RunKind,
    Verdict,
    VerdictOutcome,
    WorkerId,
)

LEASE_S = 60.0


@define
class WorkerHeartbeat:
    """Beats when a test says so."""

    beats: list[Callable[[], bool]] = field(factory=list)

    @contextmanager
    def start(self, beat: Callable[[], bool], *, every_s: float) -> Iterator[None]:
        assert every_s == BEAT_S_MAX
        self.beats.append(beat)
        yield
        self.beats.remove(beat)

    def beat(self) -> None:
        for beat in self.beats:
            assert beat()


@define
class WorkerEnv:
    """A desk with one worker, whose work is what a test makes of it."""

    desk: ControlPlane
    heart: WorkerHeartbeat = field(factory=WorkerHeartbeat)
    done: list[str] = field(factory=list)
    stopping: bool = False
    work: Callable[[Run, Callable[[], None]], RunResult] | None = None
    kinds: Sequence[RunKind] = ALL_KINDS
    keys: MemoryIdempotencyStore = field(init=False)
    worker: Worker = field(init=False)

    @keys.default
    def _create_key_store(self) -> MemoryIdempotencyStore:
        return MemoryIdempotencyStore(clock=self.clock)

    def __attrs_post_init__(self) -> None:
        handlers: Mapping[RunKind, RunHandler] = dict.fromkeys(RunKind, self._handle)
        self.worker = Worker(
            name=WorkerId("w1"),
            queue=self.desk.queue,
            control=self.desk.control,
            partitions=self.desk.partitions,
            keys=KeyExpiry(store=self.keys),
            handlers=handlers,
            heartbeat=self.heart,
            clock=self.clock,
            logger=logging.getLogger("test.worker"),
            settings=WorkerSettings(lease_s=LEASE_S, batch=3, until_idle=True),
            is_stopping=lambda: self.stopping,
            kinds=self.kinds,
        )

    @property
    def clock(self) -> ManualClock:
        return self.desk.queue.clock  # type: ignore[attr-defined, no-any-return]

    def _handle(self, run: Run, check: Callable[[], None], /) -> RunResult:
        self.done.append(run.run_id)
        return self.work(run, check) if self.work else create_passed_result(run)


def create_passed_result(run: Run) -> RunResult:
    return RunResult(verdict=Verdict(run_id=run.run_id, outcome=VerdictOutcome.PASSED))


def create_failing_handler(error: Exception) -> Callable[[Run, Callable[[], None]], RunResult]:
    def work(_run: Run, _check: Callable[[], None]) -> RunResult:
        raise error

    return work


DISK_FULL_ERROR = StorageError(action="write", path="x", problem="full", remedy="free space")
