"""``tileferry worker --count N``: several workers, killed and stopped, as one command."""

import os
import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from attrs import evolve
from support.control_plane import ControlPlane, partition_key
from support.download_env import DERKACHI, ZOOM
from support.download_operator import DownloadOperator, RunningCommand, wait_until
from support.provider import PRODUCED_AT
from support.scripted_provider import ScriptedProvider, create_answer, tile_path

from tileferry.domain.partitions import PartitionStatus
from tileferry.domain.runs import RunStatus
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import SectorClass
from tileferry.domain.tiles.area import Area
from tileferry.domain.work import AcquirePartition

AREA = Area(bbox=DERKACHI, zoom_levels=[ZOOM], sector_class=SectorClass.STABLE_REAR)
KEY = evolve(partition_key(source="satellite"), logical_date=PRODUCED_AT.date())
COUNT = ("worker", "--count", "3", "--name", "w", "--kind", "acquire_partition")


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider.for_area(DERKACHI, ZOOM, 4)


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


def enqueue(control_plane: ControlPlane, count: int) -> list[AcquirePartition]:
    """Queue partitions of as many customers."""
    works = [
        AcquirePartition(key=evolve(KEY, customer_id=f"c{number}"), area=AREA)
        for number in range(count)
    ]
    control_plane.partitions.enqueue(works, actor=Actor.OPERATOR)
    return works


def find_children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def get_pid(command: RunningCommand) -> int:
    return command.process.pid


def test_count_workers_process_all_runs_while_they_are_killed(
    operator: DownloadOperator, control_plane: ControlPlane
) -> None:
    works = enqueue(control_plane, 40)
    chance = random.Random(7)  # noqa: S311  # the same victims each time
    kills = 0
    with operator.start(*COUNT, "--until-idle", as_new_program=True) as command:
        while command.process.poll() is None:
            time.sleep(0.7)
            children = find_children(get_pid(command)) if command.process.poll() is None else []
            if kills < 5 and children:
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(children), signal.SIGKILL)
                    kills += 1
        ended = command.wait()
    assert ended.code == 0, ended.err
    assert kills >= 3
    assert "was killed by signal 9; starting it again" in ended.err
    for work in works:
        partition = control_plane.reader.find_partition(work.key)
        assert partition is not None
        assert (partition.status, partition.attempt_count) == (PartitionStatus.SUCCESS, 1)


def test_first_signal_drains_all_workers(
    operator: DownloadOperator, control_plane: ControlPlane
) -> None:
    with operator.start(*COUNT, "--ready-file", str(operator.home / "ready")) as command:
        files = [operator.home / f"ready.{number}" for number in (1, 2, 3)]
        wait_until(lambda: all(file.exists() for file in files), "the start of all workers")
        enqueue(control_plane, 3)
        wait_until(
            lambda: control_plane.reader.count_runs().get(RunStatus.PASSED) == 3, "the end of runs"
        )
        command.send_signal(signal.SIGTERM)
        ended = command.wait()
    assert ended.code == 0, ended.err
    assert "Workers w processed 3 runs: 3 passed." in ended.out
    assert not any(file.exists() for file in files)


def test_second_signal_stops_all_workers_at_once(
    operator: DownloadOperator, control_plane: ControlPlane, provider: ScriptedProvider
) -> None:
    provider.always[tile_path(provider.tiles[0])] = create_answer(503)
    enqueue(control_plane, 3)
    with operator.start(*COUNT) as command:
        wait_until(
            lambda: len(set(re.findall(r"Run (\S+) started", command.read_errors()))) == 3,
            "the start of three runs",
        )
        command.send_signal(signal.SIGINT)
        wait_until(lambda: "Draining" in command.read_errors(), "the drain")
        command.send_signal(signal.SIGINT)
        started_s = time.monotonic()
        ended = command.wait()
    assert ended.code == 130, ended.err
    assert time.monotonic() - started_s < 5.0


def test_workers_drain_when_their_command_is_killed(operator: DownloadOperator) -> None:
    with operator.start(*COUNT, "--ready-file", str(operator.home / "ready")) as command:
        files = [operator.home / f"ready.{number}" for number in (1, 2, 3)]
        wait_until(lambda: all(file.exists() for file in files), "the start of all workers")
        os.kill(get_pid(command), signal.SIGKILL)
        wait_until(lambda: not any(file.exists() for file in files), "the end of all workers")


def test_count_workers_exit_like_one_for_unfinished_runs(
    operator: DownloadOperator, control_plane: ControlPlane, provider: ScriptedProvider
) -> None:
    provider.always[tile_path(provider.tiles[0])] = create_answer(404)
    enqueue(control_plane, 2)
    ran = operator.run(*COUNT, "--until-idle", "--json")
    assert ran.code == 3, ran.err
    assert (ran.json["processed"], ran.json["ended"]["failed"]) == (2, 2)
    assert len(ran.json["unfinished"]) == 2


def test_workers_that_cannot_start_end_the_command(operator: DownloadOperator) -> None:
    operator.settings["TILEFERRY_DATABASE_LISTEN_URL"] = "postgresql://me:p@ss@host/db"
    ran = operator.run(*COUNT)
    assert ran.code == 2, ran.err
