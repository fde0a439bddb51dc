"""Four workers on one queue, killed and stopped at random: every run ends, and none twice."""

import os
import random
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
from attrs import define, field
from sqlalchemy import Row, text
from support.control_plane import download_work
from support.crash_processes import SOAK_FACTOR, processes
from support.queue_process import (
    CREATE_HANDLED_TABLE,
    LOST_LEASE,
    QueuePlan,
    create_run_control,
    execute_worker,
)

from tileferry.adapters.postgres import Database
from tileferry.application.ports.work import WorkStore
from tileferry.domain.errors import LeaseLostError
from tileferry.domain.runs import RunId, RunPriority, submit
from tileferry.domain.state_machine import Actor

RUNS = 1_000 * SOAK_FACTOR
HARMS = 15 * SOAK_FACTOR
WORKERS = 4
LEASE_S, SWEEP_S = 1.5, 0.3
SLACK_S = 3.0
"""For a busy machine: a sweep comes late where no worker gets to run."""
LONGEST_S = 60 + 40 * SOAK_FACTOR


def run_worker(plan: QueuePlan, name: str) -> None:
    try:
        execute_worker(plan, name)
    except LeaseLostError:
        os._exit(LOST_LEASE)


@define
class WorkerCrew:
    """Keeps four workers at it, whatever happens to them."""

    plan: QueuePlan
    chance: random.Random
    members: list[BaseProcess] = field(factory=list)
    kills: list[tuple[str, float]] = field(factory=list)
    """Who was killed, and when."""
    stops: int = 0
    lost: int = 0
    _stopped: dict[BaseProcess, float] = field(factory=dict)
    _count: int = 0

    def fill(self) -> None:
        """Have as many workers as there should be; one that ended badly is a failure."""
        for member in list(self.members):
            if not member.is_alive():
                assert member.exitcode in {0, -signal.SIGKILL, LOST_LEASE}
                self.lost += member.exitcode == LOST_LEASE
                self.members.remove(member)
        while len(self.members) < WORKERS:
            self._count += 1
            member = processes.Process(
                target=run_worker, args=(self.plan, f"w{self._count}"), name=f"w{self._count}"
            )
            member.start()
            self.members.append(member)

    def harm(self) -> None:
        """Kill two of three, and stop the third for longer than its lease lasts."""
        victim = self.chance.choice([one for one in self.members if one not in self._stopped])
        assert victim.pid is not None
        if (len(self.kills) + self.stops) % 3 < 2:  # of three
            victim.kill()
            self.kills.append((victim.name, time.time()))
            return
        os.kill(victim.pid, signal.SIGSTOP)
        self._stopped[victim] = time.monotonic() + LEASE_S + 2 * SWEEP_S
        self.stops += 1

    def wake(self) -> None:
        """Have those go on that were stopped for long enough."""
        for member, until_s in list(self._stopped.items()):
            if time.monotonic() >= until_s:
                assert member.pid is not None
                os.kill(member.pid, signal.SIGCONT)
                del self._stopped[member]

    def dismiss(self) -> None:
        """Let them end, and see that they do."""
        while self._stopped:
            time.sleep(0.1)
            self.wake()
        for member in self.members:
            member.join(LONGEST_S)
            assert member.exitcode in {0, LOST_LEASE}

    def kill_remaining(self) -> None:
        """End whoever is left."""
        for member in self.members:
            if member.is_alive():
                member.kill()
                member.join()


@pytest.fixture
def worker_crew(database_url: str) -> Iterator[WorkerCrew]:
    plan = QueuePlan(database_url=database_url, lease_s=LEASE_S, sweep_s=SWEEP_S)
    made = WorkerCrew(plan, random.Random(13))  # noqa: S311  # a repeatable test, not a secret
    yield made
    made.kill_remaining()


