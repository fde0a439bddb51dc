"""Rows that somebody has spoilt: the run is given up, and no worker with it."""

import logging
from collections.abc import Callable

import pytest
from sqlalchemy import text
from support.control_plane import W1, ControlPlane, create_postgres_control_plane, download_work

from tileferry.adapters.memory import MemoryIdempotencyStore
from tileferry.adapters.postgres import Database
from tileferry.adapters.system import SystemClock, ThreadHeartbeat
from tileferry.application.control.key_expiry import KeyExpiry
from tileferry.application.control.worker import RunResult, Worker, WorkerSettings
from tileferry.domain.runs import Run, RunKind, RunStatus, Verdict, VerdictOutcome
from tileferry.domain.work import parse_work


def handle(run: Run, _check: Callable[[], None], /) -> RunResult:
    parse_work(run.kind, run.payload)
    return RunResult(verdict=Verdict(run_id=run.run_id, outcome=VerdictOutcome.PASSED))


def run_worker(desk: ControlPlane) -> None:
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
def test_invariant_18_unreadable_payload_fails_its_run_not_the_worker(
    database: Database, payload: str
) -> None:
    desk = create_postgres_control_plane(database)
    good, bad = desk.submit_run(download_work("F1")), desk.submit_run(download_work("F2"))
    with database.transaction() as connection:
        connection.execute(
            text("UPDATE runs SET payload = :payload WHERE run_id = :run_id"),
            {"payload": payload, "run_id": bad.run_id},
        )
    run_worker(desk)
    assert desk.get_run(good).status is RunStatus.PASSED
    known = desk.get_run(bad)
    assert (known.status, known.error_class, known.next_retry_at) == (
        RunStatus.ERROR,
        "final",
        None,
    )
    assert "payload" in (known.error_message or "")


def test_invariant_18_processing_run_with_a_bad_payload_is_rescued(database: Database) -> None:
    desk = create_postgres_control_plane(database)
    run = desk.submit_run()
    desk.claim_run()
    with database.transaction() as connection:
        connection.execute(text("UPDATE runs SET payload = 'no JSON'"))
    desk.pass_time(61)
    assert desk.control.sweep() == 1
    run_worker(desk)
    assert desk.get_run(run).error_class == "final"


def test_retries_resume_after_the_gate_clock_was_ahead(database: Database) -> None:
    desk = create_postgres_control_plane(database)
    run = desk.submit_run()
    desk.control.process_error(desk.claim_run(), OSError("full"))
    desk.pass_time(61)
    with database.transaction() as connection:
        connection.execute(
            text("UPDATE source_gates SET tokens = 0, refilled_at = now() + interval '1 day'")
        )
    assert desk.control.get_next_run_to_process(W1, lease=WorkerSettings().lease) is None
    desk.pass_time(3)
    assert desk.claim_run().run_id == run.run_id
