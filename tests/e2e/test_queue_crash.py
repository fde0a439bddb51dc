"""Four workers on one queue, killed and stopped at random: every run ends, and none twice."""

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle

import pytest
from support.crash_processes import SOAK_FACTOR
from support.postgres_server import PostgresServerProcess
from support.queue_process import QueuePlan
from support.worker_crew import (
    WorkerCrew,
    check_attempts,
    check_leases,
    check_rescues,
    count_passed,
    fill_queue,
)

from tileferry.adapters.postgres import Database
from tileferry.domain.errors import DatabaseError

RUNS = 600 * SOAK_FACTOR
HARMS = 9 * SOAK_FACTOR
LONGEST_S = 60 + 40 * SOAK_FACTOR


@pytest.fixture
def worker_crew(database_url: str) -> Iterator[WorkerCrew]:
    plan = QueuePlan(database_url=database_url, lease_s=1.5, sweep_s=0.3)
    made = WorkerCrew(plan, random.Random(13), LONGEST_S)  # noqa: S311  # a repeatable test, not a secret
    yield made
    made.kill_remaining()


@pytest.mark.timeout(LONGEST_S + 60)
def test_invariants_12_13_18_every_run_ends_once_despite_killed_workers(
    database: Database, worker_crew: WorkerCrew
) -> None:
    fill_queue(database, RUNS)
    deadline_s = time.monotonic() + LONGEST_S
    harmed = 0
    while (done := count_passed(database)) < RUNS:
        assert time.monotonic() < deadline_s, f"{RUNS - done} runs have not ended"
        worker_crew.fill()
        worker_crew.wake()
        if done > harmed * RUNS // HARMS and harmed < HARMS:  # all along their way
            (worker_crew.stop_one if harmed % 3 == 2 else worker_crew.kill_one)()  # of three
            harmed += 1
        time.sleep(0.02)
    worker_crew.dismiss()
    assert (len(worker_crew.kills), worker_crew.stops) == (2 * HARMS // 3, HARMS // 3)
    assert worker_crew.lost, "nobody who was stopped has noticed"
    check_leases(database, RUNS)
    check_rescues(database, worker_crew)


OUTAGE_RUNS = 10_000 if SOAK_FACTOR > 1 else 300
OUTAGE_HARMS = 60 if SOAK_FACTOR > 1 else 4


@pytest.mark.timeout(LONGEST_S + 60)
def test_invariants_10_12_13_18_every_run_ends_once_despite_killed_servers(
    server: PostgresServerProcess,
) -> None:
    """Postgres is killed and restarted; workers are killed, or stopped past their lease."""
    database = Database.from_url(server.url)
    fill_queue(database, OUTAGE_RUNS)
    plan = QueuePlan(database_url=server.url, lease_s=1.5, sweep_s=0.3, work_s=0.006)
    crew = WorkerCrew(plan, random.Random(17), LONGEST_S)  # noqa: S311  # a repeatable test, not a secret
    harms = cycle([lambda: server.restart("kill"), crew.stop_one, crew.kill_one])
    deadline_s = time.monotonic() + LONGEST_S
    harmed = done = 0
    try:
        while done < OUTAGE_RUNS:
            assert time.monotonic() < deadline_s, f"{OUTAGE_RUNS - done} runs have not ended"
            crew.fill()
            crew.wake()
            if done > harmed * OUTAGE_RUNS // OUTAGE_HARMS and harmed < OUTAGE_HARMS:
                next(harms)()
                harmed += 1
            time.sleep(0.02)
            with suppress(DatabaseError):  # this connection was cut as well
                done = count_passed(database)
        crew.dismiss()
    finally:
        crew.kill_remaining()
    assert harmed == OUTAGE_HARMS
    check_leases(database, OUTAGE_RUNS)
    check_attempts(database)
    database.close()
