"""A worker in a thread of the process, with a real provider and a real database."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve
from support.download_operator import wait_until
from support.provider import API_KEY, RunningProvider

from tileferry.application.ports.work import RunFilter
from tileferry.domain.runs import Run, RunStatus
from tileferry.domain.tiles import Area, BBox, SectorClass
from tileferry.entrypoints.config import C11Config, Config, PartitionsConfig
from tileferry.entrypoints.installation import Installation

AREA = Area(
    bbox=BBox.parse("36.1,49.9,36.14,49.92"),
    zoom_levels=[14],
    sector_class=SectorClass.STABLE_REAR,
)
STOP_S = 5.0


@pytest.fixture
def config(tmp_path: Path, database_url: str, reference_provider: RunningProvider) -> Config:
    return Config(
        database_url=database_url,
        c11=C11Config(
            cache_root=tmp_path / "cache",
            service_api_key=API_KEY,
            satellite_provider_url=reference_provider.url,
            backoff_base_s=0.0,
        ),
        partitions=PartitionsConfig(raw_root=tmp_path / "raw"),
    )


@pytest.fixture
def installation(config: Config) -> Iterator[Installation]:
    with Installation(config) as installation:
        installation.upgrade_database()
        yield installation


def queue(installation: Installation, flight: str) -> Run:
    return installation.queue_download(flight, AREA, by="tester")[0]


def find_status(installation: Installation, run: Run) -> RunStatus:
    found = installation.work_reader.find_run(run.run_id)
    assert found is not None
    return found.status


def test_worker_ends_with_the_runs_that_were_started(installation: Installation) -> None:
    older, started, newer = (queue(installation, flight) for flight in ("F1", "F2", "F3"))
    worker = installation.background_worker
    worker.start(started.run_id)
    wait_until(lambda: not worker.is_running, "the worker ends")
    assert worker.problem is None
    assert find_status(installation, older) is RunStatus.PASSED, "it was first in the queue"
    assert find_status(installation, started) is RunStatus.PASSED
    assert find_status(installation, newer) is RunStatus.DISCOVERED, "it was only queued"
    worker.start(newer.run_id)
    wait_until(lambda: find_status(installation, newer) is RunStatus.PASSED, "a second start")


def test_closing_returns_the_run_to_the_queue(
    config: Config, reference_provider: RunningProvider
) -> None:
    with Installation(config) as installation:
        installation.upgrade_database()
        run = queue(installation, "F1")
        reference_provider.set_faults({"call": "tile", "fault": "stall"})
        installation.background_worker.start(run.run_id)
        wait_until(lambda: reference_provider.fetched.total() > 0, "a request")
        assert find_status(installation, run) is RunStatus.PROCESSING
        closed_s = time.monotonic()
    assert time.monotonic() - closed_s < STOP_S
    with Installation(config) as after:
        (left,) = after.work_reader.list_runs(RunFilter(), limit=5)
        assert (left.run_id, left.status) == (run.run_id, RunStatus.DISCOVERED)
        assert left.retry_count == 0


def test_error_that_prevents_the_work_is_kept(config: Config, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    bad = evolve(config, partitions=PartitionsConfig(raw_root=tmp_path / "file"))
    with Installation(bad) as installation:
        installation.upgrade_database()
        run = queue(installation, "F1")
        worker = installation.background_worker
        worker.start(run.run_id)
        wait_until(lambda: not worker.is_running, "the worker ends")
        assert "raw_root" in str(worker.problem)
        assert find_status(installation, run) is RunStatus.DISCOVERED
        (tmp_path / "file").unlink()
        worker.start(run.run_id)
        wait_until(lambda: find_status(installation, run) is RunStatus.PASSED, "the run")
        assert worker.problem is None
