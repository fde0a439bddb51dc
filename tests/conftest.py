"""A real Postgres for the tests that need one: one server a run, one database a test."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from tileferry.adapters.postgres import Database, start_embedded, upgrade

TEMPLATE = "tileferry_template"


def _run_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all workers of this run share."""
    root = tmp_path_factory.getbasetemp()
    return root.parent if "PYTEST_XDIST_WORKER" in os.environ else root


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Start the run's server, or join it, and make the migrated template once."""
    root = _run_root(tmp_path_factory)
    with FileLock(root / "postgres.lock"):
        url = start_embedded(root / "postgres", keep=False)
        if not (root / "template.made").exists():
            _execute(url, f"CREATE DATABASE {TEMPLATE}")
            template = Database.at(_at(url, TEMPLATE))
            upgrade(template)
            template.close()
            (root / "template.made").touch()
    return url


@pytest.fixture
def database_url(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Make a database of the test's own, with the current schema."""
    yield from _database(postgres_url, request, f"TEMPLATE {TEMPLATE}")


@pytest.fixture
def empty_database_url(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Make a database without any schema."""
    yield from _database(postgres_url, request, "")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """Connect to the test's own database."""
    connected = Database.at(database_url)
    yield connected
    connected.close()


def _database(url: str, request: pytest.FixtureRequest, options: str) -> Iterator[str]:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    name = f"test_{worker}_{abs(hash(request.node.nodeid))}"
    _execute(url, f"CREATE DATABASE {name} {options}")
    yield _at(url, name)
    _execute(url, f"DROP DATABASE {name} WITH (FORCE)")


def _at(url: str, name: str) -> str:
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def _execute(url: str, statement: str) -> None:
    engine = create_engine(
        make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()
