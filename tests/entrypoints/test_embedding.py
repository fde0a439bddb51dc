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
from support.embedding_env import AREA, BOX, EmbeddingEnv
from support.provider import API_KEY, RunningProvider

from tileferry.application.ports.progress import (
    BatchAnswered,
    DownloadFinished,
    DownloadStarted,
    ProgressEvent,
    RetryScheduled,
    TileProcessed,
    TilesStored,
    UploadFinished,
)
from tileferry.domain.errors import CacheLockError, DatabaseError, InvalidValueError
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.runs import RunId, RunStatus
from tileferry.domain.state_machine import Actor
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
def env(tmp_path: Path, database_url: str, reference_provider: RunningProvider) -> EmbeddingEnv:
    return EmbeddingEnv(tmp_path, database_url, reference_provider)


def test_download_emits_events_and_prints_nothing(
    env: EmbeddingEnv, capfd: pytest.CaptureFixture[str]
) -> None:
    env.provider.set_faults({"fault": "503", "call": "tile", "attempts": [1], "times": 1})
    with env.create_tileferry() as ferry:
        report = ferry.download(flight="F7", **AREA)
    assert report.outcome is DownloadOutcome.SUCCESS
    (begun,) = env.list_events(DownloadStarted)
    assert isinstance(begun, DownloadStarted)
    assert len(env.list_events(TileProcessed)) == begun.tiles == report.tiles_requested
    assert env.list_events(TilesStored)[-1] == TilesStored(tiles=begun.tiles)
    assert env.heard[-1] == DownloadFinished(report=report)
    (waiting,) = env.list_events(RetryScheduled)
    assert isinstance(waiting, RetryScheduled)
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


def test_nothing_is_logged_without_logging_setup(env: EmbeddingEnv) -> None:
    env.provider.set_faults(
        {"fault": "503", "call": "tile", "attempts": [1], "times": 1},
        {"fault": "sub-spec", "tile": "14/9840/*"},
    )
    arguments = [env.database_url, str(env.home / "cache"), env.provider.url, API_KEY, BOX]
    ran = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_downloaded_tile_can_be_read(env: EmbeddingEnv) -> None:
    with env.create_tileferry() as ferry:
        (first, *_) = ferry.coverage(bbox=BOX, zoom_levels=[14])
        ferry.download(flight="F7", **AREA)
        tile = TileId(source="satellite", zoom=14, x=first.tile_id.x, y=first.tile_id.y)
        assert ferry.read_tile(tile)[:3] == b"\xff\xd8\xff"


def test_upload_emits_events(env: EmbeddingEnv) -> None:
    card = env.home / "card" / "16" / "39000"
    card.mkdir(parents=True)
    (card / "22000.jpg").write_bytes(draw_tile(16, 39_000, 22_000))
    with env.create_tileferry() as ferry:
        assert ferry.ingest(env.home / "card", flight="F7").tiles_ingested == 1
        with pytest.raises(InvalidValueError, match=r"c11\.flight_record_file"):
            ferry.upload(flight="F7")
        report = ferry.upload(flight="F7", on_ground=True)
    (answered,) = env.list_events(BatchAnswered)
    assert isinstance(answered, BatchAnswered)
    assert [answer.status for answer in answered.answers] == [TileUploadStatus.ACCEPTED]
    assert env.heard[-1] == UploadFinished(report=report)


def test_listener_can_interrupt_download_and_it_resumes(env: EmbeddingEnv) -> None:
    def stop(event: ProgressEvent) -> None:
        if isinstance(event, TileProcessed):
            raise KeyboardInterrupt

    with Tileferry(env.create_config(), listener=stop) as ferry, pytest.raises(KeyboardInterrupt):
        ferry.download(flight="F7", **AREA)
    with env.create_tileferry() as ferry:
        assert ferry.download(flight="F7", **AREA).outcome is DownloadOutcome.SUCCESS
    assert min(env.provider.fetched.values()) == 1, "what was settled is not fetched again"


FETCH_THREAD = "tileferry-fetch"


@define
class StoppingListener:
    """Ends a download once it is told something from the thread that works, after ``is_due``."""

    is_due: Callable[[], bool]
    waits: int = 0

    def __call__(self, event: ProgressEvent) -> None:
        self.waits += isinstance(event, RetryScheduled)
        if isinstance(event, TilesStored) and self.is_due():
            raise KeyboardInterrupt


def live_fetch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == FETCH_THREAD]


@pytest.mark.parametrize(
    "fault", [{"fault": "429", "retry_after": 60}, {"fault": "503"}], ids=["told to", "backoff"]
)
def test_no_thread_survives_stop_during_retry_wait(
    env: EmbeddingEnv, fault: dict[str, Any]
) -> None:
    env.provider.set_faults({**fault, "call": "tile", "times": 1})
    before = set(live_fetch_threads())
    stop = StoppingListener(lambda: stop.waits > 0 and bool(set(live_fetch_threads()) - before))
    with Tileferry(env.create_config(), listener=stop) as ferry, pytest.raises(KeyboardInterrupt):
        ferry.download(flight="F7", **AREA)
    assert set(live_fetch_threads()) <= before, "who waits for a retry ends with the download"


