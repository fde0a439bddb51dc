"""Behind a pooler, each transaction brings its own settings and leaves none behind."""

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from support.audit_events import create_retry_attempted
from support.pgbouncer import needs_pgbouncer, run_pgbouncer, weaken_commits

from tileferry.adapters.postgres import (
    Database,
    PostgresAuditLog,
    PostgresIdempotencyStore,
    PostgresRunQueue,
)
from tileferry.domain.errors import DatabaseError

pytestmark = needs_pgbouncer
SETTINGS = (
    "SELECT current_setting('synchronous_commit'), current_setting('lock_timeout'),"
    " current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')"
)
OURS = ("on", "30s", "2min", "1min")
THEIRS = ("off", "0", "0", "0")


@pytest.fixture
def pooled_url(database_url: str, tmp_path: Path) -> Iterator[str]:
    """Return the database behind a pooler with one session, which all clients share."""
    weaken_commits(database_url)
    with run_pgbouncer(database_url, tmp_path, sessions=1) as url:
        yield url


@pytest.fixture
def pooled_database(pooled_url: str) -> Iterator[Database]:
    with closing(Database.from_url(pooled_url)) as database:
        yield database


def test_settings_end_with_the_transaction(pooled_url: str, pooled_database: Database) -> None:
    with psycopg.connect(pooled_url, autocommit=True, prepare_threshold=None) as other:
        for _ in range(8):  # more often than a statement is executed unprepared
            with pooled_database.transaction() as connection:
                assert tuple(connection.execute(text(SETTINGS)).one()) == OURS
            assert other.execute(SETTINGS).fetchone() == THEIRS
            with pooled_database.read_connection() as connection:
                assert tuple(connection.execute(text(SETTINGS)).one()) == OURS
            assert other.execute(SETTINGS).fetchone() == THEIRS


def test_settings_of_another_client_are_overridden(
    pooled_url: str, pooled_database: Database
) -> None:
    with psycopg.connect(pooled_url, autocommit=True, prepare_threshold=None) as other:
        other.execute("SET synchronous_commit = off; SET lock_timeout = 1")
        with pooled_database.transaction() as connection:
            assert tuple(connection.execute(text(SETTINGS)).one()) == OURS
        assert other.execute(SETTINGS).fetchone() == ("off", "1ms", "0", "0")


def test_single_statements_commit_durably(pooled_database: Database) -> None:
    log = PostgresAuditLog(database=pooled_database)
    store = PostgresIdempotencyStore(database=pooled_database, audit_sink=log)
    lease = timedelta(minutes=1)
    for number in range(8):
        held = store.claim(f"k{number}", fingerprint="f", owner="o", lease=lease)
        held = store.renew(held, lease=lease)
        store.complete(held, b"5", keep=None, event=create_retry_attempted(number + 1))
        log.emit([create_retry_attempted(number + 1)])
    store.release(store.claim("released", fingerprint="f", owner="o", lease=lease))
    assert log.read_head().sequence == 16


def test_weak_commits_are_refused_by_this_test_itself(pooled_url: str) -> None:
    with psycopg.connect(pooled_url) as other:
        other.execute("INSERT INTO cache_reservations VALUES ('r1', 1, now())")
        with pytest.raises(psycopg.errors.RaiseException, match="cache_reservations is not dur"):
            other.commit()


def test_queue_polls_instead_of_listening(pooled_url: str, pooled_database: Database) -> None:
    queue = PostgresRunQueue(database=pooled_database)
    assert [queue.wait(0.01), queue.wait(0.01)] == [False, False]
    queue.close()
    with psycopg.connect(pooled_url, autocommit=True) as other:
        assert other.execute("SELECT pg_listening_channels()").fetchall() == []


def test_options_that_a_pooler_refuses_are_explained(pooled_url: str) -> None:
    with (
        closing(Database.from_url(f"{pooled_url}&options=-c%20lock_timeout%3D5s")) as database,
        pytest.raises(DatabaseError, match="set it for the user instead: ALTER ROLE"),
    ):
        database.check_server()


@pytest.fixture
def resetting_url(database_url: str, tmp_path: Path) -> Iterator[str]:
    """Return the database behind a pooler that clears a session after each transaction."""
    with run_pgbouncer(database_url, tmp_path, resets=True) as url:
        yield url


def test_queue_behind_a_pooler_listens_through_a_direct_connection(
    database_url: str, resetting_url: str
) -> None:
    with (
        closing(Database.from_url(resetting_url)) as pooled,
        closing(Database.from_url(database_url)) as direct,
        closing(PostgresRunQueue(database=pooled, listen_database=direct)) as queue,
    ):
        assert queue.check_notifications()
        assert not queue.wait(0.01)


@pytest.mark.parametrize("listen", ["pooler", "nobody", "another database"])
def test_queue_polls_if_it_cannot_listen(
    resetting_url: str, empty_database_url: str, listen: str
) -> None:
    urls = {
        "pooler": resetting_url,
        "nobody": "postgresql://postgres@127.0.0.1:1/postgres",
        "another database": empty_database_url,
    }
    with (
        closing(Database.from_url(resetting_url)) as pooled,
        closing(Database.from_url(urls[listen])) as other,
        closing(PostgresRunQueue(database=pooled, listen_database=other)) as queue,
    ):
        started_s = time.monotonic()
        assert not queue.check_notifications(0.3)
        assert time.monotonic() - started_s >= 0.25
