"""What a worker does for each kind of run, with everything in memory."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import date
from pathlib import PurePath, PurePosixPath

import pytest
from attrs import define, field
from support.control_plane import (
    ControlPlane,
    create_memory_control_plane,
    partition_key,
    upload_work,
)
from support.managers import create_pace
from support.memory_download_env import (
    BOX,
    ZOOM,
    MemoryDownloadEnv,
    MemoryProvider,
    create_fault,
)

from tileferry.adapters.memory import InlineFetchRunner, ManualClock, MemoryRawSink
from tileferry.application import PartitionAcquisition, RawDownloaderFactory
from tileferry.application.control.run_handlers import (
    AcquirePartitionHandler,
    CacheAccess,
    DownloadAreaHandler,
    StopCheckListener,
    UploadFlightHandler,
)
from tileferry.application.ports.downloads import TileFate
from tileferry.application.ports.progress import (
    BatchAnswered,
    CacheAwaited,
    DownloadFinished,
    DownloadStarted,
    ListingProgressed,
    ProgressEvent,
    ProgressListener,
    TileProcessed,
    TilesStored,
)
from tileferry.application.ports.uploads import TileUploader
from tileferry.domain.errors import CacheBudgetExceededError, CacheLockError, SatelliteProviderError
from tileferry.domain.partitions.imagery_dates import ImageryDates
from tileferry.domain.runs import Run, VerdictOutcome
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import (
    DownloadBatchReport,
    PerTileStatus,
    ProviderFault,
    SectorClass,
    TileUploadStatus,
    UploadBatchReport,
    UploadRequest,
)
from tileferry.domain.tiles.area import Area
from tileferry.domain.work import AcquirePartition, DownloadArea

KEY = partition_key(source="satellite")
ROOT = PurePosixPath("/cache")


class Stopped(BaseException):
    """The worker has to stop."""


def stop() -> None:
    raise Stopped


def keep_running() -> None:
    """Nobody wants it to stop."""


@define
class CountingLock:
    """Counts who is inside."""

    inside: int = 0
    entered: int = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.inside += 1
        self.entered += 1
        try:
            yield
        finally:
            self.inside -= 1


@define
class FakeDisk:
    """Has so much free."""

    free: int = 10**9

    def free_bytes(self) -> int:
        return self.free

    def total_bytes(self) -> int:
        return 10**12


@define
class AcquisitionEnv:
    """A provider, and raw partitions to fill from it."""

    area: MemoryDownloadEnv = field(factory=lambda: MemoryDownloadEnv.with_tiles(0))
    disk: FakeDisk = field(factory=FakeDisk)
    sink: MemoryRawSink = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.sink = MemoryRawSink(clock=self.area.bench.clock)

    @classmethod
    def of(cls, count: int) -> "AcquisitionEnv":
        return cls(MemoryDownloadEnv(MemoryProvider(count)))

    def acquisition(self) -> PartitionAcquisition:
        logger = logging.getLogger("tests.acquisition")
        bench = self.area.bench
        return PartitionAcquisition(
            sink=self.sink,
            downloaders=RawDownloaderFactory(
                provider=self.area.provider,
                runner=InlineFetchRunner(),
                retry=bench.create_manager(),
                pace=create_pace(bench.clock),
                clock=bench.clock,
                logger=logger,
                disk=self.disk_under,
                free_space_reserve_bytes=1_000,
            ),
            clock=bench.clock,
            logger=logger,
            imagery=ImageryDates(source="osm", is_dated=False, allow_undated=True),
        )

    def disk_under(self, folder: PurePath) -> FakeDisk:
        assert folder.parts
        return self.disk


@pytest.fixture
def control_plane() -> ControlPlane:
    return create_memory_control_plane()


AREA = Area(bbox=BOX, zoom_levels=(ZOOM,), sector_class=SectorClass.STABLE_REAR)


def claim_partition_run(desk: ControlPlane) -> Run:
    work = AcquirePartition(key=KEY, area=AREA)
    desk.partitions.enqueue([work], actor=Actor.OPERATOR)
    return desk.claim_run()


def claim_download_run(desk: ControlPlane) -> Run:
    work = DownloadArea(
        source="satellite",
        flight_id="F1",
        area=AREA,
    )
    desk.submit_run(work)
    return desk.claim_run()


def test_partition_is_acquired_sealed_and_judged(control_plane: ControlPlane) -> None:
    site = AcquisitionEnv.of(4)
    run = claim_partition_run(control_plane)
    handler = AcquirePartitionHandler(site.acquisition)
    result = handler(run, keep_running)
    assert result.verdict.run_id == run.run_id
    assert result.sealed is not None
    assert (result.sealed.key, result.sealed.tiles) == (KEY, 4)
    assert site.sink.find(KEY, run.run_id) == result.sealed
    # What is sealed is not extracted again, and gets the same verdict.
    site.area.provider.asked.clear()
    assert handler(run, keep_running) == result
    assert site.area.provider.asked == []


def test_failed_acquisition_resumes(control_plane: ControlPlane) -> None:
    site = AcquisitionEnv.of(4)
    run = claim_partition_run(control_plane)
    tiles = site.area.provider.tiles
    site.area.provider.faults[tiles[2]] = [create_fault(ProviderFault.UNAVAILABLE)] * 5
    handler = AcquirePartitionHandler(site.acquisition)
    with pytest.raises(SatelliteProviderError):
        handler(run, keep_running)
    assert site.sink.find(KEY, run.run_id) is None
    site.area.provider.asked.clear()
    assert handler(run, keep_running).sealed is not None
    assert site.area.provider.fetched == tiles[2:]


def test_acquisition_respects_disk_reserve(control_plane: ControlPlane) -> None:
    site = AcquisitionEnv.of(4)
    site.disk.free = 1_010
    with pytest.raises(CacheBudgetExceededError) as failure:
        AcquirePartitionHandler(site.acquisition)(claim_partition_run(control_plane), keep_running)
    assert failure.value.available_bytes == 10


def test_area_is_downloaded_under_cache_lock(control_plane: ControlPlane) -> None:
    area, locked = MemoryDownloadEnv.with_tiles(3), CountingLock()

    def downloader(progress: ProgressListener) -> object:
        assert locked.inside == 1
        return area.create_download(progress=progress)

    handler = DownloadAreaHandler(
        downloader=downloader,  # type: ignore[arg-type]  # it is one
        cache=CacheAccess(lock=locked, clock=ManualClock()),
        cache_root=ROOT,
    )
    run = claim_download_run(control_plane)
    result = handler(run, keep_running)
    assert (result.verdict.run_id, result.verdict.outcome) == (run.run_id, VerdictOutcome.PASSED)
    assert (result.sealed, locked.inside, area.list_stored()) == (None, 0, area.provider.tiles)


def test_stop_request_ends_download(control_plane: ControlPlane) -> None:
    area, locked = MemoryDownloadEnv.with_tiles(3), CountingLock()
    handler = DownloadAreaHandler(
        downloader=lambda progress: area.create_download(progress=progress),
        cache=CacheAccess(lock=locked, clock=ManualClock()),
        cache_root=ROOT,
    )
    with pytest.raises(Stopped):
        handler(claim_download_run(control_plane), stop)
    assert (locked.inside, area.provider.fetched) == (0, [])


@define
class FakeUploader:
    """Says what it is told of two tiles."""

    progress: ProgressListener
    asked: list[str]
    status: TileUploadStatus = TileUploadStatus.ACCEPTED

    def upload_pending_tiles(self, request: UploadRequest) -> UploadBatchReport:
        self.asked.append(request.flight_id)
        answers = [
            PerTileStatus(tile_id=tile, status=self.status) for tile in MemoryProvider(2).tiles
        ]
        self.progress(BatchAnswered(answers=tuple(answers), size_bytes=100))
        return UploadBatchReport.from_statuses(request.flight_id, answers)


@pytest.mark.parametrize("check", [keep_running, stop])
def test_flight_is_uploaded_under_cache_lock(
    control_plane: ControlPlane, check: Callable[[], None]
) -> None:
    locked = CountingLock()
    asked: list[str] = []

    def uploader(progress: ProgressListener) -> TileUploader:
        assert locked.inside == 1
        return FakeUploader(progress, asked)  # type: ignore[return-value]  # the rest is not called

    control_plane.submit_run(upload_work("F7"))
    run = control_plane.claim_run()
    handler = UploadFlightHandler(
        uploader=uploader, cache=CacheAccess(lock=locked, clock=ManualClock())
    )
    if check is stop:
        with pytest.raises(Stopped):
            handler(run, check)
    else:
        assert handler(run, check).verdict.outcome is VerdictOutcome.PASSED
    assert (asked, locked.inside, locked.entered) == (["F7"], 0, 1)


@pytest.mark.parametrize(
    "event",
    [
        ListingProgressed(tiles=1),
        DownloadStarted(tiles=1, already_stored=0, estimated_bytes=1),
        TileProcessed(TileFate.STORED, 1),
        TilesStored(tiles=1),
        BatchAnswered(answers=(), size_bytes=0),
    ],
)
def test_worker_can_stop_at_each_event(event: ProgressEvent) -> None:
    events: list[ProgressEvent] = []
    with pytest.raises(Stopped):
        StopCheckListener(stop, events.append)(event)
    assert events == [event]


def test_finished_download_is_not_stopped() -> None:
    report = DownloadBatchReport.for_no_op(flight_id="F1", request_hash="ab" * 8, tiles_journaled=3)
    StopCheckListener(stop)(DownloadFinished(report=report))


def test_run_waits_uncharged_for_a_cache_that_another_process_has_locked(
    control_plane: ControlPlane,
) -> None:
    area, locked, clock = MemoryDownloadEnv.with_tiles(3), CountingLock(), ManualClock()
    busy = CacheLockError(path="lock", problem="process 7 holds it", remedy="wait for it")
    refusals = [busy, busy]
    events: list[ProgressEvent] = []

    def lock() -> AbstractContextManager[None]:
        if refusals:
            raise refusals.pop()
        return locked()

    handler = DownloadAreaHandler(
        downloader=lambda progress: area.create_download(progress=progress),
        cache=CacheAccess(lock=lock, clock=clock, progress=events.append),
        cache_root=ROOT,
    )
    result = handler(claim_download_run(control_plane), keep_running)
    assert result.verdict.outcome is VerdictOutcome.PASSED
    assert events == [CacheAwaited(problem="process 7 holds it")] * 2
    assert clock.slept == [1.0, 1.0]


def test_run_that_waits_for_the_cache_can_be_stopped(control_plane: ControlPlane) -> None:
    def lock() -> AbstractContextManager[None]:
        raise CacheLockError(path="lock", problem="busy", remedy="wait")

    handler = UploadFlightHandler(
        uploader=lambda _progress: pytest.fail("the cache is locked"),
        cache=CacheAccess(lock=lock, clock=ManualClock()),
    )
    control_plane.submit_run(upload_work("F7"))
    with pytest.raises(Stopped):
        handler(control_plane.claim_run(), stop)


class DatedProvider(MemoryProvider):
    """Has the imagery of every day, and remembers which were wanted."""

    wanted: list[date]

    def for_date(self, day: date) -> MemoryProvider:
        self.wanted = [*getattr(self, "wanted", ()), day]
        return self


def test_imagery_of_the_logical_date_is_downloaded(control_plane: ControlPlane) -> None:
    provider = DatedProvider(4)
    env = AcquisitionEnv(MemoryDownloadEnv(provider))
    acquisition = env.acquisition()
    acquisition.imagery = ImageryDates(source="satellite")
    result = AcquirePartitionHandler(lambda: acquisition)(
        claim_partition_run(control_plane), keep_running
    )
    assert provider.wanted == [KEY.logical_date]
    assert result.sealed is not None
    with env.sink.open_reader(result.sealed) as reader:
        assert reader.header.imagery_date == KEY.logical_date
