"""The figures for monitoring: exact for small tables, cheap for large ones."""

import os
import time
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from support.control_plane import ControlPlane, create_postgres_control_plane

from tileferry.adapters.postgres import Database, PostgresFigureReader
from tileferry.adapters.postgres import figures as figures_module
from tileferry.domain.errors import DatabaseError
from tileferry.domain.state_machine import Actor
from tileferry.domain.work import UploadFlight

SCRAPE_S_MAX = 0.15


@pytest.fixture
def control_plane(database: Database) -> ControlPlane:
    return create_postgres_control_plane(database)


def test_small_tables_are_counted_exactly(database: Database, control_plane: ControlPlane) -> None:
    for number in range(3):
        work = UploadFlight(source="satellite", flight_id=f"F{number}")
        control_plane.control.submit(work, actor=Actor.OPERATOR, by="me")
    with database.transaction() as connection:
        connection.execute(text("UPDATE runs SET submitted_date = now() - interval '2 hours'"))
    found = PostgresFigureReader(database=database).read()
    assert found.runs == {"discovered": 3}
    (queue,) = found.queues
    assert (queue.source, queue.ready, queue.waiting, queue.leased) == ("satellite", 3, 0, 0)
    assert queue.oldest_ready_at is not None
    assert timedelta(hours=2) <= found.now - queue.oldest_ready_at < timedelta(hours=3)
    assert queue.retry_tokens > 0
    assert (found.workers, found.expired_leases, found.tiles, found.giveups) == (0, 0, 0, 0)
    assert found.audit_sequence == 3
    assert found.audit_at is not None
    assert abs(found.audit_at - datetime.now(UTC)) < timedelta(days=1)
    assert found.partitions == {"failed": 0}
    assert 0 < found.latency_s < 1


def test_read_that_takes_too_long_is_an_error(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures_module, "_BEGIN", "BEGIN; SET LOCAL statement_timeout = 50")
    monkeypatch.setattr(figures_module, "_VERDICT", "SELECT pg_sleep(5)")
    started_s = time.monotonic()
    with pytest.raises(DatabaseError, match="timeout"):
        PostgresFigureReader(database=database).read()
    assert time.monotonic() - started_s < 3
    monkeypatch.undo()
    assert PostgresFigureReader(database=database).read().verdict_at is None


@pytest.mark.skipif("SOAK" not in os.environ, reason="fills a million rows")
def test_scrape_of_a_large_installation_is_fast(database: Database) -> None:
    with database.transaction() as connection:
        for statement in _FILL.split(";"):
            connection.execute(text(statement))
    reader = PostgresFigureReader(database=database)
    found, times = reader.read(), []
    for _ in range(5):
        started_s = time.perf_counter()
        found = reader.read()
        times.append(time.perf_counter() - started_s)
    assert min(times) < SCRAPE_S_MAX
    assert 0.9e6 < sum(found.partitions.values()) < 1.1e6
    assert 0.9e5 < sum(found.runs.values()) < 1.1e5


_FILL = """
    SET LOCAL session_replication_role = replica;
    INSERT INTO source_gates(source, tokens, refilled_at) VALUES ('satellite', 10, now());
    INSERT INTO runs(run_id, kind, source, priority, submitted_date, payload, status, ready)
        SELECT 'q' || i, 'acquire_partition', 'satellite', 1, now(), repeat('x', 200),
            'discovered', true FROM generate_series(1, 100000) AS i;
    INSERT INTO partitions(source, customer_id, query_name, logical_date, status, attempt_count,
        current_run_id, last_run_id, created_at, updated_at, transition, changed_by)
        SELECT 'satellite', 'c' || i % 100, 'q' || i % 50, date '2000-01-01' + i / 100, 'success',
            1, 'r' || i, 'r' || i, now(), now(), 'accept', 'validator'
        FROM generate_series(1, 1000000) AS i;
    INSERT INTO partition_attempts(partition_id, attempt, run_id, outcome, judged_at)
        SELECT i, 1, 'r' || i, 'passed', now() FROM generate_series(1, 1000000) AS i
"""
