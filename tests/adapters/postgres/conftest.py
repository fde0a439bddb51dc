"""Databases of servers that a test may stop, and a proxy that cuts connections to the run's own."""

from collections.abc import Iterator

import pytest
from support.postgres_idempotency import create_idempotency_store
from support.postgres_server import PostgresServerProcess
from support.proxies import PostgresProxy, create_postgres_proxy

from tileferry.adapters.postgres import (
    Database,
    PostgresAuditLog,
    PostgresIdempotencyStore,
)


@pytest.fixture
def own(server: PostgresServerProcess) -> Iterator[Database]:
    """The database of that server."""
    yield from _check_and_close(Database.from_url(server.url))


@pytest.fixture
def proxy(database_url: str) -> Iterator[PostgresProxy]:
    with create_postgres_proxy(database_url) as running:
        yield running


@pytest.fixture
def proxied_database(proxy: PostgresProxy, database_url: str) -> Iterator[Database]:
    """The test's own database, seen through the proxy."""
    yield from _check_and_close(Database.from_url(proxy.get_proxied_url(database_url)))


@pytest.fixture
def store(database: Database) -> PostgresIdempotencyStore:
    return create_idempotency_store(database)


@pytest.fixture
def log(database: Database) -> PostgresAuditLog:
    return PostgresAuditLog(database=database)


@pytest.fixture
def proxied_store(proxied_database: Database) -> PostgresIdempotencyStore:
    """The store behind the proxy, with a connection that is made already."""
    proxied_database.engine.connect().close()
    return create_idempotency_store(proxied_database)


def _check_and_close(database: Database) -> Iterator[Database]:
    yield database
    assert database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # of a QueuePool
    database.close()
