"""A server that goes away between two calls or during one: the right result, or a clear error."""

import os
import signal
import threading
import time
from contextlib import suppress
from datetime import timedelta

import pytest
from attrs import evolve
from sqlalchemy import Connection, text
from support.control_plane import create_postgres_control_plane
from support.download_operator import wait_until
from support.postgres_server import PostgresServerProcess
from support.tile_rows import TILE, create_metadata_store, create_tile, get_tile, store_tiles

from tileferry.adapters.postgres import Database, PostgresWorkStore
from tileferry.domain.errors import DatabaseError


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_next_call_after_a_restart_succeeds(
    server: PostgresServerProcess, own: Database, mode: str
) -> None:
    store = create_metadata_store(own)
    store_tiles(store, create_tile())
    held = [own.engine.connect() for _ in range(3)]
    for connection in held:
        connection.close()  # the pool has several connections now, and all will be dead
    assert store.increment_upload_attempts(TILE) == 1
    server.restart(mode)
    assert [store.increment_upload_attempts(TILE) for _ in range(4)] == [2, 3, 4, 5]
    assert get_tile(store).upload_attempts == 5


def test_calls_raise_while_the_server_is_down_and_nothing_is_lost(
    server: PostgresServerProcess, own: Database
) -> None:
    store, tile = create_metadata_store(own), create_tile()
    store.insert_metadata(tile)
    server.stop()
    try:
        with pytest.raises(DatabaseError, match=r"cannot connect: .*; start the server"):
            store.flush()
        with pytest.raises(DatabaseError, match=r"cannot connect: .*; start the server"):
            store.get_metadata(TILE)
    finally:
        server.start()
    store.flush()
    assert get_tile(store).blob == tile.blob


def test_server_crash_rolls_back_the_open_transaction(
    server: PostgresServerProcess, own: Database
) -> None:
    store = create_metadata_store(own)
    store_tiles(store, create_tile())
    count = text("UPDATE tiles SET upload_attempts = upload_attempts + 1")

    def transaction(after: int) -> None:
        with own.transaction() as connection:
            connection.execute(count)
            server.restart("immediate")
            for _ in range(after):
                connection.execute(count)

    for after in (1, 0):
        with pytest.raises(DatabaseError, match="the connection was lost"):
            transaction(after)
        assert get_tile(store).upload_attempts == 0


@pytest.mark.parametrize("start", ["server", "crash"])
def test_no_run_is_rescued_until_workers_could_renew_after_a_start(
    server: PostgresServerProcess, own: Database, start: str
) -> None:
    control_plane = create_postgres_control_plane(own)
    control_plane.submit_run()
    control_plane.claim_run()
    control_plane.pass_time(61)
    lapse = timedelta(seconds=1.5)
    if start == "server":
        server.restart()
    else:  # the first process of the server lives on
        time.sleep(lapse.total_seconds())
        with suppress(DatabaseError), own.read_connection() as connection:
            os.kill(_get_backend_pid(connection), signal.SIGKILL)
        wait_until(lambda: _is_reachable(own), "the recovery")
    store = PostgresWorkStore(database=own, start_grace=lapse)
    control = evolve(control_plane.control, store=store)
    assert control.sweep() == 0
    time.sleep(lapse.total_seconds())
    assert control.sweep() == 1


def _get_backend_pid(connection: Connection) -> int:
    return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


def _is_reachable(database: Database) -> bool:
    try:
        database.now()
    except DatabaseError:
        return False
    return True


@pytest.mark.parametrize("function", ["pg_cancel_backend", "pg_terminate_backend"])
def test_interrupted_statement_changes_nothing(database: Database, function: str) -> None:
    store = create_metadata_store(database)
    store_tiles(store, create_tile())
    other = Database(database.connections)
    # It waits for a row that this transaction holds; meanwhile somebody ends it.
    with other.transaction() as holding:
        holding.execute(text("SELECT 1 FROM tiles FOR UPDATE"))
        raised: list[BaseException] = []

        def count() -> None:
            try:
                store.increment_upload_attempts(TILE)
            except DatabaseError as error:
                raised.append(error)

        waiting = threading.Thread(target=count)
        waiting.start()
        blocked = text(
            f"SELECT {function}(pid) FROM pg_stat_activity"  # noqa: S608  # a parameter of ours
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        with database.read_connection() as connection:
            while not connection.execute(blocked).scalars().all():
                pass
        waiting.join(timeout=10)
    assert "run again" in str(raised[0])
    assert get_tile(store).upload_attempts == 0
    assert store.increment_upload_attempts(TILE) == 1


def test_keyboard_interrupt_changes_nothing_and_keeps_the_pool_usable(
    database: Database,
) -> None:
    store = create_metadata_store(database)
    store_tiles(store, create_tile())
    with database.transaction() as holding:
        holding.execute(text("SELECT 1 FROM tiles FOR UPDATE"))
        main = threading.main_thread().ident
        assert main is not None

        def interrupt_who_waits() -> None:
            blocked = text(
                "SELECT 1 FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            with database.read_connection() as connection:
                while not connection.execute(blocked).scalars().all():
                    pass
            signal.pthread_kill(main, signal.SIGINT)

        alarm = threading.Thread(target=interrupt_who_waits)
        alarm.start()
        with pytest.raises(KeyboardInterrupt):
            store.increment_upload_attempts(TILE)
        alarm.join()
    assert get_tile(store).upload_attempts == 0
    assert [store.increment_upload_attempts(TILE) for _ in range(3)] == [1, 2, 3]
    assert database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # of a QueuePool
