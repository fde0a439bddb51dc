"""The whole product in one object: a database, a cache, a provider, a queue."""

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from attrs import define, evolve, field

from tileferry.adapters.filesystem import CaptureFolderFiles, OperatorsWord
from tileferry.adapters.postgres import schema_status, upgrade
from tileferry.adapters.system import AttentiveClock
from tileferry.application import IngestReport, RetryManager
from tileferry.application.ports.progress import ProgressEvent, ProgressListener, UploadEnded
from tileferry.application.transfers.progress import ProgressEvents
from tileferry.domain.actors import Actor
from tileferry.domain.runs import Run, RunId, WorkerId
from tileferry.domain.tiles import (
    BBox,
    DownloadBatchReport,
    DownloadRequest,
    SectorClass,
    TileId,
    TileSummary,
    UploadBatchReport,
    UploadRequest,
)
from tileferry.domain.work import DownloadArea, UploadFlight, Work
from tileferry.entrypoints.config import Config, load_config
from tileferry.entrypoints.container import Container, tile_uploader_of
from tileferry.entrypoints.holding import locked, make_folder
from tileferry.entrypoints.parts import worker_settings
from tileferry.entrypoints.working import run_handlers

if TYPE_CHECKING:
    from tileferry.application.control.worker import Worker
    from tileferry.application.ports import TileDownloader

Box = BBox | str
Sector = SectorClass | str


def unheard(event: ProgressEvent, /) -> None:
    """Listen for nobody."""


@define
class Tileferry:
    """One installation, to be used in a ``with`` block. A program may have several.

    It reads ``tileferry.toml`` and the environment when no configuration is given, writes nothing
    to the terminal, and logs by the loggers ``tileferry.…``, for which it sets nothing up. One
    thread uses it at a time; several threads have several of them.
    """

    config: Config = field(factory=load_config)
    listener: ProgressListener = field(default=unheard, kw_only=True)
    """Is told what goes on."""
    name: str = field(default="embedder", kw_only=True)
    """Who submits, and who works, for the audit log and for the queue."""
    _container: Container = field(init=False)

    @_container.default
    def _assembled(self) -> Container:
        return Container(config=self.config)

    def __enter__(self) -> Self:
        trail = self._container.audit_trail()
        trail.sinks = [ProgressEvents(self.listener), *trail.sinks]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._container.shutdown_resources()

    def upgrade_database(self) -> None:
        """Bring the database to what this version needs. Running it again is harmless."""
        upgrade(self._container.database())

    # Tiles

    def coverage(self, *, bbox: Box, zoom_levels: Sequence[int]) -> list[TileSummary]:
        """Return what the provider has in an area."""
        downloader: TileDownloader = self._container.tile_downloader()
        return downloader.enumerate_remote_coverage(_box(bbox), zoom_levels)

    def download(
        self, *, bbox: Box, zoom_levels: Sequence[int], flight: str, sector: Sector
    ) -> DownloadBatchReport:
        """Have the tiles of an area in the cache. Called again, it goes on where it was ended."""
        request = DownloadRequest(
            flight_id=flight,
            bbox=_box(bbox),
            zoom_levels=zoom_levels,
            sector_class=SectorClass(sector),
            cache_root=self.config.c11.cache_root,
        )
        with locked(self._container):
            self._check_schema()
            downloader: TileDownloader = self._container.tile_downloader(
                observer=ProgressEvents(self.listener)
            )
            return downloader.download_tiles_for_area(request)

    def read_tile(self, tile_id: TileId) -> bytes:
        """Return a tile's bytes, checked as they are read."""
        content: bytes = self._container.tile_store().read_tile(tile_id)
        return content

    def ingest(self, folder: Path, *, flight: str) -> IngestReport:
        """Take what a flight captured into the cache, where it waits for its upload."""
        request = UploadRequest(flight_id=flight)
        with locked(self._container):
            self._check_schema()
            report: IngestReport = self._container.capture_ingest().ingest(
                request.flight_id, CaptureFolderFiles(folder)
            )
        return report

    def upload(self, *, flight: str, on_ground: bool = False) -> UploadBatchReport:
        """Bring what a flight captured to the provider.

        ``on_ground`` is your word that the aircraft has landed; else ``c11.flight_record_file``
        must say so.
        """
        request = UploadRequest(flight_id=flight)
        word = OperatorsWord(flight_id=flight, said_at=datetime.now(UTC)) if on_ground else None
        with locked(self._container):
            self._check_schema()
            uploader = tile_uploader_of(
                self._container, flight_records=word, observer=ProgressEvents(self.listener)
            )
            report = uploader.upload_pending_tiles(request)
        self.listener(UploadEnded(report=report))
        return report

    # Calls of your own

    @property
    def retry_manager(self) -> RetryManager:
        """Retries with the configured policies, durable idempotency keys and the audit log."""
        manager: RetryManager = self._container.retry_manager()
        return manager

    # The queue

    def submit_download(
        self, *, bbox: Box, zoom_levels: Sequence[int], flight: str, sector: Sector
    ) -> Run:
        """Queue a download; the same that is queued already is returned, and not queued twice."""
        return self._submit(
            DownloadArea(
                source=self.config.c11.source,
                flight_id=flight,
                bbox=_box(bbox),
                zoom_levels=tuple(zoom_levels),
                sector_class=SectorClass(sector),
            )
        )

    def submit_upload(self, *, flight: str) -> Run:
        """Queue an upload; workers need ``c11.flight_record_file`` to know of the landing."""
        return self._submit(UploadFlight(source=self.config.c11.source, flight_id=flight))

    def find_run(self, run_id: RunId) -> Run | None:
        """Return a run as it stands."""
        self._check_schema()
        run: Run | None = self._container.work_reader().find_run(run_id)
        return run

    def work(
        self, *, until_idle: bool = True, is_stopping: Callable[[], bool] = lambda: False
    ) -> int:
        """Take runs from the queue and carry them out; return how many.

        It returns when nothing is due (``until_idle``), or once ``is_stopping`` says so.
        """
        self._check_schema()
        make_folder(self.config.partitions.raw_root, setting="partitions.raw_root")
        own = Container(config=self.config)  # what waits inside a run waits less
        clock = AttentiveClock(thread=threading.current_thread())
        own.clock.override(clock)
        own.in_run.override(True)  # noqa: FBT003  # a provider, not a flag
        try:
            worker: Worker = own.worker(
                name=WorkerId(self.name),
                handlers=run_handlers(own, clock),
                sources=[self.config.c11.source],
                settings=evolve(worker_settings(self.config), until_idle=until_idle),
                is_stopping=is_stopping,
            )
            worker.run()
        finally:
            own.shutdown_resources()
        return worker.processed

    def _submit(self, work: Work) -> Run:
        self._check_schema()
        run, _is_new = self._container.run_control().submit(
            work, actor=Actor.OPERATOR, by=self.name
        )
        submitted: Run = run
        return submitted

    def _check_schema(self) -> None:
        schema_status(self._container.database()).check()


def _box(bbox: Box) -> BBox:
    return BBox.parse(bbox) if isinstance(bbox, str) else bbox
