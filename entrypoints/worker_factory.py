"""Builds the handlers of a worker, one for each kind of run."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.runs import Run, RunKind

with import_on_call(globals()):
    from tileferry.adapters.system import InterruptibleClock
    from tileferry.application.control.acquisition import PartitionAcquisition
    from tileferry.application.control.run_handlers import (
        AcquirePartitionHandler,
        CacheAccess,
        DownloadAreaHandler,
        UploadFlightHandler,
    )
    from tileferry.application.control.worker import RunHandler, RunResult
    from tileferry.application.ports import TileDownloader, TileUploader
    from tileferry.application.ports.progress import ProgressListener

KINDS_IN_CACHE = frozenset({RunKind.DOWNLOAD_AREA, RunKind.UPLOAD_FLIGHT})
"""The kinds whose tiles are in the cache; partitions have their own folders."""


def build_run_handlers(
    *,
    clock: InterruptibleClock,
    acquisition: Callable[[], PartitionAcquisition],
    downloader: Callable[..., TileDownloader],
    uploader: Callable[..., TileUploader],
    lock_cache: Callable[[], AbstractContextManager[None]],
    cache_root: Path,
    progress: ProgressListener,
) -> Mapping[RunKind, RunHandler]:
    """Return the handler of each kind of run; all parts wait by ``clock``."""
    cache = CacheAccess(lock=lock_cache, clock=clock, progress=progress)
    handlers: Mapping[RunKind, RunHandler] = {
        RunKind.ACQUIRE_PARTITION: AcquirePartitionHandler(acquisition, progress),
        RunKind.DOWNLOAD_AREA: DownloadAreaHandler(
            downloader=lambda listener: downloader(progress=listener),
            cache=cache,
            cache_root=cache_root,
            progress=progress,
        ),
        RunKind.UPLOAD_FLIGHT: UploadFlightHandler(
            uploader=lambda listener: uploader(progress=listener),
            cache=cache,
            progress=progress,
        ),
    }
    return {kind: partial(_run_interruptibly, clock, handler) for kind, handler in handlers.items()}


def _run_interruptibly(
    clock: InterruptibleClock, handler: RunHandler, run: Run, check: Callable[[], None], /
) -> RunResult:
    """Run a handler whose waits end early when the worker stops or loses the lease."""
    clock.check = check
    try:
        return handler(run, check)
    finally:
        clock.check = lambda: None
