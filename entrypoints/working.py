"""A worker for the container's queue: what it does for each kind of run, and when it stops."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

from tileferry.adapters.system import AttentiveClock
from tileferry.application.control.run_handlers import (
    AcquirePartitionHandler,
    DownloadAreaHandler,
    UploadFlightHandler,
)
from tileferry.application.control.worker import Result, RunHandler
from tileferry.application.ports.downloads import DownloadObserver, TileDownloader
from tileferry.application.ports.uploads import TileUploader, UploadObserver
from tileferry.domain.runs import Run, RunKind
from tileferry.entrypoints.container import Container, tile_uploader_of
from tileferry.entrypoints.holding import locked


def run_handlers(container: Container, clock: AttentiveClock) -> Mapping[RunKind, RunHandler]:
    """Return what is done for each kind of run; the container's clock is ``clock``."""
    hold = partial(locked, container)
    handlers: Mapping[RunKind, RunHandler] = {
        RunKind.ACQUIRE_PARTITION: AcquirePartitionHandler(container.acquisition),
        RunKind.DOWNLOAD_AREA: DownloadAreaHandler(
            downloader=partial(_downloader, container),
            locked=hold,
            cache_root=container.config().c11.cache_root,
        ),
        RunKind.UPLOAD_FLIGHT: UploadFlightHandler(
            uploader=partial(_uploader, container), locked=hold
        ),
    }
    return {kind: partial(_attentively, clock, handler) for kind, handler in handlers.items()}


def _attentively(
    clock: AttentiveClock, handler: RunHandler, run: Run, check: Callable[[], None], /
) -> Result:
    """Have a run's own waits end, too, when its worker has to stop or has lost it."""
    clock.check = check
    try:
        return handler(run, check)
    finally:
        clock.check = _go_on


def _go_on() -> None:
    """Outside of a run nothing is to be looked for."""


def _downloader(container: Container, observer: DownloadObserver) -> TileDownloader:
    return cast("TileDownloader", container.tile_downloader(observer=observer))


def _uploader(container: Container, observer: UploadObserver) -> TileUploader:
    return tile_uploader_of(container, observer=observer)
