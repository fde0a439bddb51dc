"""Workers on one queue that are killed and stopped, and what must hold for its runs afterwards."""

import os
import random
import signal
import time
from itertools import pairwise
from multiprocessing.process import BaseProcess
from typing import Any

from attrs import define, field
from sqlalchemy import Row, text

from support.control_plane import download_work
from support.crash_processes import processes
from support.queue_process import (
    CREATE_HANDLED_TABLE,
    LOST_LEASE,
    QueuePlan,
    create_run_control,
    execute_worker,
)
from tileferry.adapters.postgres import Database
from tileferry.domain.errors import LeaseLostError
from tileferry.domain.runs import RunId, RunPriority, submit
from tileferry.domain.state_machine import Actor

WORKERS = 4
SLACK_S = 3.0
"""For a busy machine: a sweep comes late where no worker gets to run."""


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
    longest_s: float
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

    def kill_one(self) -> None:
        victim = self._choose()
        victim.kill()
        self.kills.append((victim.name, time.time()))

    def stop_one(self) -> None:
        """Stop one for longer than its lease lasts."""
        victim = self._choose()
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGSTOP)
        self._stopped[victim] = time.monotonic() + self.plan.lease_s + 2 * self.plan.sweep_s
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
            member.join(self.longest_s)
            assert member.exitcode in {0, LOST_LEASE}

    def kill_remaining(self) -> None:
        """End whoever is left."""
        for member in self.members:
            if member.is_alive():
                member.kill()
                member.join()

    def _choose(self) -> BaseProcess:
        return self.chance.choice([one for one in self.members if one not in self._stopped])


def fill_queue(database: Database, count: int) -> None:
    """Submit runs, and make the table in which handlers note what they do."""
    with database.transaction() as connection:
        connection.execute(text(CREATE_HANDLED_TABLE))
    with create_run_control(database).store.open_unit() as unit:
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


ATTEMPTS = """
    SELECT run_id, epoch, worker, began_at, ended_at, outcome FROM run_attempts
    UNION ALL SELECT run_id, lease_epoch, worker, began_at, ended_at, status FROM runs
    ORDER BY run_id, epoch
"""


def check_leases(database: Database, runs: int) -> None:
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
    assert len(passed) == len({one.run_id for one in passed}) == runs
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


COUNTS = """
    SELECT r.run_id, rescues, count(*) FILTER (WHERE outcome = 'lost') AS lost
    FROM runs r LEFT JOIN run_attempts a USING (run_id) GROUP BY r.run_id
"""


def check_attempts(database: Database) -> None:
    """Each lost lease is counted once, and only errors of handlers are charged."""
    for one in fetch_rows(database, COUNTS):
        assert one.rescues == one.lost, one
    unfinished = fetch_rows(
        database,
        "SELECT run_id, epoch FROM run_attempts a WHERE outcome = 'error' AND NOT EXISTS ("
        "SELECT FROM handled h WHERE h.run_id = a.run_id AND h.epoch = a.epoch"
        " AND h.ended_at IS NULL)",
    )
    assert unfinished == [], "an attempt was charged whose handler did not fail"


def check_rescues(database: Database, crew: WorkerCrew) -> None:
    """What a dead worker held is taken from it within one lease and one sweep."""
    lost = fetch_rows(database, "SELECT * FROM run_attempts WHERE outcome = 'lost'")
    assert lost
    longest_s = crew.plan.lease_s + crew.plan.sweep_s + SLACK_S
    for name, killed_at_s in crew.kills:
        for one in lost:
            if one.worker == name:
                late_s = one.ended_at.timestamp() - killed_at_s
                assert late_s <= longest_s, (name, late_s)
