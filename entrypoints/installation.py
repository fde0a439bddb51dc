"""An installation that a program opens, uses and closes."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime
from enum import Enum, auto
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from attrs import Attribute, define, evolve, field

from tileferry.adapters.filesystem import CaptureFolderFiles
from tileferry.adapters.postgres import get_schema_status, upgrade
from tileferry.adapters.system import InterruptibleClock
from tileferry.application import IngestReport, RetryManager
from tileferry.application.archive.archive_export import ExportReport
from tileferry.application.cache.readiness import ReadinessReport
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    ProgressListener,
    UploadFinished,
    UploadStarted,
)
from tileferry.application.ports.raw_partitions import PartitionReader
from tileferry.domain import validation
from tileferry.domain.archives import detect_format
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.runs import Run, RunId, WorkerId
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import (
    DownloadBatchReport,
    DownloadRequest,
    SectorClass,
    TileCoverage,
    TileId,
    TileSummary,
    UploadBatchReport,
    UploadRequest,
)
from tileferry.domain.work import DownloadArea, UploadFlight, Work
from tileferry.entrypoints.archives import build_archive_target, build_export_request
from tileferry.entrypoints.cache_session import lock_cache
from tileferry.entrypoints.coercion import (
    BBoxLike,
    SectorLike,
    check_one_landing_source,
    to_bbox,
    to_sector,
)
from tileferry.entrypoints.config import Config, load_config
from tileferry.entrypoints.container import Container, make_tile_uploader
from tileferry.entrypoints.flight_record_source import select_flight_records
from tileferry.entrypoints.readiness import ReadinessQuery, check_readiness, get_end_of_day
from tileferry.entrypoints.worker_factory import build_queue_worker

if TYPE_CHECKING:
    from tileferry.adapters.http import HttpTileDownloader
    from tileferry.application.control.queries import PartitionDataReader
    from tileferry.application.ports import TileDownloader


def _check_config(instance: object, attribute: "Attribute[Config]", value: object) -> None:  # noqa: ARG001  # as attrs calls it
    if not isinstance(value, Config):
        raise InvalidValueError(
            field="config",
            value=type(value).__name__,
            problem="must be a Config",
            remedy="load a file by load_config(Path(...))",
        )


class _State(Enum):
    NEW = auto()
    OPEN = auto()
    CLOSED = auto()


@define
class InstallationLifecycle:
    """A configuration, and what was opened for it."""

    config: Config = field(factory=load_config, validator=_check_config)
    listener: ProgressListener = field(default=NULL_LISTENER, kw_only=True)
    """Receives progress events."""
    name: str = field(default="embedder", kw_only=True, validator=validation.name)
    """Who submits, and who works, for the audit log and for the queue."""
    _container: Container = field(init=False, repr=False)
    _state: _State = field(default=_State.NEW, init=False, repr=False)

    @_container.default
    def _build_container(self) -> Container:
        return Container(config=self.config, listener=self.listener)

    def open(self) -> Self:
        """Begin to use it; whoever cannot have a ``with`` block calls ``close`` at the end."""
        if self._state is not _State.NEW:
            raise self._build_state_error(
                "is closed" if self._state is _State.CLOSED else "is open already"
            )
        try:
            self._container.audit_trail()
        except BaseException:
            self._container.shutdown_resources()
            raise
        self._state = _State.OPEN
        return self

    def close(self) -> None:
        """Close what was opened. From then on it cannot be used; closing it again is harmless."""
        was_open, self._state = self._state is _State.OPEN, _State.CLOSED
        if was_open:
            self._container.shutdown_resources()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def upgrade_database(self) -> None:
        """Bring the database to what this version needs. Running it again is harmless."""
        upgrade(self._open_container().database())

    @property
    def retry_manager(self) -> RetryManager:
        """Retries with the configured policies, durable idempotency keys and the audit log."""
        manager: RetryManager = self._open_container().retry_manager()
        return manager

    def _open_container(self) -> Container:
        """Return what it is made of, while it is open."""
        if self._state is not _State.OPEN:
            raise self._build_state_error(
                "is closed" if self._state is _State.CLOSED else "is not open yet"
            )
        return self._container

    def _current_container(self) -> Container:
        """Return the same, over a database that this version can work with."""
        container = self._open_container()
        get_schema_status(container.database()).check()
        return container

    def _build_state_error(self, problem: str) -> InvalidValueError:
        return InvalidValueError(
            field=type(self).__name__,
            value=None,
            problem=problem,
            remedy="use it inside of one with block, or between open() and close(); make a new "
            "one for the next",
        )


@define
class QueueOperations(InstallationLifecycle):
    """Submits runs, and carries them out."""

    def submit_download(
        self, *, bbox: BBoxLike, zoom_levels: Sequence[int], flight: str, sector: SectorLike
    ) -> Run:
        """Queue a download; the same that is queued already is returned, and not queued twice."""
        return self._submit(
            DownloadArea(
                source=self.config.source,
                flight_id=flight,
                bbox=to_bbox(bbox),
                zoom_levels=tuple(zoom_levels),
                sector_class=to_sector(sector),
            )
        )

    def submit_upload(self, *, flight: str) -> Run:
        """Queue an upload; workers need ``c11.flight_record_file`` to know of the landing."""
        return self._submit(UploadFlight(source=self.config.source, flight_id=flight))

    def find_run(self, run_id: RunId) -> Run | None:
        """Return a run as it stands; of an id that was kept as text, ``RunId(text)`` makes one."""
        run: Run | None = self._current_container().work_reader().find_run(run_id)
        return run

    def work(
        self, *, until_idle: bool = True, is_stopping: Callable[[], bool] = lambda: False
    ) -> int:
        """Take runs from the queue and carry them out; return how many.

        It returns when nothing is due (``until_idle``), or once ``is_stopping`` says so.
        """
        self._current_container()
        # A container of its own: retries inside a run wait less.
        own = Container(config=self.config, listener=self.listener)
        try:
            worker = build_queue_worker(
                own,
                WorkerId(self.name),
                until_idle=until_idle,
                is_stopping=is_stopping,
                clock=InterruptibleClock(thread=threading.current_thread()),
            )
            worker.run()
        finally:
            own.shutdown_resources()
        return worker.processed

    def _submit(self, work: Work) -> Run:
        run, _is_new = (
            self._current_container().run_control().submit(work, actor=Actor.OPERATOR, by=self.name)
        )
        submitted: Run = run
        return submitted


@define
class Tileferry(QueueOperations):
    """One installation, to be used in a ``with`` block. A program may have several.

    It reads ``tileferry.toml`` and the environment when no configuration is given, writes nothing
    to the terminal, and logs by the loggers ``tileferry.…``, for which it sets nothing up. One
    thread uses it at a time; several threads have several of them.
    """

    def coverage(self, *, bbox: BBoxLike, zoom_levels: Sequence[int]) -> list[TileSummary]:
        """Return what the provider has in an area."""
        downloader: TileDownloader = self._open_container().tile_downloader()
        return downloader.enumerate_remote_coverage(to_bbox(bbox), zoom_levels)

    def download(
        self,
        *,
        bbox: BBoxLike,
        zoom_levels: Sequence[int],
        flight: str,
        sector: SectorLike,
        again: bool = False,
        max_failures_share: float | None = None,
    ) -> DownloadBatchReport:
        """Have the tiles of an area in the cache. Called again, it goes on where it was ended.

        ``again`` fetches everything anew. Of all tiles ``max_failures_share`` (0 to 1) may fail
        before the download ends; without it an outage ends it at once.
        """
        request = DownloadRequest(
            flight_id=flight,
            bbox=to_bbox(bbox),
            zoom_levels=zoom_levels,
            sector_class=to_sector(sector),
            cache_root=self.config.c11.cache_root,
        )
        with lock_cache(self._open_container()):
            container = self._current_container()
            settings = evolve(container.download_settings(), max_failures_share=max_failures_share)
            downloader: HttpTileDownloader = container.tile_downloader(settings=settings)
            if again:
                downloader.start_over(request)
            return downloader.download_tiles_for_area(request)

    def read_tile(self, tile_id: TileId) -> bytes:
        """Return a tile's bytes, checked as they are read."""
        content: bytes = self._open_container().tile_store().read_tile(tile_id)
        return content

    def read_partition(self, key: PartitionKey) -> AbstractContextManager[PartitionReader] | None:
        """Return a block in which a partition's tiles can be read, as they were sealed.

        ``None`` is a gap: the partition is unknown, pending or failed. Only a success is read.
        """
        reading: PartitionDataReader = self._current_container().partition_reading()
        return reading.open(key)

    def verify(
        self,
        *,
        bbox: BBoxLike,
        zoom_levels: Sequence[int],
        sector: SectorLike = SectorClass.ACTIVE_CONFLICT,
        on: date | None = None,
        max_holes: int = 0,
        quick: bool = False,
    ) -> ReadinessReport:
        """Say whether an area is ready for a flight, today or ``on`` a day to come.

        ``quick`` goes by what is known of the tiles; else all their bytes are read and compared.
        """
        now = datetime.now(UTC)
        question = ReadinessQuery(
            coverage=TileCoverage(bbox=to_bbox(bbox), zoom_levels=zoom_levels),
            sector=to_sector(sector),
            now=now,
            flown_at=now if on is None else get_end_of_day(on, now, field="on"),
            source=self.config.source,
            holes_max=max_holes,
            quick=quick,
        )
        return check_readiness(self._open_container(), question)

    def export(
        self,
        dest: Path,
        *,
        bbox: BBoxLike | None = None,
        zoom_levels: Sequence[int] | None = None,
        name: str | None = None,
        attribution: str | None = None,
        replace: bool = False,
    ) -> ExportReport:
        """Write tiles of the cache to an archive, by default all of them.

        The file's name tells its form: ``.mbtiles``, ``.pmtiles``, or else a folder of pictures.
        """
        target = build_archive_target(detect_format(dest.name), dest.absolute(), replace=replace)
        request = build_export_request(
            self.config,
            dest,
            bbox=None if bbox is None else to_bbox(bbox),
            zoom_levels=zoom_levels,
            name=name,
            attribution=attribution,
        )
        report: ExportReport = self._current_container().cache_export().export(request, target)
        return report

    def ingest(self, folder: Path, *, flight: str) -> IngestReport:
        """Take what a flight captured into the cache, where it waits for its upload."""
        request = UploadRequest(flight_id=flight)
        with lock_cache(self._open_container()):
            report: IngestReport = (
                self._current_container()
                .capture_ingest()
                .ingest(request.flight_id, CaptureFolderFiles(folder))
            )
        return report

    def upload(
        self, *, flight: str, on_ground: bool = False, flight_record: Path | None = None
    ) -> UploadBatchReport:
        """Bring what a flight captured to the provider.

        ``on_ground`` is your word that the aircraft has landed; else ``flight_record`` must say
        so, or the file that ``c11.flight_record_file`` names.
        """
        request = UploadRequest(flight_id=flight)
        check_one_landing_source(flight_record, on_ground=on_ground)
        records = select_flight_records(
            self._open_container(), flight, flight_record, on_ground=on_ground
        )
        with lock_cache(self._open_container()):
            container = self._current_container()
            uploader = make_tile_uploader(container, flight_records=records)
            pending = container.metadata_store().count_pending(flight)
            self.listener(UploadStarted(flight_id=flight, tiles=pending))
            report = uploader.upload_pending_tiles(request)
        self.listener(UploadFinished(report=report))
        return report
