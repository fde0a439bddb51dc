"""What a worker does for each kind of run."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from tileferry.adapters.system import InterruptibleClock
from tileferry.application.control.acquisition import PartitionAcquisition
from tileferry.application.control.run_handlers import (
    AcquirePartitionHandler,
    DownloadAreaHandler,
    UploadFlightHandler,
)
from tileferry.application.control.worker import RunHandler, RunResult, Worker
from tileferry.application.ports import TileDownloader, TileUploader
from tileferry.application.ports.progress import ProgressListener
from tileferry.application.ports.work import ALL_KINDS
from tileferry.domain.runs import Run, RunKind, WorkerId
from tileferry.entrypoints.cache_session import make_folder
from tileferry.entrypoints.factories import build_worker_settings

if TYPE_CHECKING:
    from tileferry.entrypoints.container import Container

KINDS_IN_CACHE = frozenset({RunKind.DOWNLOAD_AREA, RunKind.UPLOAD_FLIGHT})
"""The kinds whose tiles are in the cache; partitions have folders of their own."""


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
    """Return the handler of each kind of run; ``clock`` is the one that all parts wait by."""
    handlers: Mapping[RunKind, RunHandler] = {
        RunKind.ACQUIRE_PARTITION: AcquirePartitionHandler(acquisition, progress),
        RunKind.DOWNLOAD_AREA: DownloadAreaHandler(
            downloader=lambda listener: downloader(progress=listener),
            locked=lock_cache,
            cache_root=cache_root,
            progress=progress,
        ),
        RunKind.UPLOAD_FLIGHT: UploadFlightHandler(
            uploader=lambda listener: uploader(progress=listener),
            locked=lock_cache,
            progress=progress,
        ),
    }
    return {kind: partial(_run_interruptibly, clock, handler) for kind, handler in handlers.items()}


def _run_interruptibly(
    clock: InterruptibleClock, handler: RunHandler, run: Run, check: Callable[[], None], /
) -> RunResult:
    """Also end the waits inside a run when its worker has to stop or has lost the lease."""
    clock.check = check
    try:
        return handler(run, check)
    finally:
        clock.check = lambda: None


def build_queue_worker(
    container: "Container",
    name: WorkerId,
    *,
    until_idle: bool,
    is_stopping: Callable[[], bool],
    check_stop: Callable[[], None] = lambda: None,
    kinds: Sequence[RunKind] = ALL_KINDS,
) -> Worker:
    """Return a worker for runs of the configured source, which owns the container from then on."""
    config = container.config()
    make_folder(config.partitions.raw_root, setting="partitions.raw_root")
    if not KINDS_IN_CACHE.isdisjoint(kinds):
        container.cache_identity().check()
    container.clock.override(InterruptibleClock())
    container.in_run.override(True)  # noqa: FBT003  # a provider, not a flag
    container.provider()  # what is wrong with it would be taken for the runs' fault
    return container.worker(
        name=name,
        kinds=kinds,
        settings=evolve(build_worker_settings(config), until_idle=until_idle),
        is_stopping=is_stopping,
        check_stop=check_stop,
    )
