"""``tileferry worker`` with a real provider: what it does for runs, and how it stops."""

import json
import logging
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from attrs import evolve
from support.cache_upload_env import write_captures
from support.control_plane import ControlPlane, partition_key, unreachable_error
from support.download_env import DERKACHI, ZOOM
from support.download_operator import DownloadOperator, RunningCommand, wait_until
from support.provider import PRODUCED_AT, serve_provider
from support.scripted_provider import KEY, TILES, ScriptedProvider, create_answer, tile_path

from tileferry.adapters.filesystem import FileRawSink
from tileferry.adapters.memory import ManualClock
from tileferry.domain.partitions import PartitionStatus
from tileferry.domain.runs import AttemptOutcome, Run, RunId, RunStatus, WorkerId
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import SectorClass
from tileferry.domain.tiles.area import Area
from tileferry.domain.work import AcquirePartition, DownloadArea, UploadFlight

COUNT = 12
DAY = evolve(partition_key(source="satellite"), logical_date=PRODUCED_AT.date())
WORKER = ("worker", "--until-idle")


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider.for_area(DERKACHI, ZOOM, COUNT)


@pytest.fixture
def operator(
    tmp_path: Path, database_url: str, provider: ScriptedProvider
) -> Iterator[DownloadOperator]:
    with provider.serve() as url:
        settings = {
            "TILEFERRY_PARTITIONS_RAW_ROOT": str(tmp_path / "raw"),
            "TILEFERRY_WORKER_LEASE_S": "1.5",
            "TILEFERRY_WORKER_SWEEP_S": "0.2",
            "TILEFERRY_WORKER_POLL_S": "0.1",
        }
        yield DownloadOperator(tmp_path, database_url, url, settings)


AREA = Area(bbox=DERKACHI, zoom_levels=[ZOOM], sector_class=SectorClass.STABLE_REAR)


def partition_work() -> AcquirePartition:
    return AcquirePartition(key=DAY, area=AREA)


def download_work(flight_id: str) -> DownloadArea:
    return DownloadArea(
        source="satellite",
        flight_id=flight_id,
        area=AREA,
    )


def enqueue_partition(desk: ControlPlane) -> RunId:
    """Queue the partition, and return its run."""
    (partition,) = desk.partitions.enqueue([partition_work()], actor=Actor.OPERATOR)
    return partition.last_run_id


def count_fetched(provider: ScriptedProvider) -> Counter[str]:
    paths = (request.url.path for request in provider.requests)
    return Counter(path for path in paths if path != TILES)


def raw_sink(home: Path) -> FileRawSink:
    return FileRawSink(root=home / "raw", clock=ManualClock(), logger=logging.getLogger("test"))


def test_partition_is_acquired_sealed_judged_and_published(
    operator: DownloadOperator, control_plane: ControlPlane
) -> None:
    run_id = enqueue_partition(control_plane)
    ran = operator.run_in_process(*WORKER, "--json")
    assert (ran.code, ran.json["processed"]) == (0, 1)
    partition = control_plane.reader.find_partition(DAY)
    assert partition is not None
    assert (partition.status, partition.attempt_count, partition.current_run_id) == (
        PartitionStatus.SUCCESS,
        1,
        run_id,
    )
    sealed = raw_sink(operator.home).find(DAY, run_id)
    assert sealed is not None
    assert sealed.tiles == COUNT
    (verdict,) = control_plane.reader.list_partition_attempts(DAY)
    assert verdict.run_id == run_id


