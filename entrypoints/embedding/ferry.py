"""The whole product in one object: a database, a cache, a provider, a queue."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, evolve

from tileferry.adapters.filesystem import CaptureFolderFiles
from tileferry.application import IngestReport
from tileferry.application.cache.export import ExportReport
from tileferry.application.cache.readiness import ReadinessReport
from tileferry.application.ports.progress import UploadEnded
from tileferry.application.ports.raw_partitions import PartitionReader
from tileferry.application.transfers.progress import ProgressEvents
from tileferry.domain.archives import format_of
from tileferry.domain.partitions import PartitionKey
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
from tileferry.entrypoints.archives import archive_target, export_request
from tileferry.entrypoints.container import tile_uploader_of
from tileferry.entrypoints.embedding.given import (
    Box,
    Sector,
    box_of,
    check_one_word,
    sector_of,
)
from tileferry.entrypoints.embedding.queueing import Queueing
from tileferry.entrypoints.holding import locked
from tileferry.entrypoints.judging import Question, end_of, readiness_of
from tileferry.entrypoints.landing import records_of

if TYPE_CHECKING:
    from tileferry.adapters.http import HttpTileDownloader
    from tileferry.application.control.partition_reading import PartitionReading
    from tileferry.application.ports import TileDownloader


@define
class Tileferry(Queueing):
    """One installation, to be used in a ``with`` block. A program may have several.

    It reads ``tileferry.toml`` and the environment when no configuration is given, writes nothing
    to the terminal, and logs by the loggers ``tileferry.…``, for which it sets nothing up. One
    thread uses it at a time; several threads have several of them.
    """

    def coverage(self, *, bbox: Box, zoom_levels: Sequence[int]) -> list[TileSummary]:
        """Return what the provider has in an area."""
        downloader: TileDownloader = self._parts().tile_downloader()
        return downloader.enumerate_remote_coverage(box_of(bbox), zoom_levels)

    def download(
        self,
        *,
        bbox: Box,
        zoom_levels: Sequence[int],
        flight: str,
        sector: Sector,
        again: bool = False,
        max_failures_share: float | None = None,
    ) -> DownloadBatchReport:
        """Have the tiles of an area in the cache. Called again, it goes on where it was ended.

        ``again`` fetches everything anew. Of all tiles ``max_failures_share`` (0 to 1) may fail
        before the download ends; without it an outage ends it at once.
        """
        request = DownloadRequest(
            flight_id=flight,
            bbox=box_of(bbox),
            zoom_levels=zoom_levels,
            sector_class=sector_of(sector),
            cache_root=self.config.c11.cache_root,
        )
        with locked(self._parts()):
            container = self._current()
            settings = evolve(container.download_settings(), max_failures_share=max_failures_share)
            downloader: HttpTileDownloader = container.tile_downloader(
                settings=settings, observer=ProgressEvents(self.listener)
            )
            if again:
                downloader.start_over(request)
            return downloader.download_tiles_for_area(request)

    def read_tile(self, tile_id: TileId) -> bytes:
        """Return a tile's bytes, checked as they are read."""
        content: bytes = self._parts().tile_store().read_tile(tile_id)
        return content

    def read_partition(self, key: PartitionKey) -> AbstractContextManager[PartitionReader] | None:
        """Return a block in which a partition's tiles can be read, as they were sealed.

        ``None`` is a gap: the partition is unknown, pending or failed. Only a success is read.
        """
        reading: PartitionReading = self._current().partition_reading()
        return reading.open(key)

    def verify(
        self,
        *,
        bbox: Box,
        zoom_levels: Sequence[int],
        sector: Sector = SectorClass.ACTIVE_CONFLICT,
        on: date | None = None,
        max_holes: int = 0,
        quick: bool = False,
    ) -> ReadinessReport:
        """Say whether an area is ready for a flight, today or ``on`` a day to come.

        ``quick`` goes by what is known of the tiles; else all their bytes are read and compared.
        """
        now = datetime.now(UTC)
        question = Question(
            coverage=TileCoverage(bbox=box_of(bbox), zoom_levels=zoom_levels),
            sector=sector_of(sector),
            now=now,
            flown_at=now if on is None else end_of(on, now, field="on"),
            source=self.config.source,
            holes_max=max_holes,
            quick=quick,
        )
        return readiness_of(self._parts(), question)

    def export(
        self,
        dest: Path,
        *,
        bbox: Box | None = None,
        zoom_levels: Sequence[int] | None = None,
        name: str | None = None,
        attribution: str | None = None,
        replace: bool = False,
    ) -> ExportReport:
        """Write tiles of the cache to an archive, by default all of them.

        The file's name tells its form: ``.mbtiles``, ``.pmtiles``, or else a folder of pictures.
        """
        target = archive_target(format_of(dest.name), dest.absolute(), replace=replace)
        request = export_request(
            self.config,
            dest,
            bbox=None if bbox is None else box_of(bbox),
            zoom_levels=zoom_levels,
            name=name,
            attribution=attribution,
        )
        report: ExportReport = self._current().cache_export().export(request, target)
        return report

    def ingest(self, folder: Path, *, flight: str) -> IngestReport:
        """Take what a flight captured into the cache, where it waits for its upload."""
        request = UploadRequest(flight_id=flight)
        with locked(self._parts()):
            report: IngestReport = (
                self._current()
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
        check_one_word(flight_record, on_ground=on_ground)
        records = records_of(self._parts(), flight, flight_record, on_ground=on_ground)
        with locked(self._parts()):
            uploader = tile_uploader_of(
                self._current(), flight_records=records, observer=ProgressEvents(self.listener)
            )
            report = uploader.upload_pending_tiles(request)
        self.listener(UploadEnded(report=report))
        return report
