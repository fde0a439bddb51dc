"""``tileferry worker`` with a real provider: what it does for runs, and how it stops."""

import json
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from attrs import evolve
from support.area_operator import AreaOperator, Started, wait_until
from support.download_site import DERKACHI, ZOOM
from support.provider import running_provider
from support.scripted_provider import KEY, TILES, ScriptedProvider, answering_with, path_of
from support.upload_process import captured
from support.work_desk import Desk, key

from tileferry.adapters.filesystem import FileRawSink
from tileferry.adapters.memory import ManualClock
from tileferry.domain.actors import Actor
from tileferry.domain.partitions import PartitionStatus
from tileferry.domain.runs import AttemptOutcome, Run, RunId, RunStatus
from tileferry.domain.tiles import SectorClass
from tileferry.domain.work import AcquirePartition, DownloadArea, UploadFlight

COUNT = 12
DAY = key(source="satellite")
WORKER = ("worker", "--until-idle")


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider.of_area(DERKACHI, ZOOM, COUNT)


@pytest.fixture
def operator(
    tmp_path: Path, database_url: str, provider: ScriptedProvider
) -> Iterator[AreaOperator]:
    with provider.served() as url:
        settings = {
            "TILEFERRY_PARTITIONS_RAW_ROOT": str(tmp_path / "raw"),
            "TILEFERRY_WORKER_LEASE_S": "1.5",
            "TILEFERRY_WORKER_SWEEP_S": "0.2",
            "TILEFERRY_WORKER_POLL_S": "0.1",
        }
        yield AreaOperator(tmp_path, database_url, url, settings)


def wanted() -> AcquirePartition:
    return AcquirePartition(
        key=DAY, bbox=DERKACHI, zoom_levels=[ZOOM], sector_class=SectorClass.STABLE_REAR
    )


def area(flight_id: str) -> DownloadArea:
    return DownloadArea(
        source="satellite",
        flight_id=flight_id,
        bbox=DERKACHI,
        zoom_levels=[ZOOM],
        sector_class=SectorClass.STABLE_REAR,
    )


def enqueued(desk: Desk) -> RunId:
    """Queue the partition, and return its run."""
    (partition,) = desk.partitions.enqueue([wanted()], actor=Actor.OPERATOR)
    return partition.last_run_id


def fetched(provider: ScriptedProvider) -> Counter[str]:
    paths = (request.url.path for request in provider.requests)
    return Counter(path for path in paths if path != TILES)


def raw(home: Path) -> FileRawSink:
    return FileRawSink(root=home / "raw", clock=ManualClock(), logger=logging.getLogger("test"))


def test_spec3_s1_a_partition_is_extracted_sealed_judged_and_published(
    operator: AreaOperator, desk: Desk
) -> None:
    run_id = enqueued(desk)
    ran = operator.runs_here(*WORKER, "--json")
    assert (ran.code, ran.json["processed"]) == (0, 1)
    partition = desk.reader.find_partition(DAY)
    assert partition is not None
    assert (partition.status, partition.attempt_count, partition.current_run_id) == (
        PartitionStatus.SUCCESS,
        1,
        run_id,
    )
    sealed = raw(operator.home).find(DAY, run_id)
    assert sealed is not None
    assert sealed.tiles == COUNT
    (verdict,) = desk.reader.partition_attempts(DAY)
    assert verdict.run_id == run_id


def test_spec3_s2_a_rejected_partition_fails_and_automation_tries_it_again_when_due(
    operator: AreaOperator, desk: Desk, provider: ScriptedProvider
) -> None:
    provider.always[path_of(provider.tiles[3])] = answering_with(404)
    first = enqueued(desk)
    operator.runs_here(*WORKER)
    partition = desk.reader.find_partition(DAY)
    assert partition is not None
    assert (partition.status, partition.attempt_count) == (PartitionStatus.FAILED, 1)
    assert "1 of 12" in (partition.error_message or "")
    assert desk.reader.planned_retry(DAY) is not None
    assert raw(operator.home).find(DAY, first) is not None
    provider.always.clear()
    desk.pass_time(400)
    operator.runs_here(*WORKER)
    partition = desk.reader.find_partition(DAY)
    assert partition is not None
    assert (partition.status, partition.attempt_count) == (PartitionStatus.SUCCESS, 2)
    assert partition.current_run_id not in {None, first}
    for run_id in (first, partition.last_run_id):  # each has its own, and none is let go of
        assert raw(operator.home).find(DAY, run_id) is not None