def test_failed_partition_is_retried_automatically_when_due(
    operator: DownloadOperator, control_plane: ControlPlane, provider: ScriptedProvider
) -> None:
    provider.always[tile_path(provider.tiles[3])] = create_answer(404)
    first = enqueue_partition(control_plane)
    operator.run_in_process(*WORKER)
    partition = control_plane.reader.find_partition(DAY)
    assert partition is not None
    assert (partition.status, partition.attempt_count) == (PartitionStatus.FAILED, 1)
    assert "1 of 12" in (partition.error_message or "")
    assert control_plane.reader.find_planned_retry(DAY) is not None
    assert raw_sink(operator.home).find(DAY, first) is not None
    provider.always.clear()
    control_plane.pass_time(400)
    operator.run_in_process(*WORKER)
    partition = control_plane.reader.find_partition(DAY)
    assert partition is not None
    assert (partition.status, partition.attempt_count) == (PartitionStatus.SUCCESS, 2)
    assert partition.current_run_id not in {None, first}
    for run_id in (first, partition.last_run_id):  # each has its own, and none is let go of
        assert raw_sink(operator.home).find(DAY, run_id) is not None


def test_worker_processes_downloads_and_uploads(
    tmp_path: Path, database_url: str, control_plane: ControlPlane
) -> None:
    write_captures(tmp_path / "card", 3)
    record = tmp_path / "record.json"
    now = datetime.now(UTC).isoformat()
    record.write_text(json.dumps({"flight_id": "F1", "state": "airborne", "recorded_at": now}))
    settings = {
        "TILEFERRY_PARTITIONS_RAW_ROOT": str(tmp_path / "raw"),
        "TILEFERRY_C11_FLIGHT_RECORD_FILE": str(record),
    }
    with serve_provider(api_key=KEY) as provider:
        operator = DownloadOperator(tmp_path, database_url, provider.url, settings)
        assert operator.run_in_process("ingest", "--flight", "F1", str(tmp_path / "card")).code == 0
        upload = control_plane.submit_run(UploadFlight(source="satellite", flight_id="F1"))
        download = control_plane.submit_run(download_work("F2"))
        operator.run_in_process(*WORKER)
        assert control_plane.get_run(download).status is RunStatus.PASSED
        waiting = control_plane.get_run(upload)
        assert (waiting.status, waiting.retry_count) == (RunStatus.ERROR, 0)
        assert "is airborne, not on the ground" in (waiting.error_message or "")
        record.write_text(record.read_text().replace("airborne", "on_ground"))
        control_plane.pass_time(901)
        operator.run_in_process(*WORKER)
        assert control_plane.get_run(upload).status is RunStatus.PASSED
        assert len(provider.uploads) == 3


def test_killed_partition_run_resumes_without_refetching(
    operator: DownloadOperator, control_plane: ControlPlane, provider: ScriptedProvider
) -> None:
    run_id = enqueue_partition(control_plane)
    with BlockedLastTile(provider) as reached, operator.start(*WORKER) as worker:
        wait_until(reached.is_set, "the last tile")
        wait_until(lambda: len(count_fetched(provider)) >= COUNT, "all tiles")
        time.sleep(1.5)  # when nothing comes in for half a second, what is there becomes safe
        worker.send_signal(signal.SIGKILL)
        worker.process.communicate()
    before = count_fetched(provider)
    control_plane.pass_time(2)
    ran = operator.run_in_process(*WORKER, "--json")
    assert ran.json["processed"] == 1
    partition = control_plane.reader.find_partition(DAY)
    assert partition is not None
    assert (partition.current_run_id, partition.attempt_count) == (run_id, 1)
    outcomes = [attempt.outcome for attempt in control_plane.reader.list_attempts(run_id)]
    assert outcomes == [AttemptOutcome.LOST, AttemptOutcome.PASSED]
    assert (count_fetched(provider) - before).keys() == {tile_path(provider.tiles[-1])}


