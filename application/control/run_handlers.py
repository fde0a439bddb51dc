"""The handlers that a worker calls, one for each kind of run."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import PurePath

from attrs import define, frozen

from tileferry.application.control.acquisition import PartitionAcquisition
from tileferry.application.control.worker import RunResult
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.downloads import TileDownloader
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    CacheAwaited,
    DownloadFinished,
    ProgressEvent,
    ProgressListener,
)
from tileferry.application.ports.uploads import TileUploader
from tileferry.domain.errors import CacheLockError
from tileferry.domain.runs import Run, RunKind
from tileferry.domain.tiles import DownloadRequest, UploadRequest
from tileferry.domain.work import (
    AcquirePartition,
    DownloadArea,
    UploadFlight,
    judge_download,
    judge_upload,
    parse_work,
)


@frozen
class StopCheckListener:
    """Forwards events, and stops the work when the worker has to stop or has lost the run."""

    check: Callable[[], None]
    listener: ProgressListener = NULL_LISTENER

    def __call__(self, event: ProgressEvent, /) -> None:
        """Forward an event and check for a stop, except after the end of a download."""
        self.listener(event)
        if not isinstance(event, DownloadFinished):
            self.check()


LOCK_POLL_S = 1.0


@frozen(kw_only=True)
class CacheAccess:
    """Locks the cache for a run. While another process has it, the run waits, uncharged."""

    lock: Callable[[], AbstractContextManager[None]]
    clock: Clock
    progress: ProgressListener = NULL_LISTENER

    @contextmanager
    def hold(self, check: Callable[[], None]) -> Iterator[None]:
        """Hold the cache for a block; ``check`` raises when the run has to stop waiting."""
        with ExitStack() as stack:
            while not self._try_lock(stack):
                check()
                self.clock.sleep(LOCK_POLL_S)
            yield

    def _try_lock(self, stack: ExitStack) -> bool:
        try:
            stack.enter_context(self.lock())
        except CacheLockError as error:
            self.progress(CacheAwaited(problem=error.problem))
            return False
        return True


@define
class AcquirePartitionHandler:
    """Acquires a partition: extracts it, seals it, and returns the validator's verdict."""

    acquisition: Callable[[], PartitionAcquisition]
    progress: ProgressListener = NULL_LISTENER

    def __call__(self, run: Run, check: Callable[[], None], /) -> RunResult:
        work = parse_work(RunKind.ACQUIRE_PARTITION, run.payload)
        assert isinstance(work, AcquirePartition)  # noqa: S101  # handlers are chosen by the run's kind
        verdict, sealed = self.acquisition().acquire(
            work.key, run.run_id, work.area, progress=StopCheckListener(check, self.progress)
        )
        return RunResult(verdict=verdict, sealed=sealed)


@define(kw_only=True)
class DownloadAreaHandler:
    """Downloads an area into the cache, holding the cache's lock."""

    downloader: Callable[[ProgressListener], TileDownloader]
    cache: CacheAccess
    cache_root: PurePath
    progress: ProgressListener = NULL_LISTENER

    def __call__(self, run: Run, check: Callable[[], None], /) -> RunResult:
        work = parse_work(RunKind.DOWNLOAD_AREA, run.payload)
        assert isinstance(work, DownloadArea)  # noqa: S101  # see above
        request = DownloadRequest(
            flight_id=work.flight_id,
            area=work.area,
            cache_root=self.cache_root,
        )
        with self.cache.hold(check):
            downloader = self.downloader(StopCheckListener(check, self.progress))
            report = downloader.download_tiles_for_area(request)
        return RunResult(verdict=judge_download(run.run_id, report))


@define(kw_only=True)
class UploadFlightHandler:
    """Uploads the captured tiles of a flight, holding the cache's lock."""

    uploader: Callable[[ProgressListener], TileUploader]
    cache: CacheAccess
    progress: ProgressListener = NULL_LISTENER

    def __call__(self, run: Run, check: Callable[[], None], /) -> RunResult:
        work = parse_work(RunKind.UPLOAD_FLIGHT, run.payload)
        assert isinstance(work, UploadFlight)  # noqa: S101  # see above
        request = UploadRequest(flight_id=work.flight_id)
        with self.cache.hold(check):
            uploader = self.uploader(StopCheckListener(check, self.progress))
            report = uploader.upload_pending_tiles(request)
        return RunResult(verdict=judge_upload(run.run_id, report))
