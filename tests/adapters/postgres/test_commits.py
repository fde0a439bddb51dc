"""A commit whose answer was lost on a server that crashed: the id of a transaction proves nothing.

A transaction whose log was not on disk is lost, and its id is given to another one.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import text
from support.control_plane import W1, create_postgres_control_plane, download_work
from support.postgres_server import PostgresServerProcess
from support.proxies import Cut, PostgresProxy, create_postgres_proxy
from support.tile_rows import TILE, create_metadata_store, create_tile, store_tiles

from tileferry.adapters.postgres import Database, PostgresBlobIndex
from tileferry.adapters.postgres.commits import KEEP_DAYS
from tileferry.domain.errors import DatabaseError

NEXT_ID = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
OWN_ID = "SELECT pg_current_xact_id()::text::bigint"


@pytest.fixture
def own_proxy(server: PostgresServerProcess) -> Iterator[PostgresProxy]:
    with create_postgres_proxy(server.url) as running:
        yield running


def read_number(url: str, query: str) -> int:
    with psycopg.connect(url) as connection:
        ((found,),) = connection.execute(query.encode()).fetchall()
    return int(found)


def count_attempt(database: Database) -> object:
    return create_metadata_store(database).increment_upload_attempts(TILE)


def claim_run(database: Database) -> object:
    desk = create_postgres_control_plane(database)
    return desk.queue.claim(W1, limit=1, lease=timedelta(minutes=1))


def forget_tile(database: Database) -> object:
    return PostgresBlobIndex(database).forget([TILE])


@pytest.mark.parametrize("change", [count_attempt, claim_run, forget_tile])
def test_invariant_10_reused_id_of_a_lost_transaction_is_not_trusted(
    own: Database,
    own_proxy: PostgresProxy,
    server: PostgresServerProcess,
    change: Callable[[Database], object],
) -> None:
    with psycopg.connect(server.url, autocommit=True) as operator:
        operator.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")  # commits alone write the log
    server.restart()
    store_tiles(create_metadata_store(own), create_tile())
    create_postgres_control_plane(own).submit_run(download_work("F1"))
    effects = (
        "SELECT (SELECT sum(upload_attempts) FROM tiles) + (SELECT sum(lease_epoch) FROM runs)"
    )
    with (
        closing(Database.from_url(own_proxy.get_proxied_url(server.url))) as proxied,
        ThreadPoolExecutor(1) as thread,
    ):
        proxied.engine.connect().close()  # it stays in the pool
        lost_id = read_number(server.url, NEXT_ID)
        own_proxy.cut_at_commit(Cut.UNNOTICED)
        own_proxy.refuse()
        changing = thread.submit(change, proxied)
        while not own_proxy.cuts:
            assert not changing.done(), changing.result()
        server.restart("immediate")
        assert read_number(server.url, OWN_ID) <= lost_id, "the transaction was not lost"
        while read_number(server.url, OWN_ID) <= lost_id:
            pass
        own_proxy.refuse(refusing=False)
        with pytest.raises(DatabaseError, match="the connection was lost"):
            changing.result()
        assert read_number(server.url, effects) == 0  # null without the tile
        assert change(proxied)


def test_marks_of_sessions_that_ended_long_ago_are_forgotten(
    database: Database, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        for session, days in ((1, KEEP_DAYS + 1), (2, KEEP_DAYS - 1)):
            connection.execute(
                "INSERT INTO session_commits VALUES (%s, 7, now() - make_interval(days => %s))",
                [session, days],
            )
    for _ in range(2):
        store_tiles(create_metadata_store(database), create_tile())
    with database.transaction() as connection:
        connection.execute(text("SELECT 1"))  # changes nothing, so it leaves no mark
    with psycopg.connect(database_url) as connection:
        found = connection.execute("SELECT session, number FROM session_commits ORDER BY 1")
        (kept, mine) = found.fetchall()
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute("INSERT INTO session_commits VALUES (3, 0, now())")
    assert kept == (2, 7)
    assert mine[1] == 2
