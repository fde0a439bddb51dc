"""A replica takes over while workers are busy: nothing acknowledged is lost if commits wait for it.

If they do not wait, what the replica had not received is lost, and the rest is whole.
"""

import random
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from support.control_plane import download_work
from support.crash_processes import SOAK_FACTOR
from support.download_operator import DownloadOperator
from support.provider import API_KEY, RunningProvider
from support.queue_process import QueuePlan, create_run_control
from support.replicated_server import ReplicatedServer, run_replicated_server
from support.worker_crew import (
    WorkerCrew,
    check_attempts,
    check_leases,
    count_passed,
    fetch_rows,
    fill_queue,
)

from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.adapters.postgres.migrate import upgrade
from tileferry.application.control.run_control import RunControl
from tileferry.domain.audit import verify_chain
from tileferry.domain.errors import DatabaseError
from tileferry.domain.runs import RunId
from tileferry.domain.state_machine import Actor

RUNS = 300 * SOAK_FACTOR
LONGEST_S = 60 + 20 * SOAK_FACTOR
PASSED = "SELECT run_id FROM runs WHERE status = 'passed'"


@pytest.fixture
def servers() -> Iterator[ReplicatedServer]:
    with run_replicated_server() as running:
        yield running


@pytest.fixture
def replicated_database(servers: ReplicatedServer) -> Iterator[Database]:
    with closing(Database.from_url(servers.url)) as database:
        upgrade(database)
        yield database


def submit_run(control: RunControl, number: int) -> RunId:
    run, _ = control.submit(download_work(f"late-{number}"), actor=Actor.OPERATOR)
    return run.run_id


def list_run_ids(database: Database, query: str) -> set[str]:
    return {row.run_id for row in fetch_rows(database, query)}


def is_log_intact(database: Database) -> bool:
    return verify_chain(PostgresAuditLog(database=database).iter_entries()).intact


@pytest.mark.timeout(LONGEST_S + 60)
def test_invariants_12_13_18_failover_loses_nothing_that_a_synchronous_replica_has(
    servers: ReplicatedServer, replicated_database: Database
) -> None:
    database = replicated_database
    fill_queue(database, RUNS)
    servers.require_replica()
    control = create_run_control(database)
    crew = WorkerCrew(
        QueuePlan(database_url=servers.url, lease_s=1.5, sweep_s=0.3, work_s=0.006),
        random.Random(19),  # noqa: S311  # a repeatable test, not a secret
        LONGEST_S,
    )
    deadline_s = time.monotonic() + LONGEST_S
    submitted: list[RunId] = []
    try:
        done: set[str] = set()
        while len(done) < RUNS // 3:
            assert time.monotonic() < deadline_s
            crew.fill()
            submitted.append(submit_run(control, len(submitted)))
            done = list_run_ids(database, PASSED)
        servers.lose_primary()  # in the midst of claims, reports and submissions
        servers.promote()
        after: set[str] = set()
        while not after:
            assert time.monotonic() < deadline_s, "no server accepts changes"
            with suppress(DatabaseError):
                after = list_run_ids(database, PASSED)
        assert done <= after, "a run that had passed is lost"
        assert set(submitted) <= list_run_ids(database, "SELECT run_id FROM runs")
        submitted.append(submit_run(control, len(submitted)))
        wanted = RUNS + len(submitted)
        while (passed := count_passed(database)) < wanted:
            assert time.monotonic() < deadline_s, f"{wanted - passed} runs have not ended"
            crew.fill()
            time.sleep(0.02)
        crew.dismiss()
    finally:
        crew.kill_remaining()
    check_leases(database, wanted)
    check_attempts(database)
    assert is_log_intact(database)


def test_commands_accept_the_address_of_both_servers(
    servers: ReplicatedServer, tmp_path: Path, reference_provider: RunningProvider
) -> None:
    operator = DownloadOperator(tmp_path, servers.url, reference_provider.url)
    operator.settings["TILEFERRY_C11_SERVICE_API_KEY"] = API_KEY
    area = ("--bbox", "36.20,50.00,36.22,50.02", "--zoom", "15")
    for command in (
        ("db", "upgrade"),
        ("download", *area, "--flight", "F1", "--sector", "stable_rear"),
        ("worker", "--until-idle"),
    ):
        ran = operator.run_in_process(*command)
        assert ran.code == 0, (command, ran.err)
    servers.lose_primary()
    servers.promote()
    for command in (("db", "status"), ("cache", "verify"), ("runs", "list"), ("audit", "verify")):
        ran = operator.run_in_process(*command)
        assert ran.code == 0, (command, ran.err)


def test_failover_without_a_synchronous_replica_loses_the_newest_work_only(
    servers: ReplicatedServer, replicated_database: Database
) -> None:
    control = create_run_control(replicated_database)
    received = [submit_run(control, number) for number in range(20)]
    with closing(Database.from_url(servers.get_url(0))) as primary:
        sent = fetch_rows(primary, "SELECT pg_current_wal_lsn()::text AS place")[0].place
    servers.wait_for(1, f"SELECT pg_last_wal_replay_lsn() >= '{sent}'")
    servers.pause_replication()
    lost = [submit_run(control, number) for number in range(20, 30)]
    servers.lose_primary()
    servers.promote()
    left: set[str] = set()
    deadline_s = time.monotonic() + LONGEST_S
    while not left:
        assert time.monotonic() < deadline_s, "no server accepts changes"
        with suppress(DatabaseError):
            left = list_run_ids(replicated_database, "SELECT run_id FROM runs")
    assert left == set(received)
    assert left.isdisjoint(lost)
    assert is_log_intact(replicated_database)
    assert submit_run(control, 30) not in left
