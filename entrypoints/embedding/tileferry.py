"""The Python API: an installation whose methods take plain values."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import date, datetime
from pathlib import Path
from typing import Self

from attrs import define, field

from tileferry.adapters.filesystem import CaptureFolderFiles
from tileferry.application import IngestReport
from tileferry.application.archive.archive_export import ExportReport
from tileferry.application.archive.archive_import import ImportReport, ImportRequest
from tileferry.application.cache.readiness import (
    FlightVerdict,
    ReadinessQuery,
    ReadinessReport,
    get_end_of_day,
)
from tileferry.application.ports.progress import UploadFinished, UploadStarted
from tileferry.application.ports.raw_partitions import PartitionReader
from tileferry.domain import validation
from tileferry.domain.archives import detect_format
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.runs import Run, RunId, WorkerId
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
from tileferry.domain.tiles.area import Area
from tileferry.domain.tiles.bbox import WORLD
from tileferry.domain.tiles.download import combine_reports
from tileferry.domain.tiles.tile_id import ALL_ZOOMS
from tileferry.entrypoints.archives import (
    build_archive_source,
    build_archive_target,
    build_export_request,
    detect_import_format,
)
from tileferry.entrypoints.coercion import (
    PlaceLike,
    SectorLike,
    check_one_landing_source,
    select_fetch_mode,
    to_place,
    to_places,
    to_sector,
)
from tileferry.entrypoints.flight_report import make_flight_report
from tileferry.entrypoints.installation import Installation
from tileferry.entrypoints.report.flight import FlightReport

Places = PlaceLike | Sequence[PlaceLike]
"""One area, or several."""


@define
class Tileferry(Installation):
    """One installation, to be used in a ``with`` block. A program may have several.

    Without a configuration it reads ``tileferry.toml`` and the environment. It prints nothing, and
    logs to the loggers ``tileferry.…`` without configuring them. Use it from one thread at a time;
    give each thread its own.
    """

    name: str = field(default="embedder", kw_only=True, validator=validation.name)
    """The name of the submitter and worker in the audit log and the queue."""

    def open(self) -> Self:
        """Open it and connect to the database; without a ``with`` block, call ``close``."""
        super().open()
        try:
            self._opened.audit_trail()
        except BaseException:
            self.close()
            raise
        return self

    # the cache

    def coverage(self, *, bbox: Places, zoom_levels: Sequence[int]) -> list[TileSummary]:
        """Return what the provider has in an area, or in several.

        ``bbox``, here and elsewhere, is a box, a shape, or the path of a file that draws one.
        """
        return [
            tile
            for place in to_places(bbox)
            for tile in self.area_survey.list_tiles(TileCoverage.from_place(place, zoom_levels))
        ]

    def download(
        self,
        *,
        bbox: Places,
        zoom_levels: Sequence[int],
        flight: str,
        sector: SectorLike,
        repair: bool = False,
        refresh: bool = False,
        again: bool = False,
        max_failures_share: float | None = None,
        far: bool = False,
        once: bool = False,
        give_up_after_s: float | None = None,
    ) -> DownloadBatchReport:
        """Download the tiles of an area, or of several, for a flight; call it again to resume.

        It runs until the area is complete, or nothing has improved for ``give_up_after_s`` (by
        default ``c11.give_up_after_s``); with ``once`` it makes one pass. ``repair`` also checks
        the stored tiles, and fetches those that are damaged or too old; ``refresh`` compares them
        with the provider, and fetches those that changed; ``again`` fetches every tile, stored or
        not. The download aborts when more than ``max_failures_share`` (0 to 1) of the tiles fail.
        ``far`` confirms an area that is far from the flight's other areas.
        """
        requests = [
            DownloadRequest(flight_id=flight, area=area, cache_root=self.config.c11.cache_root)
            for area in _to_areas(bbox, zoom_levels, sector)
        ]
        self.set_patience(give_up_after_s)
        if not far:
            self.flights.check_distances(flight, [request.bbox for request in requests])
        with self.hold_cache():
            downloader = self.build_downloader(
                max_failures_share=max_failures_share,
                mode=select_fetch_mode(repair=repair, refresh=refresh, again=again),
            )
            session = self.build_download_session(
                downloader, once=once, give_up_after_s=give_up_after_s
            )
            reports = [session.download_tiles_for_area(request) for request in requests]
        return combine_reports(reports)

    def read_tile(self, tile_id: TileId) -> bytes:
        """Return a tile's bytes, verified while reading."""
        return self.tile_store.read_tile(tile_id)

    def verify(
        self,
        *,
        bbox: PlaceLike,
        zoom_levels: Sequence[int],
        sector: SectorLike = SectorClass.ACTIVE_CONFLICT,
        on: date | None = None,
        max_holes: int = 0,
        accept_absent: bool | None = None,
        confirmed_within_days: float | None = None,
        quick: bool = False,
    ) -> ReadinessReport:
        """Judge whether an area is ready for a flight today, or ``on`` a later day.

        All bytes are read and compared; ``quick`` judges from the metadata alone. ``accept_absent``
        accepts tiles that the provider does not have, and ``confirmed_within_days`` limits the time
        since each was confirmed; by default the settings in ``c6`` decide.
        """
        now = self.get_database_time()
        query = ReadinessQuery(
            coverage=TileCoverage.from_place(to_place(bbox), zoom_levels),
            sector=to_sector(sector),
            now=now,
            flown_at=now if on is None else get_end_of_day(on, now, field="on"),
            source=self.config.source,
            holes_max=max_holes,
            accepts_absent=accept_absent,
            confirmed_within_days=confirmed_within_days,
            quick=quick,
        )
        return self.readiness.check(query)

    def verify_flight(
        self,
        flight: str,
        *,
        on: date | None = None,
        max_holes: int = 0,
        accept_absent: bool | None = None,
        confirmed_within_days: float | None = None,
        quick: bool = False,
    ) -> FlightVerdict:
        """Judge whether all areas of a flight are ready, each by its own sector and source."""
        found = self.flights.get_flight(flight)
        return self.readiness.check_flight(
            found,
            on=on,
            holes_max=max_holes,
            accepts_absent=accept_absent,
            confirmed_within_days=confirmed_within_days,
            quick=quick,
        )

    def report_flight(
        self, flight: str, *, on: date | None = None, quick: bool = False
    ) -> FlightReport:
        """Judge a flight and read its imagery; ``render`` of the result returns an HTML page."""
        return make_flight_report(self, flight, on=on, quick=quick)

    def export(
        self,
        dest: Path,
        *,
        bbox: Places | None = None,
        zoom_levels: Sequence[int] | None = None,
        flight: str | None = None,
        name: str | None = None,
        attribution: str | None = None,
        replace: bool = False,
    ) -> ExportReport:
        """Write tiles of the cache to an archive: of an area, of a flight, or all of them.

        The suffix chooses the format: ``.mbtiles``, ``.pmtiles``, ``.gpkg``, ``.qgctiledb``, or
        else a folder of images.
        """
        target = build_archive_target(detect_format(dest.name), dest.absolute(), replace=replace)
        if flight is None:
            levels = ALL_ZOOMS if zoom_levels is None else zoom_levels
            places = [WORLD] if bbox is None else to_places(bbox)
            coverages = [TileCoverage.from_place(place, levels) for place in places]
        else:
            coverages = self.flights.get_flight(flight).list_coverages(self.config.source)
        request = build_export_request(
            self.config, dest, coverages, name=name, attribution=attribution
        )
        return self.archive_export.export(request, target)

    def import_archive(
        self,
        src: Path,
        *,
        flight: str = "import",
        sector: SectorLike = SectorClass.ACTIVE_CONFLICT,
        source: str | None = None,
        produced_at: datetime | None = None,
        resolution_m_per_px: float | None = None,
        replace_tiles: bool = False,
    ) -> ImportReport:
        """Store the tiles of an archive or a folder, with the same checks as a download.

        ``produced_at`` and ``resolution_m_per_px`` are used where the archive has none.
        """
        request = ImportRequest(
            source=source or self.config.source,
            flight_id=flight,
            sector_class=to_sector(sector),
            produced_at=produced_at,
            resolution_m_per_px=resolution_m_per_px,
            replaces_tiles=replace_tiles,
        )
        path = src.absolute()
        archive = build_archive_source(detect_import_format(path), path, check=lambda: None)
        with self.hold_cache():
            return self.archive_import.import_archive(archive, request)

    # captured tiles

    def ingest(self, folder: Path, *, flight: str) -> IngestReport:
        """Store the tiles that a flight captured, to be uploaded."""
        request = UploadRequest(flight_id=flight)
        with self.hold_cache():
            return self.capture_ingest.ingest(request.flight_id, CaptureFolderFiles(folder))

    def upload(
        self, *, flight: str, on_ground: bool = False, flight_record: Path | None = None
    ) -> UploadBatchReport:
        """Upload the tiles that a flight captured.

        ``on_ground`` confirms that the aircraft has landed; else ``flight_record`` must say so, or
        the file that ``c11.flight_record_file`` names.
        """
        request = UploadRequest(flight_id=flight)
        check_one_landing_source(flight_record, on_ground=on_ground)
        records = self.select_flight_records(flight, flight_record, on_ground=on_ground)
        with self.hold_cache():
            uploader = self.build_uploader(records)
            pending = self.tile_inventory.count_pending(flight)
            self.listener(UploadStarted(flight_id=flight, tiles=pending))
            report = uploader.upload_pending_tiles(request)
        self.listener(UploadFinished(report=report))
        return report

    # the queue

    def submit_download(
        self,
        *,
        bbox: PlaceLike,
        zoom_levels: Sequence[int],
        flight: str,
        sector: SectorLike,
        far: bool = False,
    ) -> Run:
        """Queue a download; returns the existing run when the same work is queued already."""
        (run,) = self.submit_downloads(
            bbox=bbox, zoom_levels=zoom_levels, flight=flight, sector=sector, far=far
        )
        return run

    def submit_downloads(
        self,
        *,
        bbox: Places,
        zoom_levels: Sequence[int],
        flight: str,
        sector: SectorLike,
        far: bool = False,
    ) -> list[Run]:
        """Queue the download of several areas, one run each."""
        areas = _to_areas(bbox, zoom_levels, sector)
        if not far:
            self.flights.check_distances(flight, [area.bbox for area in areas])
        return [self.queue_download(flight, area, by=self.name)[0] for area in areas]

    def submit_upload(self, *, flight: str) -> Run:
        """Queue an upload; workers learn of the landing from ``c11.flight_record_file``."""
        run, _is_new = self.queue_upload(flight, by=self.name)
        return run

    def find_run(self, run_id: RunId) -> Run | None:
        """Return a run, or ``None``; ``RunId(text)`` makes an id of stored text."""
        return self.work_reader.find_run(run_id)

    def work(
        self, *, until_idle: bool = True, is_stopping: Callable[[], bool] = lambda: False
    ) -> int:
        """Claim runs and execute them; return how many.

        It returns when nothing is due (``until_idle``), or once ``is_stopping`` returns true.
        """
        with self.open_worker(
            WorkerId(self.name), until_idle=until_idle, is_stopping=is_stopping
        ) as worker:
            worker.run()
        return worker.processed

    def read_partition(self, key: PartitionKey) -> AbstractContextManager[PartitionReader] | None:
        """Return a context manager for reading a partition's sealed tiles.

        ``None`` means that the partition is unknown, pending or failed.
        """
        return self.partition_data.open(key)


def _to_areas(bbox: Places, zoom_levels: Sequence[int], sector: SectorLike) -> list[Area]:
    return [Area.from_place(place, zoom_levels, to_sector(sector)) for place in to_places(bbox)]