class BlockedLastTile:  # a context manager that reads as a word
    """Have the last tile wait until the end of the block."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self.provider, self.reached, self.go_on = provider, threading.Event(), threading.Event()

    def __enter__(self) -> threading.Event:
        path = tile_path(self.provider.tiles[-1])

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


def send_first_signal(worker: RunningCommand, reached: threading.Event) -> None:
    wait_until(reached.is_set, "the last tile")
    worker.send_signal(signal.SIGTERM)


def test_invariant_17_first_signal_finishes_run_and_claims_no_other(
    operator: DownloadOperator,
    control_plane: ControlPlane,
    provider: ScriptedProvider,
    tmp_path: Path,
) -> None:
    ready = tmp_path / "ready"
    waits = BlockedLastTile(provider)
    with waits as reached, operator.start("worker", "--ready-file", str(ready)) as worker:
        wait_until(ready.exists, "the worker's readiness")
        time.sleep(0.3)  # by now it waits
        under_way, waiting = (
            control_plane.submit_run(download_work("F1")),
            control_plane.submit_run(download_work("F2")),
        )
        send_first_signal(worker, reached)
        assert ready.exists()
        waits.go_on.set()
        ran = worker.wait()
    assert ran.code == 0, ran.err
    assert not ready.exists()
    assert control_plane.get_run(under_way).status is RunStatus.PASSED
    assert control_plane.get_run(waiting).status is RunStatus.DISCOVERED


def test_invariant_17_run_exceeding_drain_time_is_given_back(
    operator: DownloadOperator, control_plane: ControlPlane, provider: ScriptedProvider
) -> None:
    operator.settings["TILEFERRY_WORKER_DRAIN_S"] = "0.3"
    run = control_plane.submit_run(download_work("F1"))
    with BlockedLastTile(provider) as reached, operator.start("worker") as worker:
        send_first_signal(worker, reached)
        assert worker.wait().code == 130
    known = control_plane.get_run(run)
    assert (known.status, known.retry_count, known.rescues) == (RunStatus.DISCOVERED, 0, 0)
    assert known.error_message is None


def test_invariant_17_second_signal_ends_worker_and_run_is_rescued(
    operator: DownloadOperator, control_plane: ControlPlane, provider: ScriptedProvider
) -> None:
    run = control_plane.submit_run(download_work("F1"))
    with BlockedLastTile(provider) as reached, operator.start("worker") as worker:
        send_first_signal(worker, reached)
        worker.send_signal(signal.SIGINT)  # another one: two of a kind at once may count as one
        assert worker.wait().code == 130
    assert control_plane.get_run(run).status is RunStatus.PROCESSING
    control_plane.pass_time(2)
    operator.run_in_process(*WORKER)
    assert attempt_outcomes(control_plane, run) == [AttemptOutcome.LOST, AttemptOutcome.PASSED]


def attempt_outcomes(desk: ControlPlane, run: Run) -> list[AttemptOutcome]:
    return [attempt.outcome for attempt in desk.reader.list_attempts(run.run_id)]


def test_worker_without_provider_claims_no_run(
    operator: DownloadOperator, control_plane: ControlPlane
) -> None:
    run = control_plane.submit_run(download_work("F1"))
    operator.settings["TILEFERRY_C11_SATELLITE_PROVIDER_URL"] = "ftp://x"
    ran = operator.run_in_process(*WORKER)
    assert ran.code == 2
    assert control_plane.get_run(run).status is RunStatus.DISCOVERED


def test_rate_limited_source_closes_gate_without_blocking_worker(
    operator: DownloadOperator, control_plane: ControlPlane, provider: ScriptedProvider
) -> None:
    provider.always[TILES] = create_answer(429, Retry_After="3600")
    run = control_plane.submit_run(download_work("F1"))
    other = control_plane.submit_run(download_work("F2"))
    started_s = time.monotonic()
    operator.run_in_process(*WORKER)
    assert time.monotonic() - started_s < 15
    known = control_plane.get_run(run)
    assert (known.error_class, known.retry_count) == ("rate_limited", 0)
    assert known.next_retry_at is not None
    wait_s = (known.next_retry_at - control_plane.reader.now()).total_seconds()
    assert wait_s == pytest.approx(3_600, abs=30)
    ((gate, _),) = control_plane.reader.list_gates()
    assert not gate.is_open(control_plane.reader.now())
    assert control_plane.get_run(other).status is RunStatus.DISCOVERED


def test_invariant_17_worker_waiting_for_provider_drains(
    operator: DownloadOperator, control_plane: ControlPlane, provider: ScriptedProvider
) -> None:
    operator.settings["TILEFERRY_WORKER_DRAIN_S"] = "0.5"
    provider.always[TILES] = create_answer(429, Retry_After="15")
    run = control_plane.submit_run(download_work("F1"))
    with operator.start("worker") as worker:
        wait_until(lambda: bool(provider.requests), "the request")
        time.sleep(0.5)
        signalled_s = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        ran = worker.wait()
    assert ran.code == 130
    assert time.monotonic() - signalled_s < 8
    assert "Draining" in ran.err
    known = control_plane.get_run(run)
    assert (known.status, known.rescues, known.error_message) == (RunStatus.DISCOVERED, 0, None)
    assert f"Run {run.run_id} returned to the queue after" in ran.err


def test_invariant_12_suspended_worker_with_lost_lease_ends_on_wake(
    operator: DownloadOperator, control_plane: ControlPlane, provider: ScriptedProvider
) -> None:
    provider.always[TILES] = create_answer(429, Retry_After="15")
    run = control_plane.submit_run(download_work("F1"))
    with operator.start("worker") as worker:
        wait_until(lambda: bool(provider.requests), "the request")
        worker.send_signal(signal.SIGSTOP)
        time.sleep(2.5)  # longer than its lease
        assert control_plane.control.sweep() == 1
        worker.send_signal(signal.SIGCONT)
        ran = worker.wait(timeout_s=10)
    assert ran.code == 4, ran.err
    assert "lost run" in ran.err
    assert control_plane.get_run(run).status is RunStatus.ERROR


def test_worker_claims_only_runs_of_its_source(
    operator: DownloadOperator, control_plane: ControlPlane
) -> None:
    ours, others = (
        control_plane.submit_run(download_work("F1")),
        control_plane.submit_run(evolve(download_work("F2"), source="beta")),
    )
    assert operator.run_in_process(*WORKER).out.endswith(" processed 1 run: 1 passed.\n")
    assert control_plane.get_run(ours).status is RunStatus.PASSED
    assert control_plane.get_run(others).status is RunStatus.DISCOVERED


@pytest.mark.parametrize("name", ["a\nb", "", "two words", "x" * 65])
def test_invalid_worker_name_is_rejected(operator: DownloadOperator, name: str) -> None:
    ran = operator.run_in_process(*WORKER, "--name", name)
    assert (ran.code, "--name" in ran.err) == (2, True)


def test_until_idle_reports_runs_that_did_not_finish(
    operator: DownloadOperator, control_plane: ControlPlane, provider: ScriptedProvider
) -> None:
    """Seen: exit code 0, with no word of the failed run."""
    run = control_plane.submit_run(download_work("F1"))
    provider.always[TILES] = create_answer(401)
    ran = operator.run_in_process(*WORKER)
    assert ran.code == 3
    said = " ".join(ran.err.split())
    assert f"Run {run.run_id} started: download area." in said
    assert "1 run has not finished:" in said
    assert f"run {run.run_id} was given up after" in said
    assert "401" in said
    provider.always.clear()
    waiting = control_plane.submit_run(download_work("F2"))
    provider.always[TILES] = create_answer(429, Retry_After="3600")
    ran = operator.run_in_process(*WORKER, "--json")
    (unfinished,) = ran.json["unfinished"]
    assert (ran.code, unfinished["run_id"], unfinished["status"]) == (3, waiting.run_id, "error")
    assert unfinished["next_retry_at"] is not None


def test_worker_prints_a_line_when_a_run_starts_and_ends(
    operator: DownloadOperator, control_plane: ControlPlane
) -> None:
    run = control_plane.submit_run(download_work("F1"))
    ran = operator.run_in_process(*WORKER)
    assert ran.code == 0
    assert f"Run {run.run_id} started: download area.\n" in ran.err
    assert re.search(rf"Run {run.run_id} passed after [\d.]+ s with 12 of 12 tiles\.\n", ran.err)


def test_running_run_shows_progress_and_can_be_cancelled(
    operator: DownloadOperator, control_plane: ControlPlane, provider: ScriptedProvider
) -> None:
    run = control_plane.submit_run(download_work("F1"))
    waits = BlockedLastTile(provider)
    with waits as reached, operator.start("worker") as worker:
        wait_until(reached.is_set, "the last tile")

        def read_progress() -> object:
            listed = operator.run_in_process("runs", "list", "--json").json["runs"]
            return (listed[0]["progress"] or {}).get("tiles_done")

        wait_until(lambda: read_progress() == COUNT - 1, "the progress")
        ran = operator.run_in_process("runs", "cancel", run.run_id, "--reason", "wrong area")
        assert (ran.code, ran.out) == (0, f"Run {run.run_id} cancelled: wrong area\n")
        time.sleep(1)  # a heartbeat
        waits.go_on.set()
        other = control_plane.submit_run(download_work("F2"))
        wait_until(lambda: control_plane.get_run(other).status is RunStatus.PASSED, "the next run")
        worker.send_signal(signal.SIGTERM)
        ended = worker.wait()
    assert ended.code == 0, ended.err
    assert f"Run {run.run_id} was cancelled after" in ended.err
    assert attempt_outcomes(control_plane, run) == [AttemptOutcome.CANCELLED]


def test_invariant_38_queued_download_in_mixed_weather_ends_complete(
    tmp_path: Path, database_url: str, control_plane: ControlPlane
) -> None:
    """One answer in five is an error; one worker brings the run to its end without help."""
    settings = {
        "TILEFERRY_PARTITIONS_RAW_ROOT": str(tmp_path / "raw"),
        "TILEFERRY_C11_BACKOFF_BASE_S": "0.1",
        "TILEFERRY_WORKER_INITIAL_BACKOFF_S": "0.2",
        "TILEFERRY_WORKER_MAX_BACKOFF_S": "1",
        "TILEFERRY_WORKER_POLL_S": "0.1",
    }
    with serve_provider(api_key=KEY) as provider:
        provider.set_faults(
            {"fault": "503", "rate": 0.1},
            {"fault": "reset", "rate": 0.05},
            {"fault": "429", "rate": 0.05, "retry_after": "0.1"},
        )
        operator = DownloadOperator(tmp_path, database_url, provider.url, settings)
        run = control_plane.submit_run(download_work("F1"))
        with operator.start(*WORKER) as worker:
            ended = worker.wait(timeout_s=60)
    assert ended.code == 0, ended.err
    assert control_plane.get_run(run).status is RunStatus.PASSED


def test_configured_tokens_delay_retries_and_until_idle_waits_for_them(
    operator: DownloadOperator, control_plane: ControlPlane
) -> None:
    """Seen: the worker ended while retries were due."""
    operator.settings["TILEFERRY_WORKER_RETRY_TOKENS"] = "1"
    operator.settings["TILEFERRY_WORKER_RETRY_TOKENS_PER_S"] = "0.5"
    operator.settings["TILEFERRY_WORKER_RETRY_TOKENS_PER_RUN"] = "0"
    runs = [control_plane.submit_run(download_work(f"F{number}")) for number in range(3)]
    for held in control_plane.queue.claim(WorkerId("w1"), limit=3, lease=timedelta(minutes=1)):
        control_plane.control.process_error(held, unreachable_error())
    control_plane.pass_time(61)
    tokens = operator.run_in_process("queue", "gates", "--json").json["sources"][0]["tokens"]
    assert tokens == 1
    ran = operator.run_in_process(*WORKER)
    assert (ran.code, "wait for a retry token" in ran.err) == (0, True), ran
    began = [control_plane.reader.list_attempts(run.run_id)[-1].began_at for run in runs]
    assert [control_plane.get_run(run).status for run in runs] == [RunStatus.PASSED] * 3
    assert began == sorted(began)
    assert (began[-1] - began[0]).total_seconds() > 2.5  # two tokens at 0.5 a second