def test_downloads_and_uploads_are_run_kinds_too(
    tmp_path: Path, database_url: str, desk: Desk
) -> None:
    captured(tmp_path / "card", 3)
    record = tmp_path / "record.json"
    now = datetime.now(UTC).isoformat()
    record.write_text(json.dumps({"flight_id": "F1", "state": "airborne", "recorded_at": now}))
    settings = {
        "TILEFERRY_PARTITIONS_RAW_ROOT": str(tmp_path / "raw"),
        "TILEFERRY_C11_FLIGHT_RECORD_FILE": str(record),
    }
    with running_provider(api_key=KEY) as provider:
        operator = AreaOperator(tmp_path, database_url, provider.url, settings)
        assert operator.runs_here("ingest", "--flight", "F1", str(tmp_path / "card")).code == 0
        upload = desk.submitted(UploadFlight(source="satellite", flight_id="F1"))
        download = desk.submitted(area("F2"))
        operator.runs_here(*WORKER)
        assert desk.known(download).status is RunStatus.PASSED
        waiting = desk.known(upload)
        assert (waiting.status, waiting.retry_count) == (RunStatus.ERROR, 0)
        assert "is airborne, not on the ground" in (waiting.error_message or "")
        record.write_text(record.read_text().replace("airborne", "on_ground"))
        desk.pass_time(901)
        operator.runs_here(*WORKER)
        assert desk.known(upload).status is RunStatus.PASSED
        assert len(provider.uploads) == 3


def test_a_run_that_was_killed_goes_on_in_its_raw_directory_and_fetches_nothing_twice(
    operator: AreaOperator, desk: Desk, provider: ScriptedProvider
) -> None:
    run_id = enqueued(desk)
    with blocked(provider) as reached, operator.started(*WORKER) as worker:
        wait_until(reached.is_set, "the last tile")
        wait_until(lambda: len(fetched(provider)) >= COUNT, "all tiles")
        time.sleep(1.5)  # when nothing comes in for half a second, what is there becomes safe
        worker.signalled(signal.SIGKILL)
        worker.process.communicate()
    before = fetched(provider)
    desk.pass_time(2)
    ran = operator.runs_here(*WORKER, "--json")
    assert ran.json["processed"] == 1
    partition = desk.reader.find_partition(DAY)
    assert partition is not None
    assert (partition.current_run_id, partition.attempt_count) == (run_id, 1)
    outcomes = [attempt.outcome for attempt in desk.reader.attempts(run_id)]
    assert outcomes == [AttemptOutcome.LOST, AttemptOutcome.PASSED]
    assert (fetched(provider) - before).keys() == {path_of(provider.tiles[-1])}


