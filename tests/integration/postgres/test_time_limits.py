"""Nothing waits for ever: a lock and a statement have their time, and say so when it is over."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from attrs import evolve
from sqlalchemy import text
from sqlalchemy.engine import make_url
from support.audit_events import attempted, used
from support.idempotency_rows import claimed, store_in
from support.postgres_proxy import Cut, PostgresProxy

from tileferry.adapters.postgres import Database, PostgresAuditLog, downgrade, upgrade
from tileferry.domain.errors import DatabaseError
from tileferry.domain.idempotency import InProgress

LIMITS = text(
    "SELECT current_setting('lock_timeout'), current_setting('statement_timeout'),"
    " current_setting('synchronous_commit')"
)


def limits_of(database: Database) -> tuple[str, ...]:
    """Return what holds on a connection of its own, which is then closed."""
    with database.reading() as connection:
        found = tuple(connection.execute(LIMITS).one())
    database.close()
    return found


@pytest.fixture
def hasty(database_url: str) -> Iterator[Database]:
    """The test's own database, for somebody with little patience."""
    database = Database.at(database_url, lock_timeout_s=0.2, statement_timeout_s=0.8)
    yield database
    database.close()


@contextmanager
def head_held(database: Database) -> Iterator[None]:
    """Be a writer that is stuck: it has the head of the audit log, and does not go on."""
    with database.engine.connect() as connection:
        connection.execute(text("SELECT 1 FROM audit_head FOR UPDATE"))
        yield
        connection.rollback()


def test_no_transaction_keeps_its_locks_while_its_process_does_nothing(
    database: Database,
) -> None:
    with database.reading() as connection:
        limit = connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one()
    assert limit == "1min"


def test_every_connection_has_its_limits(database: Database, hasty: Database) -> None:
    assert limits_of(database) == ("30s", "2min", "on")
    assert limits_of(hasty) == ("200ms", "800ms", "on")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("-c lock_timeout=5s", ("5s", "2min", "on")),
        ("-c lock_timeout=0 -c statement_timeout=0", ("0", "0", "on")),
        ("-c statement_timeout=7s -c synchronous_commit=off", ("30s", "7s", "on")),
    ],
)
def test_the_options_of_the_address_win(
    database_url: str, options: str, expected: tuple[str, ...]
) -> None:
    url = make_url(database_url).update_query_dict({"options": options})
    assert limits_of(Database.at(url.render_as_string(hide_password=False))) == expected


def test_what_is_set_for_the_database_wins(database: Database, database_url: str) -> None:
    name = make_url(database_url).database
    with database.reading() as connection:
        connection.execute(text(f"ALTER DATABASE {name} SET lock_timeout = '3s'"))
    assert limits_of(Database.at(database_url)) == ("3s", "2min", "on")


def test_one_stuck_writer_does_not_stop_audit_and_recording_for_ever(
    database: Database, hasty: Database
) -> None:
    store, log = store_in(hasty), PostgresAuditLog(database=hasty)
    held = claimed(store)
    calls: list[Callable[[], object]] = [
        lambda: log.emit([attempted(1)]),
        lambda: store.complete(held, b"5", keep=None, event=used(1, "k")),
    ]
    with head_held(database):
        for call in calls:
            started_s = time.monotonic()
            with pytest.raises(DatabaseError, match="due to lock timeout; another session holds"):
                call()
            assert time.monotonic() - started_s < 10
        found = store.find("k")
    assert found is not None
    assert isinstance(found.state, InProgress)
    for call in calls:  # and both go on as if nothing had been
        call()
    assert log.head().sequence == 2


def test_a_statement_that_takes_too_long_is_ended_and_says_so(hasty: Database) -> None:
    def sleep() -> None:
        with hasty.reading() as connection:
            connection.execute(text("SELECT pg_sleep(60)"))

    with pytest.raises(DatabaseError, match="due to statement timeout; run again") as ended:
        sleep()
    assert "?options=-c%20statement_timeout%3D5min" in str(ended.value)


def test_invariant_10_a_lock_that_stays_taken_leaves_open_whether_a_lost_group_counted(
    database: Database, hasty: Database, proxy: PostgresProxy, database_url: str
) -> None:
    """The first try may still be waiting on the server: no lock is no proof that it failed."""
    far = evolve(Database.at(proxy.address_of(database_url), lock_timeout_s=0.2), resolve_s=0.6)
    log = PostgresAuditLog(database=far)
    log.head()
    proxy.cut_at(b"audit_append", Cut.DELIVERED)
    with (
        head_held(database),
        pytest.raises(DatabaseError, match="does not say whether it counted"),
    ):
        log.emit([attempted(1)])
    far.close()
    assert PostgresAuditLog(database=hasty).head().sequence == 0


def test_migrations_take_the_time_they_need(hasty: Database, database: Database) -> None:
    downgrade(hasty, "0003")
    with database.engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(7411223)"))
        upgrading = threading.Thread(target=upgrade, args=(hasty,))
        upgrading.start()
        time.sleep(1.2)  # longer than either limit
        assert upgrading.is_alive()
        connection.rollback()
        upgrading.join(timeout=60)
    assert PostgresAuditLog(database=hasty).head().sequence == 0
