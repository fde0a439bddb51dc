"""Servers that a test may stop and start, and a proxy that cuts connections to the run's own."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from filelock import FileLock
from support.idempotency_rows import store_in
from support.postgres_proxy import PostgresProxy, proxy_to
from support.postgres_server import OwnServer, handle_of, own_server

from tileferry.adapters.postgres import (
    Database,
    PostgresAuditLog,
    PostgresIdempotencyStore,
    start_embedded,
    upgrade,
)


@pytest.fixture(scope="session")
def initialised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a server that does not run, with a migrated database in it."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    made = root / "initialised"
    with FileLock(root / "initialised.lock"):
        if not made.exists():
            url = start_embedded(made)
            with psycopg.connect(url, autocommit=True) as connection:
                # Only a machine that loses its power can tell the difference: it costs no test.
                connection.execute("ALTER SYSTEM SET fsync = off")
            database = Database.at(url)
            upgrade(database)
            database.close()
            handle_of(made).cleanup()
    return made


@pytest.fixture
def data_dir(initialised: Path, servers_root: Path) -> Iterator[Path]:
    """Return a copy of the test's own; its files keep their owner, whom the server runs as."""
    copy = servers_root / f"own-{uuid4().hex[:12]}"
    # Most of its log is zeros.
    command: list[str | Path] = ["/bin/cp", "-a", "--sparse=always", initialised, copy]
    subprocess.run(command, check=True)  # noqa: S603  # as written here
    yield copy
    shutil.rmtree(copy, ignore_errors=True)


@pytest.fixture
def server(data_dir: Path) -> Iterator[OwnServer]:
    with own_server(data_dir) as running:
        yield running


@pytest.fixture
def own(server: OwnServer) -> Iterator[Database]:
    """The database of that server."""
    yield from _used(Database.at(server.url))


@pytest.fixture
def proxy(database_url: str) -> Iterator[PostgresProxy]:
    with proxy_to(database_url) as running:
        yield running


@pytest.fixture
def cut_off(proxy: PostgresProxy, database_url: str) -> Iterator[Database]:
    """The test's own database, seen through the proxy."""
    yield from _used(Database.at(proxy.address_of(database_url)))


@pytest.fixture
def store(database: Database) -> PostgresIdempotencyStore:
    return store_in(database)


@pytest.fixture
def log(database: Database) -> PostgresAuditLog:
    return PostgresAuditLog(database=database)


@pytest.fixture
def far(cut_off: Database) -> PostgresIdempotencyStore:
    """The store behind the proxy, with a connection that is made already."""
    behind = store_in(cut_off)
    behind.find("k")
    return behind


def _used(database: Database) -> Iterator[Database]:
    yield database
    assert database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # of a QueuePool
    database.close()
