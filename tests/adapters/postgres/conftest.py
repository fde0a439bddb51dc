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
from support.postgres_idempotency import create_idempotency_store
from support.postgres_server import PostgresServerProcess, run_postgres_server
from support.proxies import PostgresProxy, create_postgres_proxy

from tileferry.adapters.postgres import (
    Database,
    EmbeddedServer,
    PostgresAuditLog,
    PostgresIdempotencyStore,
    upgrade,
)


@pytest.fixture(scope="session")
def initialized_data_dir(tmp_path_factory: pytest.TempPathFactory, servers_root: Path) -> Path:
    """Return the directory of a server that does not run, with a migrated database in it."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    made, draft = root / "initialised", servers_root / "initialising"
    with FileLock(root / "initialised.lock"):
        if not made.exists():
            server = EmbeddedServer(draft)
            url = server.join()
            with psycopg.connect(url, autocommit=True) as connection:
                # Only a machine that loses its power can tell the difference: it costs no test.
                connection.execute("ALTER SYSTEM SET fsync = off")
            database = Database.from_url(url)
            upgrade(database)
            database.close()
            assert server.leave()
            subprocess.run(["/bin/mv", draft, made], check=True)  # noqa: S603  # as written here
    return made


@pytest.fixture
def data_dir(initialized_data_dir: Path, servers_root: Path) -> Iterator[Path]:
    """Return a copy of the test's own; its files keep their owner, whom the server runs as."""
    copy = servers_root / f"own-{uuid4().hex[:12]}"
    # Most of its log is zeros.
    command: list[str | Path] = ["/bin/cp", "-a", "--sparse=always", initialized_data_dir, copy]
    subprocess.run(command, check=True)  # noqa: S603  # as written here
    yield copy
    shutil.rmtree(copy, ignore_errors=True)


@pytest.fixture
def server(data_dir: Path) -> Iterator[PostgresServerProcess]:
    with run_postgres_server(data_dir) as running:
        yield running


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
    behind = create_idempotency_store(proxied_database)
    behind.find("k")
    return behind


def _check_and_close(database: Database) -> Iterator[Database]:
    yield database
    assert database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # of a QueuePool
    database.close()
