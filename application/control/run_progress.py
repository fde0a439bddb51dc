"""The progress of the run that a worker processes, from the events of its work."""

from attrs import define, field

from tileferry.application.ports.clock import Clock
from tileferry.application.ports.downloads import TileFate
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    BatchAnswered,
    CacheAwaited,
    DownloadStarted,
    ProgressEvent,
    ProgressListener,
    RetryScheduled,
    RunStarted,
    TileProcessed,
    UploadStarted,
)
from tileferry.domain.runs import RunId, RunProgress

_KEPT = {TileFate.STORED, TileFate.DOWNGRADED}
_LOCK_SHOWN_S = 60.0
"""How long a reported wait for the cache is shown; it is reported more often than that."""


@define(kw_only=True, eq=False)
class RunProgressTracker:
    """A listener that counts what the current run has done, and forwards every event.

    The working thread counts, and another thread reads when it renews leases. There is no lock: a
    reader may see a tile without its bytes, which the next report corrects.
    """

    clock: Clock
    listener: ProgressListener = NULL_LISTENER
    _run_id: RunId | None = field(default=None, init=False)
    _done: int = field(default=0, init=False)
    _before: int = field(default=0, init=False)
    _total: int | None = field(default=None, init=False)
    _stored: int = field(default=0, init=False)
    """Tiles that the current run stored or delivered in this attempt."""
    _size_bytes: int = field(default=0, init=False)
    _began_s: float = field(default=0.0, init=False)
    _waiting: str | None = field(default=None, init=False)
    _waits_until_s: float = field(default=0.0, init=False)

    def __call__(self, event: ProgressEvent, /) -> None:
        """Count an event and forward it."""
        self._count(event)
        self.listener(event)

    def get_progress(self, run_id: RunId) -> RunProgress | None:
        """Return the progress of a run; ``None`` if it is not the current one."""
        if run_id != self._run_id:
            return None
        now_s = self.clock.monotonic()
        return RunProgress(
            tiles_done=self._done,
            tiles_total=self._total,
            tiles_before=self._before,
            size_bytes=self._size_bytes,
            elapsed_s=0.0 if self._total is None else max(0.0, now_s - self._began_s),
            waiting=self._waiting if now_s < self._waits_until_s else None,
        )

    def has_improved(self, run_id: RunId) -> bool:
        """Return whether this attempt of a run stored or delivered a tile."""
        return run_id == self._run_id and self._stored > 0

    def _count(self, event: ProgressEvent) -> None:
        match event:
            case RunStarted():
                self._run_id, self._stored = event.run_id, 0
                self._begin(total=None, before=0)
            case DownloadStarted():
                self._begin(total=event.tiles, before=event.already_stored)
            case UploadStarted():
                self._begin(total=event.tiles, before=0)
            case TileProcessed():
                self._done += 1
                self._stored += event.fate in _KEPT
                self._size_bytes += event.size_bytes
            case BatchAnswered():
                taken = sum(answer.status.acknowledged for answer in event.answers)
                self._done += taken
                self._stored += taken
                self._size_bytes += event.size_bytes
            case RetryScheduled():
                self._wait(event.reason, event.delay_s)
            case CacheAwaited():
                self._wait(f"the cache: {event.problem}", _LOCK_SHOWN_S)
            case _:
                pass

    def _begin(self, *, total: int | None, before: int) -> None:
        self._total, self._done, self._before = total, before, before
        self._size_bytes = 0
        self._began_s = self.clock.monotonic()
        self._waits_until_s = 0.0

    def _wait(self, reason: str, seconds: float) -> None:
        until_s = self.clock.monotonic() + seconds
        if until_s > self._waits_until_s:
            self._waiting, self._waits_until_s = reason, until_s
