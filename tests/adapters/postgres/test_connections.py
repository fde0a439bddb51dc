"""Reading through one connection of the driver, until the pool is needed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from support.pgbouncer import needs_pgbouncer, run_pgbouncer

from tileferry.adapters.postgres import Database
from tileferry.domain.errors import DatabaseError
from tileferry.domain.server_settings import ServerSettings  # noqa: TC001  # of a local variable

SESSION = "SELECT pg_backend_pid() AS pid, current_setting(%(name)s) AS value"
LIMIT = {"name": "lock_timeout"}


@pytest.fixture
def reading(database: Database, database_url: str) -> Iterator[Database]:  # noqa: ARG001  # it has a schema
    with closing(Database.from_url(database_url)) as opened:
        yield opened


def end_session(database_url: str, pid: int) -> None:
    with psycopg.connect(database_url, autocommit=True) as operator:
        operator.execute("SELECT pg_terminate_backend(%s)", [pid])


def test_reading_needs_no_pool_until_the_first_transaction(reading: Database) -> None:
    first, again = reading.fetch_rows(SESSION, LIMIT), reading.fetch_rows(SESSION, LIMIT)
    assert first == again
    assert first[0].value == "30s"
    assert reading.read_settings().fsync is not None
    uses_pool = [reading.connections.has_pool]
    with reading.transaction() as connection:
        connection.execute(text("SELECT 1"))
    uses_pool.append(reading.connections.has_pool)
    assert uses_pool == [False, True]
    assert reading.fetch_rows(SESSION, LIMIT)[0].pid != first[0].pid
    assert reading.read_settings().fsync is not None
    with reading.read_connection() as connection:
        ended = "SELECT count(*) FROM pg_stat_activity WHERE pid = :pid"
        while connection.execute(text(ended), {"pid": first[0].pid}).scalar_one():
            pass  # the connection without the pool is closed


def test_connection_that_the_server_closed_is_replaced(
    reading: Database, database_url: str
) -> None:
    ((pid, _),) = reading.fetch_rows(SESSION, LIMIT)
    end_session(database_url, pid)
    with suppress(DatabaseError):  # the end of the session may not have arrived
        reading.fetch_rows(SESSION, LIMIT)
    assert reading.fetch_rows(SESSION, LIMIT)[0].pid != pid


def test_connection_lost_while_reading_is_reported_as_lost(reading: Database) -> None:
    with pytest.raises(DatabaseError, match="the connection was lost: terminating") as caught:
        reading.fetch_rows("SELECT pg_terminate_backend(pg_backend_pid())")
    assert caught.value.is_unreachable
    assert reading.fetch_rows("SELECT 1")[0][0] == 1


def test_failed_query_is_reported_with_a_remedy(reading: Database) -> None:
    with pytest.raises(DatabaseError, match='"nothing" does not exist; upgrade'):
        reading.fetch_rows("SELECT * FROM nothing")
    assert reading.fetch_rows("SELECT 1")[0][0] == 1


def test_closed_database_refuses_to_read_and_to_write(reading: Database) -> None:
    reading.fetch_rows("SELECT 1")
    reading.close()
    for use in (lambda: reading.fetch_rows("SELECT 1"), lambda: reading.engine):
        with pytest.raises(DatabaseError, match="this connection was closed"):
            use()


def test_server_settings_are_reported_once(database_url: str) -> None:
    told: list[ServerSettings] = []
    with closing(Database.from_url(database_url, on_first_connection=told.append)) as opened:
        opened.fetch_rows("SELECT 1")
        assert opened.engine.connect().closed is False
    assert len(told) == 1


def test_url_with_settings_of_the_driver_is_opened_with_the_pool(database_url: str) -> None:
    with closing(Database.from_url(f"{database_url}&prepare_threshold=0")) as opened:
        assert opened.connections.has_pool
        assert opened.fetch_rows(SESSION, LIMIT)[0].value == "30s"


@needs_pgbouncer
def test_limits_apply_behind_a_pooler(database_url: str, tmp_path: Path) -> None:
    with (
        run_pgbouncer(database_url, tmp_path, sessions=1) as url,
        closing(Database.from_url(url)) as opened,
        psycopg.connect(url, autocommit=True, prepare_threshold=None) as other,
    ):
        for _ in range(8):  # more often than a statement is executed unprepared
            assert opened.fetch_rows(SESSION, LIMIT)[0].value == "30s"
            assert other.execute("SHOW lock_timeout").fetchone() == ("0",)
        assert not opened.connections.has_pool


def test_threads_read_through_connections_of_their_own(database_url: str) -> None:
    database = Database.from_url(database_url)
    query = "SELECT pg_backend_pid() AS pid, %(number)s::int AS number"

    def read(number: int) -> tuple[int, int]:
        ((pid, found),) = database.fetch_in_thread(query, {"number": number})
        ((again, _),) = database.fetch_in_thread(query, {"number": number})
        assert pid == again
        return pid, found

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        pids = {thread.submit(read, 7).result() for thread in (one, other)}
    assert len(pids) == 2
    assert {number for _, number in pids} == {7}
    database.close()
    with pytest.raises(DatabaseError, match="closed"):
        database.fetch_in_thread(query, {"number": 1})


def test_thread_reads_through_the_pool_if_the_driver_cannot_read_the_url(database_url: str) -> None:
    database = Database.from_url(f"{database_url}&prepare_threshold=0")
    ((number,),) = database.fetch_in_thread("SELECT %(number)s::int", {"number": 3})
    assert (number, database.connections.is_plain) == (3, False)
    database.close()
