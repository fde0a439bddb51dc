"""A worker for the container's queue: what it does for each kind of run, and when it stops."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import cast

from attrs import evolve

from tileferry.adapters.system import InterruptibleClock
from tileferry.application.control.run_handlers import (
    AcquirePartitionHandler,
    DownloadAreaHandler,
    UploadFlightHandler,
)
from tileferry.application.control.worker import RunHandler, RunResult, Worker
from tileferry.application.ports.downloads import TileDownloader
from tileferry.application.ports.progress import ProgressListener
from tileferry.application.ports.uploads import TileUploader
from tileferry.application.ports.work import ALL_KINDS
from tileferry.domain.runs import Run, RunKind, WorkerId
from tileferry.entrypoints.cache_session import lock_cache, make_folder
from tileferry.entrypoints.container import Container, make_tile_uploader
from tileferry.entrypoints.factories import build_worker_settings

_IN_CACHE = frozenset({RunKind.DOWNLOAD_AREA, RunKind.UPLOAD_FLIGHT})
"""The kinds whose tiles are in the cache."""


def _check_cache(container: Container, kinds: Collection[RunKind]) -> None:
    """Refuse to work for a database whose tiles are in another cache; partitions are in none."""
    if not _IN_CACHE.isdisjoint(kinds):
        container.cache_identity().check()


def build_queue_worker(
    container: Container,
    name: WorkerId,
    *,
    until_idle: bool,
    is_stopping: Callable[[], bool],
    check_stop: Callable[[], None] = lambda: None,
    kinds: Sequence[RunKind] = ALL_KINDS,
    clock: InterruptibleClock | None = None,
) -> Worker:
    """Return a worker for runs of the configured source; the container is its own from then on."""
    config = container.config()
    make_folder(config.partitions.raw_root, setting="partitions.raw_root")
    _check_cache(container, kinds)
    clock = InterruptibleClock() if clock is None else clock
    container.clock.override(clock)
    container.in_run.override(True)  # noqa: FBT003  # a provider, not a flag
    container.provider()  # what is wrong with it would be taken for the runs' fault
    worker: Worker = container.worker(
        name=name,
        handlers=_build_run_handlers(container, clock),
        kinds=kinds,
        sources=[config.source],
        settings=evolve(build_worker_settings(config), until_idle=until_idle),
        is_stopping=is_stopping,
        check_stop=check_stop,
    )
    return worker


def _build_run_handlers(
    container: Container, clock: InterruptibleClock
) -> Mapping[RunKind, RunHandler]:
    """Return what is done for each kind of run; the container's clock is ``clock``."""
    hold = partial(lock_cache, container)
    handlers: Mapping[RunKind, RunHandler] = {
        RunKind.ACQUIRE_PARTITION: AcquirePartitionHandler(
            container.acquisition, container.listener()
        ),
        RunKind.DOWNLOAD_AREA: DownloadAreaHandler(
            downloader=partial(_make_downloader, container),
            locked=hold,
            cache_root=container.config().c11.cache_root,
            progress=container.listener(),
        ),
        RunKind.UPLOAD_FLIGHT: UploadFlightHandler(
            uploader=partial(_make_uploader, container),
            locked=hold,
            progress=container.listener(),
        ),
    }
    return {kind: partial(_run_interruptibly, clock, handler) for kind, handler in handlers.items()}


def _run_interruptibly(
    clock: InterruptibleClock, handler: RunHandler, run: Run, check: Callable[[], None], /
) -> RunResult:
    """Have a run's own waits end, too, when its worker has to stop or has lost it."""
    clock.check = check
    try:
        return handler(run, check)
    finally:
        clock.check = _no_check


def _no_check() -> None:
    """Outside of a run nothing is to be looked for."""


def _make_downloader(container: Container, progress: ProgressListener) -> TileDownloader:
    return cast("TileDownloader", container.tile_downloader(progress=progress))


def _make_uploader(container: Container, progress: ProgressListener) -> TileUploader:
    return make_tile_uploader(container, progress=progress)
