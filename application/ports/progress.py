"""The progress port: typed events of long work, and the listener that receives them.

Downloads, uploads, imports, exports, verification, reading the audit log and queued runs report
here. Progress bars, logs and embedding programs are listeners.
"""

from datetime import datetime
from enum import StrEnum
from typing import Protocol

from attrs import frozen

from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # for annotations
    from tileferry.application.ports.downloads import TileFate
    from tileferry.domain.retry import HoldRule, Pace, RetryReason
    from tileferry.domain.runs import RunId, RunKind, RunProgress, RunStatus
    from tileferry.domain.tiles import DownloadBatchReport, PerTileStatus, UploadBatchReport


@frozen(kw_only=True)
class ListingProgressed:
    """Another page of an area's listing arrived; ``tiles`` counts all of them so far."""

    tiles: int


@frozen(kw_only=True)
class DownloadStarted:
    """The area is listed; fetching begins."""

    tiles: int
    already_stored: int
    estimated_bytes: int
    """Estimated size of the tiles that are not stored yet."""


@frozen
class TileProcessed:
    """One more tile was stored, refused, missing or failed."""

    fate: TileFate
    size_bytes: int


@frozen(kw_only=True)
class TilesStored:
    """``tiles`` of this download are durable. Repeated at least every half second as a tick."""

    tiles: int


@frozen(kw_only=True)
class DownloadFinished:
    """A download ended, with success or not."""

    report: DownloadBatchReport


@frozen(kw_only=True)
class UploadStarted:
    """An upload begins; ``tiles`` are pending."""

    flight_id: str
    tiles: int


@frozen(kw_only=True)
class BatchSent:
    """A batch of an upload is sent; its answer has not come yet. A retry sends it again."""

    tiles: int
    size_bytes: int


@frozen(kw_only=True)
class BatchAnswered:
    """The provider answered a batch of an upload, and the answers are recorded."""

    answers: tuple[PerTileStatus, ...]
    size_bytes: int
    """Size of the tiles that were sent."""


@frozen(kw_only=True)
class UploadFinished:
    """An upload ended with a report; one that raises an error has no such event."""

    report: UploadBatchReport


@frozen(kw_only=True)
class RetryScheduled:
    """An attempt failed; the next one starts after a delay."""

    operation: str
    reason: str
    """The error of the failed attempt."""
    category: str
    """Names the retry policy."""
    rule: RetryReason
    """The rule that set the delay: the policy's backoff, or the server's Retry-After."""
    is_rate_limited: bool
    attempt: int
    max_attempts: int
    delay_s: float


@frozen(kw_only=True)
class PassScheduled:
    """A pass of a persistent download left tiles; the next pass starts after a delay."""

    number: int
    """The number of the next pass."""
    reason: str
    """Why tiles are left, in few words."""
    rule: RetryReason
    tiles_left: int | None
    """``None`` if the area was never listed."""
    delay_s: float
    gives_up_in_s: float
    """How long the session continues if nothing improves."""


@frozen(kw_only=True)
class DownloadGivenUp:
    """A persistent download ends because nothing improved for ``idle_s``."""

    idle_s: float


@frozen(kw_only=True)
class RequestHeld:
    """A request waits before it is sent, by a rule that applies to all requests of its source."""

    operation: str
    rule: HoldRule
    delay_s: float


@frozen(kw_only=True)
class PaceChanged:
    """The source gets fewer or more requests than before."""

    pace: Pace


class Task(StrEnum):
    """Work that is counted in items."""

    INGEST = "ingest"
    IMPORT = "import"
    EXPORT = "export"
    VERIFY_CACHE = "verify_cache"
    CHECK_READINESS = "check_readiness"
    READ_AUDIT = "read_audit"
    CREATE_BACKUP = "create_backup"
    VERIFY_BACKUP = "verify_backup"
    RESTORE_BACKUP = "restore_backup"


@frozen(kw_only=True)
class ItemsProcessed:
    """More items of a task were processed: tiles, files or audit entries."""

    task: Task
    items: int = 1
    """How many more, since the last event."""
    total: int | None = None
    """The expected total of the task, if known."""


@frozen(kw_only=True)
class QueueReached:
    """A worker has lost its connection to the queue, or has it again."""

    is_reached: bool


@frozen(kw_only=True)
class RunStarted:
    """A worker starts a queued run."""

    run_id: RunId
    kind: RunKind
    attempt: int = 1
    """The number of claims of this run, this one included."""


@frozen(kw_only=True)
class RunFinished:
    """A worker has stopped processing a run. A run that it has lost has no such event."""

    run_id: RunId
    kind: RunKind
    status: RunStatus
    """``DISCOVERED`` if the worker returned it to the queue."""
    duration_s: float = 0.0
    progress: RunProgress | None = None
    problem: str | None = None
    """The error, the validator's findings, or the operator's reason."""
    next_retry_at: datetime | None = None
    """When a run in error is retried; ``None`` if it is given up."""
    is_cancelled: bool = False


@frozen(kw_only=True)
class CacheAwaited:
    """Another process has locked the cache; the work waits for it. Repeated while it waits."""

    problem: str


@frozen(kw_only=True)
class DatabaseAwaited:
    """The database cannot be reached; the work waits for it. Repeated while it waits."""

    delay_s: float
    gives_up_in_s: float
    """How long the work continues to wait."""


@frozen(kw_only=True)
class WorkerIdle:
    """A worker that ends when idle found no run to start, but waits for the next one."""

    wait_s: float
    """Time until that run may start; 0 if it is due and waits for a retry token."""


ProgressEvent = (
    ListingProgressed
    | DownloadStarted
    | TileProcessed
    | TilesStored
    | DownloadFinished
    | PassScheduled
    | DownloadGivenUp
    | UploadStarted
    | BatchSent
    | BatchAnswered
    | UploadFinished
    | RetryScheduled
    | RequestHeld
    | PaceChanged
    | ItemsProcessed
    | QueueReached
    | RunStarted
    | RunFinished
    | CacheAwaited
    | DatabaseAwaited
    | WorkerIdle
)


class ProgressListener(Protocol):
    """Receives events. It must return quickly: the work waits for it.

    ``RetryScheduled``, ``RequestHeld``, ``PaceChanged`` and ``DatabaseAwaited`` may come from any
    thread, other events from the working thread. A listener
    stops the work by raising ``KeyboardInterrupt``; completed work is kept. While tiles are fetched
    it receives an event at least every half second.
    """

    def __call__(self, event: ProgressEvent, /) -> None:
        """Handle an event."""
        ...


def _ignore_event(event: ProgressEvent, /) -> None:
    """Do nothing."""


NULL_LISTENER: ProgressListener = _ignore_event
