"""Rows that somebody has spoilt: the run is given up, and no worker with it."""

import logging
from collections.abc import Callable

import pytest
from sqlalchemy import text
from support.work_desk import W1, Desk, download, postgres_desk

from tileferry.adapters.memory import MemoryIdempotencyStore
from tileferry.adapters.postgres import Database
from tileferry.adapters.system import SystemClock, ThreadHeartbeat
from tileferry.application.control.key_expiry import KeyExpiry
from tileferry.application.control.worker import Result, Worker, WorkerSettings
from tileferry.domain.runs import Run, RunKind, RunStatus, Verdict, VerdictOutcome
from tileferry.domain.work import work_from


def handle(run: Run, _check: Callable[[], None], /) -> Result:
    work_from(run.kind, run.payload)
    return Result(verdict=Verdict(run_id=run.run_id, outcome=VerdictOutcome.PASSED))


def works(desk: Desk) -> None:
    Worker(
        name=W1,
        queue=desk.queue,
        control=desk.control,
        partitions=desk.partitions,
        keys=KeyExpiry(store=MemoryIdempotencyStore(clock=SystemClock())),
        handlers=dict.fromkeys(RunKind, handle),
        heartbeat=ThreadHeartbeat(),
        clock=SystemClock(),
        logger=logging.getLogger("test.spoilt"),
        settings=WorkerSettings(until_idle=True, batch=5),
    ).run()


@pytest.mark.parametrize(
    "payload", ["no JSON", "[" * 100_000, "[1]", "null", '"text"', '{"version": 99}', "{}"]
)
def test_invariant_18_a_payload_that_nobody_can_read_ends_its_run_and_no_worker(
    database: Database, payload: str
) -> None:
    desk = postgres_desk(database)
    good, bad = desk.submitted(download("F1")), desk.submitted(download("F2"))
    with database.transaction() as connection:
        connection.execute(
            text("UPDATE runs SET payload = :payload WHERE run_id = :run_id"),
            {"payload": payload, "run_id": bad.run_id},
        )
    works(desk)
    assert desk.known(good).status is RunStatus.PASSED
    known = desk.known(bad)
    assert (known.status, known.error_class, known.next_retry_at) == (
        RunStatus.ERROR,
        "final",
        None,
    )
    assert "payload" in (known.error_message or "")


def test_invariant_18_one_that_was_under_way_is_rescued_all_the_same(database: Database) -> None:
    desk = postgres_desk(database)
    run = desk.submitted()
    desk.claimed()
    with database.transaction() as connection:
        connection.execute(text("UPDATE runs SET payload = 'no JSON'"))
    desk.pass_time(61)
    assert desk.control.sweep() == 1
    works(desk)
    assert desk.known(run).error_class == "final"


def test_retries_come_again_after_a_clock_that_was_ahead(database: Database) -> None:
    desk = postgres_desk(database)
    run = desk.submitted()
    desk.control.process_error(desk.claimed(), OSError("full"))
    desk.pass_time(61)
    with database.transaction() as connection:
        connection.execute(
            text("UPDATE source_gates SET tokens = 0, refilled_at = now() + interval '1 day'")
        )
    assert desk.control.get_next_run_to_process(W1, lease=WorkerSettings().lease) is None
    desk.pass_time(3)
    assert desk.claimed().run_id == run.run_id
