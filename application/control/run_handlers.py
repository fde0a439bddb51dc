"""What a worker does for each kind of run."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import PurePath

from attrs import define, frozen

from tileferry.application.control.acquisition import PartitionAcquisition
from tileferry.application.control.worker import RunResult
from tileferry.application.ports.downloads import DownloadObserver, TileDownloader, TileFate
from tileferry.application.ports.uploads import TileUploader, UploadObserver
from tileferry.domain.runs import Run, RunKind
from tileferry.domain.tiles import (
    DownloadBatchReport,
    DownloadRequest,
    PerTileStatus,
    UploadRequest,
)
from tileferry.domain.work import (
    AcquirePartition,
    DownloadArea,
    UploadFlight,
    judge_download,
    judge_upload,
    parse_work,
)


@frozen
class StopCheckObserver:
    """Looks on, and ends the work when its worker has to stop."""

    check: Callable[[], None]

    def on_listing(self, tiles: int) -> None:  # noqa: ARG002  # the port has them
        """Note how many tiles are listed so far."""
        self.check()

    def on_begin(self, *, tiles: int, already_stored: int, estimated_bytes: int) -> None:  # noqa: ARG002  # the port has them
        """Note what there is to do."""
        self.check()

    def on_tile(self, fate: TileFate, size_bytes: int) -> None:
        """Note what became of a tile."""

    def on_durable(self, tiles: int) -> None:  # noqa: ARG002  # the port has them
        """Note how many tiles of this run are safe by now; that comes twice a second at least."""
        self.check()

    def on_end(self, report: DownloadBatchReport) -> None:
        """Note the end."""

    def on_answers(self, answers: Sequence[PerTileStatus], size_bytes: int) -> None:  # noqa: ARG002  # the port has them
        """Learn what the provider said of a batch; it is recorded by now."""
        self.check()


@define
class AcquirePartitionHandler:
    """Extracts a partition, seals it, and has it judged; the verdict is the validator's."""

    acquisition: Callable[[], PartitionAcquisition]

    def __call__(self, run: Run, check: Callable[[], None], /) -> RunResult:
        """Acquire the run's partition."""
        work = parse_work(RunKind.ACQUIRE_PARTITION, run.payload)
        assert isinstance(work, AcquirePartition)  # noqa: S101  # of that kind it is
        verdict, sealed = self.acquisition().acquire(
            work.key, run.run_id, work.area, observer=StopCheckObserver(check)
        )
        return RunResult(verdict=verdict, sealed=sealed)


@define(kw_only=True)
class DownloadAreaHandler:
    """Downloads an area into the cache, which nobody else may be writing to."""

    downloader: Callable[[DownloadObserver], TileDownloader]
    locked: Callable[[], AbstractContextManager[None]]
    cache_root: PurePath

    def __call__(self, run: Run, check: Callable[[], None], /) -> RunResult:
        """Download the run's area."""
        work = parse_work(RunKind.DOWNLOAD_AREA, run.payload)
        assert isinstance(work, DownloadArea)  # noqa: S101  # as above
        request = DownloadRequest(
            flight_id=work.flight_id,
            area=work.area,
            cache_root=self.cache_root,
        )
        with self.locked():
            report = self.downloader(StopCheckObserver(check)).download_tiles_for_area(request)
        return RunResult(verdict=judge_download(run.run_id, report))


@define(kw_only=True)
class UploadFlightHandler:
    """Uploads what a flight captured, which nobody else may be doing."""

    uploader: Callable[[UploadObserver], TileUploader]
    locked: Callable[[], AbstractContextManager[None]]

    def __call__(self, run: Run, check: Callable[[], None], /) -> RunResult:
        """Upload the run's flight."""
        work = parse_work(RunKind.UPLOAD_FLIGHT, run.payload)
        assert isinstance(work, UploadFlight)  # noqa: S101  # as above
        request = UploadRequest(flight_id=work.flight_id)
        with self.locked():
            report = self.uploader(StopCheckObserver(check)).upload_pending_tiles(request)
        return RunResult(verdict=judge_upload(run.run_id, report))
