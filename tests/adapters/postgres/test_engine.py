"""The database URL: what of it is ours, the driver's and the server's."""

from contextlib import closing

import psycopg
import pytest
from sqlalchemy import text
from support.audit_events import create_retry_attempted
from support.pgbouncer import weaken_commits
from support.proxies import PostgresProxy

from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.domain.errors import DatabaseError, InvalidValueError

COUNT_PREPARED = text("SELECT count(*) FROM pg_prepared_statements")


@pytest.mark.parametrize(("given", "prepared"), [("0", False), ("1", True), (None, True)])
def test_prepare_threshold_comes_from_the_url(
    database_url: str, given: str | None, *, prepared: bool
) -> None:
    url = database_url if given is None else f"{database_url}&prepare_threshold={given}"
    with closing(Database.from_url(url)) as database:
        counts = []
        for _ in range(8):
            with database.read_connection() as connection:
                counts.append(connection.execute(COUNT_PREPARED).scalar_one())
        assert any(counts) is prepared


@pytest.mark.parametrize("given", ["none", "-1"])
def test_invalid_prepare_threshold_is_rejected(database_url: str, given: str) -> None:
    with pytest.raises(InvalidValueError, match="use 0 to turn prepared statements off"):
        Database.from_url(f"{database_url}&prepare_threshold={given}")


def test_durable_transaction_costs_no_round_trip(database_url: str, proxy: PostgresProxy) -> None:
    weaken_commits(database_url)
    with closing(Database.from_url(proxy.get_proxied_url(database_url))) as database:
        log = PostgresAuditLog(database=database)
        database.engine.connect().close()  # the pool has a connection now
        before = proxy.round_trips
        log.emit([create_retry_attempted(1)])
        assert proxy.round_trips - before == 1
        before = proxy.round_trips
        with database.transaction() as connection:
            connection.execute(text("INSERT INTO cache_reservations VALUES ('r1', 1, now())"))
        assert proxy.round_trips - before == 3  # BEGIN, the statement, COMMIT


def test_read_only_database_refuses_changes_until_it_is_writable(
    database: Database, database_url: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as operator:
        change = f"ALTER DATABASE {operator.info.dbname} SET default_transaction_read_only = "
        operator.execute(f"{change} on")
        with pytest.raises(DatabaseError, match="is read-only"), database.transaction():
            pass
        assert database.read_settings().is_read_only  # reading works
        operator.execute(f"{change} off")
    # The connection of the pool would still be read-only.
    with pytest.raises(DatabaseError, match="is read-only"), database.transaction():
        pass
    with database.transaction() as connection:
        connection.execute(text("CREATE TABLE made (number integer)"))