def submit_many(store: WorkStore, count: int) -> None:
    with store.open_unit() as unit:
        for number in range(count):
            wanted = download_work(f"F{number}")
            unit.save_run(
                submit(
                    run_id=RunId(f"run-{number:06}"),
                    kind=wanted.kind,
                    source=wanted.source,
                    actor=Actor.OPERATOR,
                    now=unit.now,
                    priority=RunPriority.FRESH,
                    dedupe_key=wanted.dedupe_key,
                    payload=wanted.to_payload(),
                )
            )


def fetch_rows(database: Database, query: str) -> list[Row[Any]]:
    with database.read_connection() as connection:
        return list(connection.execute(text(query)))


def count_passed(database: Database) -> int:
    """How many runs have passed."""
    (row,) = fetch_rows(database, "SELECT count(*) AS number FROM runs WHERE status = 'passed'")
    return int(row.number)


@pytest.mark.timeout(LONGEST_S + 60)
def test_invariants_12_13_18_every_run_ends_once_despite_killed_workers(
    database: Database, worker_crew: WorkerCrew
) -> None:
    with database.transaction() as connection:
        connection.execute(text(CREATE_HANDLED_TABLE))
    submit_many(create_run_control(database).store, RUNS)
    deadline_s = time.monotonic() + LONGEST_S
    harmed = 0
    while (done := count_passed(database)) < RUNS:
        assert time.monotonic() < deadline_s, f"{RUNS - done} runs have not ended"
        worker_crew.fill()
        worker_crew.wake()
        if done > harmed * RUNS // HARMS and harmed < HARMS:  # all along their way
            worker_crew.harm()
            harmed += 1
        time.sleep(0.02)
    worker_crew.dismiss()
    assert (len(worker_crew.kills), worker_crew.stops) == (2 * HARMS // 3, HARMS // 3)
    assert worker_crew.lost, "nobody who was stopped has noticed"
    check_leases(database)
    check_rescues(database, worker_crew)


ATTEMPTS = """
    SELECT run_id, epoch, worker, began_at, ended_at, outcome FROM run_attempts
    UNION ALL SELECT run_id, lease_epoch, worker, began_at, ended_at, status FROM runs
    ORDER BY run_id, epoch
"""


def check_leases(database: Database) -> None:
    """No two valid leases on one run at a time, and one end of each.

    From its claim until it was reported on, lost or given back a lease is valid. All that by the
    clock of the database.
    """
    attempts = fetch_rows(database, ATTEMPTS)
    for before, after in pairwise(attempts):
        if before.run_id == after.run_id:
            assert after.epoch == before.epoch + 1
            assert after.began_at >= before.ended_at
            assert before.outcome in {"error", "lost", "released"}
    passed = [one for one in attempts if one.outcome == "passed"]
    assert len(passed) == len({one.run_id for one in passed}) == RUNS
    known = {(one.run_id, one.epoch): one for one in attempts}
    handled = fetch_rows(database, "SELECT * FROM handled")
    assert {(one.run_id, one.epoch) for one in handled} <= known.keys()
    for one in handled:  # by the one who had the claim, and not before he had it
        attempt = known[one.run_id, one.epoch]
        assert one.worker == attempt.worker
        assert one.began_at >= attempt.began_at
    # What counted was done, wholly, under the claim that it counted for.
    finished = {(one.run_id, one.epoch) for one in handled if one.ended_at is not None}
    assert {(one.run_id, one.epoch) for one in passed} <= finished


def check_rescues(database: Database, crew: WorkerCrew) -> None:
    """What a dead worker held is taken from it within one lease and one sweep."""
    lost = fetch_rows(database, "SELECT * FROM run_attempts WHERE outcome = 'lost'")
    assert lost
    for name, killed_at_s in crew.kills:
        for one in lost:
            if one.worker == name:
                late_s = one.ended_at.timestamp() - killed_at_s
                assert late_s <= LEASE_S + SWEEP_S + SLACK_S, (name, late_s)