def test_request_in_flight_at_stop_is_aborted_and_not_retried(
    env: EmbeddingEnv, caplog: pytest.LogCaptureFixture
) -> None:
    env.provider.set_faults({"fault": "stall", "call": "tile", "times": 1})
    before = set(live_fetch_threads())
    seen: set[threading.Thread] = set()

    def is_due() -> bool:
        seen.update(set(live_fetch_threads()) - before)
        return len(env.provider.requests) > 1 and bool(seen)

    config = env.create_config()
    patient = evolve(config, c11=evolve(config.c11, http_timeout_s=60.0))
    stop = StoppingListener(is_due)
    with Tileferry(patient, listener=stop) as ferry, pytest.raises(KeyboardInterrupt):
        ferry.download(flight="F7", **AREA)
    for thread in seen:
        thread.join(10)  # much less than its request would wait
    assert not set(live_fetch_threads()) - before
    assert (max(env.provider.fetched.values()), stop.waits) == (1, 0)
    assert "audit.sink_failed" not in [getattr(line, "kind", "") for line in caplog.records]


def test_several_instances_run_concurrently_in_one_process(
    env: EmbeddingEnv, empty_database_url: str, tmp_path: Path
) -> None:
    other = EmbeddingEnv(tmp_path / "other", empty_database_url, env.provider)
    ended: list[DownloadOutcome] = []

    def work(where: EmbeddingEnv) -> None:
        with where.create_tileferry() as ferry:
            ferry.upgrade_database()
            ended.append(ferry.download(flight="F7", **AREA).outcome)

    threads = [threading.Thread(target=work, args=[where]) for where in (env, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == [DownloadOutcome.SUCCESS, DownloadOutcome.SUCCESS]
    tiles = len(env.list_events(TileProcessed))
    assert tiles > 1
    assert len(other.list_events(TileProcessed)) == tiles, (
        "each hears of its own tiles, and of no others"
    )


def test_cache_is_locked_by_one_instance(env: EmbeddingEnv) -> None:
    refusals: list[CacheLockError] = []

    def intrude(event: ProgressEvent) -> None:
        if isinstance(event, DownloadStarted):
            with Tileferry(env.create_config()) as second, pytest.raises(CacheLockError) as refused:
                second.download(flight="F8", **AREA)
            refusals.append(refused.value)

    with Tileferry(env.create_config(), listener=intrude) as ferry:
        ferry.download(flight="F7", **AREA)
    assert len(refusals) == 1


def test_queued_download_runs_once(env: EmbeddingEnv) -> None:
    env.provider.set_faults({"fault": "503", "call": "tile", "attempts": [1], "times": 1})
    with env.create_tileferry() as ferry:
        run = ferry.submit_download(flight="F7", **AREA)
        assert ferry.submit_download(flight="F7", **AREA).run_id == run.run_id
        assert ferry.work() == 1
        done = ferry.find_run(run.run_id)
        assert done is not None
        assert done.status is RunStatus.PASSED
        assert len(env.list_events(RetryScheduled)) == 1
        assert ferry.find_run(RunId("none")) is None
        assert ferry.work() == 0


def test_partition_is_readable_after_success(env: EmbeddingEnv) -> None:
    area = Area(bbox=BBox.parse(BOX), zoom_levels=(14,), sector_class=SectorClass.STABLE_REAR)
    key = PartitionKey(
        source="satellite", customer_id="a", query_name="q", logical_date=date(2026, 3, 1)
    )
    with env.create_tileferry() as ferry:
        assert ferry.read_partition(key) is None
        scheduler = Container(config=env.create_config())
        work = AcquirePartition(key=key, area=area)
        scheduler.partition_control().enqueue([work], actor=Actor.SCHEDULER)
        scheduler.shutdown_resources()
        assert ferry.read_partition(key) is None
        assert ferry.work() == 1
        reading = ferry.read_partition(key)
        assert reading is not None
        with reading as partition:
            entries = list(partition.iter_entries())
            tiles = {entry.tile_id: partition.read_tile(entry) for entry in entries}
    assert len(tiles) == partition.header.tiles_listed > 0
    assert all(content == draw_tile(tile.zoom, tile.x, tile.y) for tile, content in tiles.items())


def test_worker_stops_when_is_stopping_returns_true(env: EmbeddingEnv) -> None:
    with env.create_tileferry() as ferry:
        ferry.submit_upload(flight="F7")
        assert ferry.work(until_idle=False, is_stopping=lambda: True) == 0


def test_outdated_database_schema_is_rejected(env: EmbeddingEnv, empty_database_url: str) -> None:
    env.database_url = empty_database_url
    with env.create_tileferry() as ferry:
        with pytest.raises(DatabaseError, match="upgrade the database schema"):
            ferry.download(flight="F7", **AREA)
        ferry.upgrade_database()
        assert ferry.download(flight="F7", **AREA).outcome is DownloadOutcome.SUCCESS
