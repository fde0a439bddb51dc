"""Nothing waits for ever: a lock and a statement have their time, and say so when it is over."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from attrs import evolve
from sqlalchemy import text
from sqlalchemy.engine import make_url
from support.audit_events import create_idempotency_used, create_retry_attempted
from support.postgres_idempotency import claim_key, create_idempotency_store
from support.proxies import Cut, PostgresProxy

from tileferry.adapters.postgres import Database, PostgresAuditLog, downgrade, upgrade
from tileferry.adapters.postgres.session import SessionLimits
from tileferry.domain.errors import DatabaseError
from tileferry.domain.idempotency import InProgress

LIMITS = text(
    "SELECT current_setting('lock_timeout'), current_setting('statement_timeout'),"
    " current_setting('synchronous_commit')"
)


def read_limits(database: Database) -> tuple[str, ...]:
    """Return what holds on a connection of its own, which is then closed."""
    with database.transaction() as connection:
        found = tuple(connection.execute(LIMITS).one())
    with database.read_connection() as connection:
        assert tuple(connection.execute(LIMITS).one())[:2] == found[:2]
    database.close()
    return found


@pytest.fixture
def impatient_database(database_url: str) -> Iterator[Database]:
    """The test's own database, for somebody with little patience."""
    database = Database.from_url(
        database_url, limits=SessionLimits(lock_timeout_s=0.2, statement_timeout_s=0.8)
    )
    yield database
    database.close()


@contextmanager
def hold_audit_head(database: Database) -> Iterator[None]:
    """Be a writer that is stuck: it has the head of the audit log, and does not go on."""
    with database.engine.connect() as connection:
        connection.execute(text("SELECT 1 FROM audit_head FOR UPDATE"))
        yield
        connection.rollback()


def test_idle_transactions_time_out(
    database: Database,
) -> None:
    with database.read_connection() as connection:
        limit = connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one()
    assert limit == "1min"


def test_every_connection_has_timeouts(database: Database, impatient_database: Database) -> None:
    assert read_limits(database) == ("30s", "2min", "on")
    assert read_limits(impatient_database) == ("200ms", "800ms", "on")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("-c lock_timeout=5s", ("5s", "2min", "on")),
        ("-c lock_timeout=0 -c statement_timeout=0", ("0", "0", "on")),
        ("-c statement_timeout=7s -c synchronous_commit=off", ("30s", "7s", "on")),
    ],
)
def test_url_options_override_the_default_timeouts(
    database_url: str, options: str, expected: tuple[str, ...]
) -> None:
    url = make_url(database_url).update_query_dict({"options": options})
    assert read_limits(Database.from_url(url.render_as_string(hide_password=False))) == expected


def test_database_settings_override_the_default_timeouts(
    database: Database, database_url: str
) -> None:
    name = make_url(database_url).database
    with database.read_connection() as connection:
        connection.execute(text(f"ALTER DATABASE {name} SET lock_timeout = '3s'"))
    assert read_limits(Database.from_url(database_url)) == ("3s", "2min", "on")


def test_stuck_writer_causes_a_lock_timeout_instead_of_blocking(
    database: Database, impatient_database: Database
) -> None:
    store, log = (
        create_idempotency_store(impatient_database),
        PostgresAuditLog(database=impatient_database),
    )
    held = claim_key(store)
    calls: list[Callable[[], object]] = [
        lambda: log.emit([create_retry_attempted(1)]),
        lambda: store.complete(held, b"5", keep=None, event=create_idempotency_used(1, "k")),
    ]
    with hold_audit_head(database):
        for call in calls:
            started_s = time.monotonic()
            with pytest.raises(
                DatabaseError, match="due to lock timeout; end the session that holds the lock"
            ):
                call()
            assert time.monotonic() - started_s < 10
        found = store.find("k")
    assert found is not None
    assert isinstance(found.state, InProgress)
    for call in calls:  # and both go on as if nothing had been
        call()
    assert log.read_head().sequence == 2


def test_slow_statement_times_out(impatient_database: Database) -> None:
    def sleep() -> None:
        with impatient_database.read_connection() as connection:
            connection.execute(text("SELECT pg_sleep(60)"))

    with pytest.raises(DatabaseError, match="due to statement timeout; run again") as ended:
        sleep()
    assert "?options=-c%20statement_timeout%3D5min" in str(ended.value)


def test_invariant_10_lock_timeout_leaves_a_lost_batch_unresolved(
    database: Database, impatient_database: Database, proxy: PostgresProxy, database_url: str
) -> None:
    """The first try may still be waiting on the server: no lock is no proof that it failed."""
    far = evolve(
        Database.from_url(
            proxy.get_proxied_url(database_url), limits=SessionLimits(lock_timeout_s=0.2)
        ),
        resolve_s=0.6,
    )
    log = PostgresAuditLog(database=far)
    log.read_head()
    proxy.cut_at(b"audit_append", Cut.DELIVERED)
    with (
        hold_audit_head(database),
        pytest.raises(DatabaseError, match="it is unknown whether it took effect"),
    ):
        log.emit([create_retry_attempted(1)])
    far.close()
    assert PostgresAuditLog(database=impatient_database).read_head().sequence == 0


def test_migrations_ignore_the_timeouts(impatient_database: Database, database: Database) -> None:
    downgrade(impatient_database, "0003")
    with database.engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(7411223)"))
        upgrading = threading.Thread(target=upgrade, args=(impatient_database,))
        upgrading.start()
        time.sleep(1.2)  # longer than either limit
        assert upgrading.is_alive()
        connection.rollback()
        upgrading.join(timeout=60)
    assert PostgresAuditLog(database=impatient_database).read_head().sequence == 0
