"""A program that embeds tileferry: several instances, events instead of prints, orderly stops."""

import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve
from support.embedding import AREA, BOX, Site
from support.provider import API_KEY, RunningProvider

from tileferry.application.ports.progress import (
    BatchAnswered,
    DownloadBegun,
    DownloadEnded,
    ProgressEvent,
    TilesDurable,
    TileSettled,
    UploadEnded,
    Waiting,
)
from tileferry.domain.actors import Actor
from tileferry.domain.errors import CacheLockError, DatabaseError, InvalidValueError
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.runs import RunId, RunStatus
from tileferry.domain.tiles import (
    Area,
    BBox,
    DownloadOutcome,
    SectorClass,
    TileId,
    TileUploadStatus,
)
from tileferry.domain.work import AcquirePartition
from tileferry.entrypoints.container import Container
from tileferry.entrypoints.embedding import Tileferry
from tileferry.entrypoints.provider.imagery import draw_tile


@pytest.fixture
def site(tmp_path: Path, database_url: str, reference_provider: RunningProvider) -> Site:
    return Site(tmp_path, database_url, reference_provider)


def test_a_download_is_told_as_events_and_nothing_is_printed(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    site.provider.misbehave({"fault": "503", "call": "tile", "attempts": [1], "times": 1})
    with site.ferry() as ferry:
        report = ferry.download(flight="F7", **AREA)
    assert report.outcome is DownloadOutcome.SUCCESS
    (begun,) = site.of(DownloadBegun)
    assert isinstance(begun, DownloadBegun)
    assert len(site.of(TileSettled)) == begun.tiles == report.tiles_requested
    assert site.of(TilesDurable)[-1] == TilesDurable(tiles=begun.tiles)
    assert site.heard[-1] == DownloadEnded(report=report)
    (waiting,) = site.of(Waiting)
    assert isinstance(waiting, Waiting)
    assert (waiting.attempt, waiting.max_attempts) == (1, 5)
    assert "503" in waiting.reason
    assert capfd.readouterr() == ("", "")


PROGRAM = """
import sys
from pathlib import Path
from tileferry.entrypoints.config import C11Config, Config
from tileferry.entrypoints.embedding import Tileferry

database_url, cache_root, url, key, box = sys.argv[1:]
c11 = C11Config(cache_root=Path(cache_root), satellite_provider_url=url, service_api_key=key)
with Tileferry(Config(database_url=database_url, c11=c11)) as ferry:
    report = ferry.download(bbox=box, zoom_levels=[14], flight="F7", sector="active_conflict")
assert report.retry_count == 1, report
assert report.tiles_rejected_resolution > 0, report
"""


def test_a_program_that_has_set_up_no_logging_sees_none_of_it(site: Site) -> None:
    site.provider.misbehave(
        {"fault": "503", "call": "tile", "attempts": [1], "times": 1},
        {"fault": "sub-spec", "tile": "14/9840/*"},
    )
    arguments = [site.database_url, str(site.home / "cache"), site.provider.url, API_KEY, BOX]
    ran = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_tile_is_read_back(site: Site) -> None:
    with site.ferry() as ferry:
        (first, *_) = ferry.coverage(bbox=BOX, zoom_levels=[14])
        ferry.download(flight="F7", **AREA)
        tile = TileId(source="satellite", zoom=14, x=first.tile_id.x, y=first.tile_id.y)
        assert ferry.read_tile(tile)[:3] == b"\xff\xd8\xff"


def test_an_upload_is_told_as_events(site: Site) -> None:
    card = site.home / "card" / "16" / "39000"
    card.mkdir(parents=True)
    (card / "22000.jpg").write_bytes(draw_tile(16, 39_000, 22_000))
    with site.ferry() as ferry:
        assert ferry.ingest(site.home / "card", flight="F7").tiles_ingested == 1
        with pytest.raises(InvalidValueError, match=r"c11\.flight_record_file"):
            ferry.upload(flight="F7")
        report = ferry.upload(flight="F7", on_ground=True)
    (answered,) = site.of(BatchAnswered)
    assert isinstance(answered, BatchAnswered)
    assert [answer.status for answer in answered.answers] == [TileUploadStatus.ACCEPTED]
    assert site.heard[-1] == UploadEnded(report=report)


def test_a_listener_may_end_a_download_and_it_goes_on_later(site: Site) -> None:
    def stop(event: ProgressEvent) -> None:
        if isinstance(event, TileSettled):
            raise KeyboardInterrupt

    with Tileferry(site.config(), listener=stop) as ferry, pytest.raises(KeyboardInterrupt):
        ferry.download(flight="F7", **AREA)
    with site.ferry() as ferry:
        assert ferry.download(flight="F7", **AREA).outcome is DownloadOutcome.SUCCESS
    assert min(site.provider.fetched.values()) == 1, "what was settled is not fetched again"


@define
class Stopper:
    """Ends a download once it is told something from the thread that works, after ``is_due``."""

    is_due: Callable[[], bool]
    waits: int = 0

    def __call__(self, event: ProgressEvent) -> None:
        self.waits += isinstance(event, Waiting)
        if isinstance(event, TilesDurable) and self.is_due():
            raise KeyboardInterrupt


def workers_alive() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tileferry-worker"]


@pytest.mark.parametrize(
    "fault", [{"fault": "429", "retry_after": 60}, {"fault": "503"}], ids=["told to", "backoff"]
)
def test_nothing_goes_on_after_a_download_was_stopped_in_a_wait(
    site: Site, fault: dict[str, Any]
) -> None:
    site.provider.misbehave({**fault, "call": "tile", "times": 1})
    before = set(workers_alive())
    stop = Stopper(lambda: stop.waits > 0)
    with Tileferry(site.config(), listener=stop) as ferry, pytest.raises(KeyboardInterrupt):
        ferry.download(flight="F7", **AREA)
    assert set(workers_alive()) <= before, "who waits for a retry ends with the download"


def test_who_is_inside_a_request_when_it_is_stopped_does_nothing_more(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.provider.misbehave({"fault": "stall", "call": "tile", "times": 1})
    before = set(workers_alive())
    config = site.config()
    impatient = evolve(config, c11=evolve(config.c11, http_timeout_s=3.0))
    stop = Stopper(lambda: len(site.provider.requests) > 1)
    with Tileferry(impatient, listener=stop) as ferry, pytest.raises(KeyboardInterrupt):
        ferry.download(flight="F7", **AREA)
    left = set(workers_alive()) - before
    assert left, "it is not waited for"
    for thread in left:
        thread.join(30)
    assert not left & set(workers_alive())
    assert (max(site.provider.fetched.values()), stop.waits) == (1, 0)
    assert "audit.sink_failed" not in [getattr(line, "kind", "") for line in caplog.records]


def test_several_instances_work_at_once_in_one_process(
    site: Site, empty_database_url: str, tmp_path: Path
) -> None:
    other = Site(tmp_path / "other", empty_database_url, site.provider)
    ended: list[DownloadOutcome] = []

    def work(where: Site) -> None:
        with where.ferry() as ferry:
            ferry.upgrade_database()
            ended.append(ferry.download(flight="F7", **AREA).outcome)

    threads = [threading.Thread(target=work, args=[where]) for where in (site, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == [DownloadOutcome.SUCCESS, DownloadOutcome.SUCCESS]
    tiles = len(site.of(TileSettled))
    assert tiles > 1
    assert len(other.of(TileSettled)) == tiles, "each hears of its own tiles, and of no others"


def test_one_cache_is_one_instance_s_at_a_time(site: Site) -> None:
    refusals: list[CacheLockError] = []

    def intrude(event: ProgressEvent) -> None:
        if isinstance(event, DownloadBegun):
            with Tileferry(site.config()) as second, pytest.raises(CacheLockError) as refused:
                second.download(flight="F8", **AREA)
            refusals.append(refused.value)

    with Tileferry(site.config(), listener=intrude) as ferry:
        ferry.download(flight="F7", **AREA)
    assert len(refusals) == 1


def test_a_queued_download_is_carried_out_once(site: Site) -> None:
    site.provider.misbehave({"fault": "503", "call": "tile", "attempts": [1], "times": 1})
    with site.ferry() as ferry:
        run = ferry.submit_download(flight="F7", **AREA)
        assert ferry.submit_download(flight="F7", **AREA).run_id == run.run_id
        assert ferry.work() == 1
        done = ferry.find_run(run.run_id)
        assert done is not None
        assert done.status is RunStatus.PASSED
        assert len(site.of(Waiting)) == 1
        assert ferry.find_run(RunId("none")) is None
        assert ferry.work() == 0


def test_a_partition_is_read_once_it_is_a_success(site: Site) -> None:
    area = Area(bbox=BBox.parse(BOX), zoom_levels=(14,), sector_class=SectorClass.STABLE_REAR)
    key = PartitionKey(
        source="satellite", customer_id="a", query_name="q", logical_date=date(2026, 3, 1)
    )
    with site.ferry() as ferry:
        assert ferry.read_partition(key) is None
        scheduler = Container(config=site.config())
        work = AcquirePartition.of(key, area)
        scheduler.partition_control().enqueue([work], actor=Actor.SCHEDULER)
        scheduler.shutdown_resources()
        assert ferry.read_partition(key) is None
        assert ferry.work() == 1
        reading = ferry.read_partition(key)
        assert reading is not None
        with reading as partition:
            entries = list(partition.entries())
            tiles = {entry.tile_id: partition.read_tile(entry) for entry in entries}
    assert len(tiles) == partition.header.tiles_listed > 0
    assert all(content == draw_tile(tile.zoom, tile.x, tile.y) for tile, content in tiles.items())


def test_a_worker_is_told_to_stop_from_outside(site: Site) -> None:
    with site.ferry() as ferry:
        ferry.submit_upload(flight="F7")
        assert ferry.work(until_idle=False, is_stopping=lambda: True) == 0


def test_a_database_that_was_not_upgraded_is_refused(site: Site, empty_database_url: str) -> None:
    site.database_url = empty_database_url
    with site.ferry() as ferry:
        with pytest.raises(DatabaseError, match="run tileferry db upgrade"):
            ferry.download(flight="F7", **AREA)
        ferry.upgrade_database()
        assert ferry.download(flight="F7", **AREA).outcome is DownloadOutcome.SUCCESS
