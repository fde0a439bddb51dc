"""A server that goes away between two calls or during one: the right result, or a clear error."""

import signal
import threading

import pytest
from sqlalchemy import text
from support.postgres_server import OwnServer
from support.tile_rows import TILE, known, new_tile, store_in, store_tiles

from tileferry.adapters.postgres import Database
from tileferry.domain.errors import DatabaseError


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_after_a_restart_the_next_call_works(server: OwnServer, own: Database, mode: str) -> None:
    store = store_in(own)
    store_tiles(store, new_tile())
    held = [own.engine.connect() for _ in range(3)]
    for connection in held:
        connection.close()  # the pool has several connections now, and all will be dead
    assert store.increment_upload_attempts(TILE) == 1
    server.restart(mode)
    assert [store.increment_upload_attempts(TILE) for _ in range(4)] == [2, 3, 4, 5]
    assert known(store).upload_attempts == 5


def test_while_it_is_down_each_call_says_so_and_nothing_is_lost(
    server: OwnServer, own: Database
) -> None:
    store, tile = store_in(own), new_tile()
    store.insert_metadata(tile)
    server.stop()
    try:
        with pytest.raises(DatabaseError, match=r"cannot be reached: .*; start the server"):
            store.flush()
        with pytest.raises(DatabaseError, match=r"cannot be reached: .*; start the server"):
            store.get_metadata(TILE)
    finally:
        server.start()
    store.flush()
    assert known(store).blob == tile.blob


def test_a_server_that_dies_inside_a_transaction_takes_it_along(
    server: OwnServer, own: Database
) -> None:
    store = store_in(own)
    store_tiles(store, new_tile())
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
        assert known(store).upload_attempts == 0


@pytest.mark.parametrize("function", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_statement_that_is_interrupted_changes_nothing(database: Database, function: str) -> None:
    store = store_in(database)
    store_tiles(store, new_tile())
    other = Database(database.engine)
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
        with database.reading() as connection:
            while not connection.execute(blocked).scalars().all():
                pass
        waiting.join(timeout=10)
    assert "run again" in str(raised[0])
    assert known(store).upload_attempts == 0
    assert store.increment_upload_attempts(TILE) == 1


def test_an_interrupt_from_the_keyboard_changes_nothing_and_leaves_the_pool_sound(
    database: Database,
) -> None:
    store = store_in(database)
    store_tiles(store, new_tile())
    with database.transaction() as holding:
        holding.execute(text("SELECT 1 FROM tiles FOR UPDATE"))
        main = threading.main_thread().ident
        assert main is not None

        def interrupt_who_waits() -> None:
            blocked = text(
                "SELECT 1 FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            with database.reading() as connection:
                while not connection.execute(blocked).scalars().all():
                    pass
            signal.pthread_kill(main, signal.SIGINT)

        alarm = threading.Thread(target=interrupt_who_waits)
        alarm.start()
        with pytest.raises(KeyboardInterrupt):
            store.increment_upload_attempts(TILE)
        alarm.join()
    assert known(store).upload_attempts == 0
    assert [store.increment_upload_attempts(TILE) for _ in range(3)] == [1, 2, 3]
    assert database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # of a QueuePool
