"""What a worker does for each kind of run, with everything in memory."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath, PurePosixPath

import pytest
from attrs import define, field
from support.memory_area import BOX, ZOOM, InTurn, MemoryArea, MemoryProvider, fault
from support.work_desk import Desk, key, memory_desk, upload

from tileferry.adapters.memory import MemoryRawSink
from tileferry.application import PartitionAcquisition, RawDownloads
from tileferry.application.control.run_handlers import (
    AcquirePartitionHandler,
    DownloadAreaHandler,
    UploadFlightHandler,
    Watchful,
)
from tileferry.application.ports.downloads import DownloadObserver, TileFate
from tileferry.application.ports.uploads import TileUploader, UploadObserver
from tileferry.domain.actors import Actor
from tileferry.domain.errors import CacheBudgetExceededError, SatelliteProviderError
from tileferry.domain.runs import Run, VerdictOutcome
from tileferry.domain.tiles import (
    PerTileStatus,
    ProviderFault,
    SectorClass,
    TileUploadStatus,
    UploadBatchReport,
    UploadRequest,
)
from tileferry.domain.work import AcquirePartition, DownloadArea

KEY = key(source="satellite")
ROOT = PurePosixPath("/cache")


class Stopped(BaseException):
    """The worker has to stop."""


def stop() -> None:
    raise Stopped


def go_on() -> None:
    """Nobody wants it to stop."""


@define
class Locked:
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
class Disk:
    """Has so much free."""

    free: int = 10**9

    def free_bytes(self) -> int:
        return self.free

    def total_bytes(self) -> int:
        return 10**12


@define
class Site:
    """A provider, and raw partitions to fill from it."""

    area: MemoryArea = field(factory=lambda: MemoryArea.of(0))
    disk: Disk = field(factory=Disk)
    sink: MemoryRawSink = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.sink = MemoryRawSink(clock=self.area.bench.clock)

    @classmethod
    def of(cls, count: int) -> "Site":
        return cls(MemoryArea(MemoryProvider(count)))

    def acquisition(self) -> PartitionAcquisition:
        logger = logging.getLogger("tests.acquisition")
        bench = self.area.bench
        return PartitionAcquisition(
            sink=self.sink,
            downloaders=RawDownloads(
                provider=self.area.provider,
                workers=InTurn(),
                retry=bench.manager(),
                clock=bench.clock,
                logger=logger,
                disk=self.disk_under,
                free_space_reserve_bytes=1_000,
            ),
            clock=bench.clock,
            logger=logger,
        )

    def disk_under(self, folder: PurePath) -> Disk:
        assert folder.parts
        return self.disk


@pytest.fixture
def desk() -> Desk:
    return memory_desk()


def partition_run(desk: Desk) -> Run:
    work = AcquirePartition(
        key=KEY, bbox=BOX, zoom_levels=(ZOOM,), sector_class=SectorClass.STABLE_REAR
    )
    desk.partitions.enqueue([work], actor=Actor.OPERATOR)
    return desk.claimed()


def download_run(desk: Desk) -> Run:
    work = DownloadArea(
        source="satellite",
        flight_id="F1",
        bbox=BOX,
        zoom_levels=(ZOOM,),
        sector_class=SectorClass.STABLE_REAR,
    )
    desk.submitted(work)
    return desk.claimed()


def test_a_partition_is_extracted_sealed_and_judged(desk: Desk) -> None:
    site = Site.of(4)
    run = partition_run(desk)
    handler = AcquirePartitionHandler(site.acquisition)
    result = handler(run, go_on)
    assert result.verdict.run_id == run.run_id
    assert result.sealed is not None
    assert (result.sealed.key, result.sealed.tiles) == (KEY, 4)
    assert site.sink.find(KEY, run.run_id) == result.sealed
    # What is sealed is not extracted again, and gets the same verdict.
    site.area.provider.asked.clear()
    assert handler(run, go_on) == result
    assert site.area.provider.asked == []


def test_a_run_that_broke_goes_on_where_it_was(desk: Desk) -> None:
    site = Site.of(4)
    run = partition_run(desk)
    tiles = site.area.provider.tiles
    site.area.provider.faults[tiles[2]] = [fault(ProviderFault.UNAVAILABLE)] * 5
    handler = AcquirePartitionHandler(site.acquisition)
    with pytest.raises(SatelliteProviderError):
        handler(run, go_on)
    assert site.sink.find(KEY, run.run_id) is None
    site.area.provider.asked.clear()
    assert handler(run, go_on).sealed is not None
    assert site.area.provider.fetched == tiles[2:]


def test_a_raw_partition_leaves_the_reserve_of_the_disk_alone(desk: Desk) -> None:
    site = Site.of(4)
    site.disk.free = 1_010
    with pytest.raises(CacheBudgetExceededError) as failure:
        AcquirePartitionHandler(site.acquisition)(partition_run(desk), go_on)
    assert failure.value.available_bytes == 10


def test_an_area_is_downloaded_under_the_lock(desk: Desk) -> None:
    area, locked = MemoryArea.of(3), Locked()

    def downloader(observer: DownloadObserver) -> object:
        assert locked.inside == 1
        return area.download(observer=observer)

    handler = DownloadAreaHandler(
        downloader=downloader,  # type: ignore[arg-type]  # it is one
        locked=locked,
        cache_root=ROOT,
    )
    run = download_run(desk)
    result = handler(run, go_on)
    assert (result.verdict.run_id, result.verdict.outcome) == (run.run_id, VerdictOutcome.PASSED)
    assert (result.sealed, locked.inside, area.stored()) == (None, 0, area.provider.tiles)


def test_a_worker_that_has_to_stop_ends_the_download(desk: Desk) -> None:
    area, locked = MemoryArea.of(3), Locked()
    handler = DownloadAreaHandler(
        downloader=lambda observer: area.download(observer=observer),
        locked=locked,
        cache_root=ROOT,
    )
    with pytest.raises(Stopped):
        handler(download_run(desk), stop)
    assert (locked.inside, area.provider.fetched) == (0, [])


@define
class Uploader:
    """Says what it is told of two tiles."""

    observer: UploadObserver
    asked: list[str]
    status: TileUploadStatus = TileUploadStatus.ACCEPTED

    def upload_pending_tiles(self, request: UploadRequest) -> UploadBatchReport:
        self.asked.append(request.flight_id)
        answers = [
            PerTileStatus(tile_id=tile, status=self.status) for tile in MemoryProvider(2).tiles
        ]
        self.observer.answered(answers, 100)
        return UploadBatchReport.from_statuses(request.flight_id, answers)


@pytest.mark.parametrize("check", [go_on, stop])
def test_a_flight_is_uploaded_under_the_lock(desk: Desk, check: Callable[[], None]) -> None:
    locked = Locked()
    asked: list[str] = []

    def uploader(observer: UploadObserver) -> TileUploader:
        assert locked.inside == 1
        return Uploader(observer, asked)  # type: ignore[return-value]  # the rest is not called

    desk.submitted(upload("F7"))
    run = desk.claimed()
    handler = UploadFlightHandler(uploader=uploader, locked=locked)
    if check is stop:
        with pytest.raises(Stopped):
            handler(run, check)
    else:
        assert handler(run, check).verdict.outcome is VerdictOutcome.PASSED
    assert (asked, locked.inside, locked.entered) == (["F7"], 0, 1)


def test_only_what_comes_at_a_safe_moment_ends_the_work() -> None:
    watchful = Watchful(stop)
    moments: list[Callable[[], None]] = [
        lambda: watchful.listing(1),
        lambda: watchful.begun(tiles=1, already_stored=0, estimated_bytes=1),
        lambda: watchful.durable(1),
        lambda: watchful.answered([], 0),
    ]
    for told in moments:
        with pytest.raises(Stopped):
            told()
    watchful.tile(TileFate.STORED, 1)