class blocked:  # noqa: N801  # a context manager that reads as a word
    """Have the last tile wait until the end of the block."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self.provider, self.reached, self.go_on = provider, threading.Event(), threading.Event()

    def __enter__(self) -> threading.Event:
        path = path_of(self.provider.tiles[-1])

        def answer(request: httpx.Request) -> httpx.Response:
            self.reached.set()
            self.go_on.wait(60)
            self.provider.always.pop(path, None)
            return self.provider(request)

        self.provider.always[path] = answer
        return self.reached

    def __exit__(self, *_error: object) -> None:
        self.go_on.set()
        self.provider.always.clear()


def first_signal(worker: Started, reached: threading.Event) -> None:
    wait_until(reached.is_set, "the last tile")
    worker.signalled(signal.SIGTERM)


def test_invariant_17_a_first_signal_lets_the_run_end_and_takes_no_other(
    operator: AreaOperator, desk: Desk, provider: ScriptedProvider, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    waits = blocked(provider)
    with waits as reached, operator.started("worker", "--ready-file", str(ready)) as worker:
        wait_until(ready.exists, "the worker's readiness")
        time.sleep(0.3)  # by now it waits
        under_way, waiting = desk.submitted(area("F1")), desk.submitted(area("F2"))
        first_signal(worker, reached)
        assert ready.exists()
        waits.go_on.set()
        ran = worker.ended()
    assert ran.code == 0, ran.err
    assert not ready.exists()
    assert desk.known(under_way).status is RunStatus.PASSED
    assert desk.known(waiting).status is RunStatus.DISCOVERED


def test_invariant_17_a_run_that_takes_too_long_to_drain_is_given_back(
    operator: AreaOperator, desk: Desk, provider: ScriptedProvider
) -> None:
    operator.settings["TILEFERRY_WORKER_DRAIN_S"] = "0.3"
    run = desk.submitted(area("F1"))
    with blocked(provider) as reached, operator.started("worker") as worker:
        first_signal(worker, reached)
        assert worker.ended().code == 130
    known = desk.known(run)
    assert (known.status, known.retry_count, known.rescues) == (RunStatus.ERROR, 0, 0)
    assert "given back by worker" in (known.error_message or "")


def test_invariant_17_a_second_signal_ends_it_at_once_and_another_takes_the_run(
    operator: AreaOperator, desk: Desk, provider: ScriptedProvider
) -> None:
    run = desk.submitted(area("F1"))
    with blocked(provider) as reached, operator.started("worker") as worker:
        first_signal(worker, reached)
        worker.signalled(signal.SIGINT)  # another one: two of a kind at once may count as one
        assert worker.ended().code == 130
    assert desk.known(run).status is RunStatus.PROCESSING
    desk.pass_time(2)
    operator.runs_here(*WORKER)
    assert _outcomes(desk, run) == [AttemptOutcome.LOST, AttemptOutcome.PASSED]


def _outcomes(desk: Desk, run: Run) -> list[AttemptOutcome]:
    return [attempt.outcome for attempt in desk.reader.attempts(run.run_id)]


def test_a_worker_without_a_provider_takes_no_run(operator: AreaOperator, desk: Desk) -> None:
    run = desk.submitted(area("F1"))
    operator.settings["TILEFERRY_C11_SATELLITE_PROVIDER_URL"] = "ftp://x"
    ran = operator.runs_here(*WORKER)
    assert ran.code == 2
    assert desk.known(run).status is RunStatus.DISCOVERED


def test_a_source_that_asks_for_patience_holds_up_the_queue_and_no_worker(
    operator: AreaOperator, desk: Desk, provider: ScriptedProvider
) -> None:
    provider.always[TILES] = answering_with(429, Retry_After="3600")
    run = desk.submitted(area("F1"))
    other = desk.submitted(area("F2"))
    started_s = time.monotonic()
    operator.runs_here(*WORKER)
    assert time.monotonic() - started_s < 15
    known = desk.known(run)
    assert (known.error_class, known.retry_count) == ("rate_limited", 0)
    assert known.next_retry_at is not None
    wait_s = (known.next_retry_at - desk.reader.now()).total_seconds()
    assert wait_s == pytest.approx(3_600, abs=30)
    ((gate, _),) = desk.reader.gates()
    assert not gate.is_open(desk.reader.now())
    assert desk.known(other).status is RunStatus.DISCOVERED


def test_invariant_17_a_worker_that_waits_for_the_provider_drains_too(
    operator: AreaOperator, desk: Desk, provider: ScriptedProvider
) -> None:
    operator.settings["TILEFERRY_WORKER_DRAIN_S"] = "0.5"
    provider.always[TILES] = answering_with(429, Retry_After="15")
    run = desk.submitted(area("F1"))
    with operator.started("worker") as worker:
        wait_until(lambda: bool(provider.requests), "the request")
        time.sleep(0.5)
        signalled_s = time.monotonic()
        worker.signalled(signal.SIGTERM)
        ran = worker.ended()
    assert ran.code == 130
    assert time.monotonic() - signalled_s < 8
    assert "Draining" in ran.err
    known = desk.known(run)
    assert (known.status, known.rescues) == (RunStatus.ERROR, 0)
    assert "given back by worker" in (known.error_message or "")


def test_invariant_12_a_worker_that_was_asleep_while_it_waited_ends_when_it_wakes(
    operator: AreaOperator, desk: Desk, provider: ScriptedProvider
) -> None:
    provider.always[TILES] = answering_with(429, Retry_After="15")
    run = desk.submitted(area("F1"))
    with operator.started("worker") as worker:
        wait_until(lambda: bool(provider.requests), "the request")
        worker.signalled(signal.SIGSTOP)
        time.sleep(2.5)  # longer than its lease
        worker.signalled(signal.SIGCONT)
        ran = worker.ended(timeout_s=10)
    assert ran.code == 4, ran.err
    assert "has lost run" in ran.err
    assert desk.known(run).status is RunStatus.PROCESSING


def test_a_worker_takes_only_runs_of_the_source_that_its_provider_has(
    operator: AreaOperator, desk: Desk
) -> None:
    ours, others = desk.submitted(area("F1")), desk.submitted(evolve(area("F2"), source="beta"))
    assert operator.runs_here(*WORKER).out.endswith(" did 1 run: 1 passed.\n")
    assert desk.known(ours).status is RunStatus.PASSED
    assert desk.known(others).status is RunStatus.DISCOVERED


@pytest.mark.parametrize("name", ["a\nb", "", "two words", "x" * 65])
def test_a_worker_has_a_plain_name(operator: AreaOperator, name: str) -> None:
    ran = operator.runs_here(*WORKER, "--name", name)
    assert (ran.code, "--name" in ran.err) == (2, True)
