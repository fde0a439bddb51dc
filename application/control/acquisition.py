"""Acquire a partition: extract it into the run's raw partition, seal it, verify it, judge it."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from logging import Logger
from pathlib import PurePath

from attrs import define, field

from tileferry.application.cache.budget import DiskBudget
from tileferry.application.download.area_download import AreaDownload
from tileferry.application.download.settings import DownloadSettings
from tileferry.application.ports.cache import DiskSpace
from tileferry.application.ports.clock import Background, Clock
from tileferry.application.ports.downloads import FetchRunner, TileDownloader
from tileferry.application.ports.progress import NULL_LISTENER, ProgressListener
from tileferry.application.ports.provider import DatedTileProvider, TileProvider
from tileferry.application.ports.raw_partitions import DownloaderFactory, OpenPartition, RawSink
from tileferry.application.ports.retries import RequestPace
from tileferry.application.retries.manager import RetryManager
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.partitions.imagery_dates import ImageryDates
from tileferry.domain.partitions.manifest import SealedPartition
from tileferry.domain.partitions.validator import ValidationRules, judge_partition
from tileferry.domain.runs import RunId, Verdict
from tileferry.domain.tiles import DownloadRequest
from tileferry.domain.tiles.area import Area
from tileferry.domain.validation import integer


@define(kw_only=True)
class PartitionAcquisition:
    """The acquisition of one run. Errors before the seal are raised; the caller handles retries."""

    sink: RawSink
    downloaders: DownloaderFactory
    clock: Clock
    logger: Logger
    rules: ValidationRules = field(factory=ValidationRules)
    imagery: ImageryDates

    def acquire(
        self,
        key: PartitionKey,
        run_id: RunId,
        area: Area,
        *,
        progress: ProgressListener = NULL_LISTENER,
    ) -> tuple[Verdict, SealedPartition]:
        """Download the area into the run's raw partition, unless that is sealed, and judge it.

        An interrupted run resumes. A sealed raw partition gets the same verdict again.
        """
        sealed = self.sink.find(key, run_id)
        if sealed is None:
            sealed = self._extract(key, run_id, area, progress)
        return self.judge_sealed(sealed), sealed

    def judge_sealed(self, sealed: SealedPartition) -> Verdict:
        """Read every byte of a sealed partition back and return its verdict."""
        with self.sink.open_reader(sealed) as reader:
            verdict = judge_partition(
                reader.header, reader.iter_entries(), reader.verify(), self.rules
            )
        self.logger.info(
            "%s is judged: %s",
            sealed.subject,
            verdict.explanation or verdict.outcome.value,
            extra={
                "kind": "partition.judged",
                "run_id": sealed.run_id,
                "partition": str(sealed.key),
                "outcome": verdict.outcome.value,
            },
        )
        return verdict

    def _extract(
        self, key: PartitionKey, run_id: RunId, area: Area, progress: ProgressListener
    ) -> SealedPartition:
        now = datetime.fromtimestamp(self.clock.now(), UTC)
        imagery_date = self.imagery.select(key.logical_date, today=now.date())
        with self.sink.open(key, run_id, area, imagery_date=imagery_date) as raw:
            request = DownloadRequest(
                flight_id=run_id,
                area=area,
                cache_root=raw.root,
            )
            downloader = self.downloaders.create(raw, progress=progress, imagery_date=imagery_date)
            report = downloader.download_tiles_for_area(request)
            sealed = raw.seal(report, at=datetime.fromtimestamp(self.clock.now(), UTC))
        self.logger.info(
            "%s is sealed: %d tiles",
            sealed.subject,
            sealed.tiles,
            extra={
                "kind": "partition.sealed",
                "run_id": run_id,
                "partition": str(key),
                "tiles": sealed.tiles,
                "size_bytes": sealed.size_bytes,
                "manifest_sha256": sealed.manifest_sha256,
            },
        )
        return sealed


@define(kw_only=True)
class RawDownloaderFactory:
    """Creates area downloads that write to a raw partition instead of the cache."""

    provider: TileProvider
    runner: FetchRunner
    retry: RetryManager
    pace: RequestPace
    clock: Clock
    logger: Logger
    disk: Callable[[PurePath], DiskSpace]
    """Returns the disk space of the disk that holds a folder."""
    free_space_reserve_bytes: int = field(validator=integer(0))
    settings: DownloadSettings = field(factory=DownloadSettings)
    background: Background | None = None

    def create(
        self,
        raw: OpenPartition,
        *,
        progress: ProgressListener = NULL_LISTENER,
        imagery_date: date | None = None,
    ) -> TileDownloader:
        """Return an area download that writes the imagery of a date to ``raw``."""
        provider = self.provider
        if imagery_date is not None:
            assert isinstance(provider, DatedTileProvider)  # noqa: S101  # ``ImageryDates`` says so
            provider = provider.for_date(imagery_date)
        return AreaDownload(
            provider=provider,
            tile_store=raw.tile_store,
            tile_metadata_store=raw.tile_metadata_store,
            budget_enforcer=DiskBudget(
                disk=self.disk(raw.root), free_space_reserve_bytes=self.free_space_reserve_bytes
            ),
            journals=raw.journals,
            spools=raw.spools,
            runner=self.runner,
            lock=raw.lock,
            retry=self.retry,
            pace=self.pace,
            clock=self.clock,
            logger=self.logger,
            settings=self.settings,
            background=self.background,
            progress=progress,
            # A raw partition is complete when it is sealed. If the journal were marked complete
            # earlier and the process crashed, the next attempt would be a no-op and its report
            # would lack the tiles that the gates refused.
            marks_complete=False,
        )
