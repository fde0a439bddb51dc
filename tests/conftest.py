"""A real Postgres and a real NATS for the tests that need one.

Of Postgres there is one server a run and one database a test; of NATS one server a worker, where
each test has names of its own.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest
from filelock import FileLock
from sqlalchemy.engine import make_url

from tileferry.adapters.nats import NatsConnection
from tileferry.adapters.postgres import Database, EmbeddedServer, upgrade

pytest.register_assert_rewrite("support")  # what several tests share says as much when it fails

from support.nats_server import NatsServer, open_connection, run_nats_server  # noqa: E402  # not before
from support.postgres_server import (  # noqa: E402  # as above
    PostgresServerProcess,
    copy_server_data,
    get_server_folder,
    run_postgres_server,
)

if TYPE_CHECKING:
    from support.provider import RunningProvider

TEMPLATE = "tileferry_template"
os.environ["XDG_CONFIG_HOME"] = os.devnull  # tests read no configuration of whoever runs them
_USER_FOLDERS = tempfile.TemporaryDirectory(prefix="tileferry-user-")
for _name in ("XDG_DATA_HOME", "XDG_STATE_HOME"):  # what no test names is written here, and noticed
    os.environ[_name] = str(Path(_USER_FOLDERS.name, _name))


@pytest.hookimpl(trylast=True)  # after pytest-randomly has shuffled them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slow modules first: started last, one would keep the other workers waiting."""

    def order(item: pytest.Item) -> int:
        if item.path.name == "test_demo.py":
            return 0
        is_slow = item.path.parent.name == "e2e" or item.path.name == "test_pages.py"
        return 1 if is_slow else 2

    items.sort(key=order)


@pytest.fixture(autouse=True)
def _user_folders_stay_empty() -> Iterator[None]:
    """Fail a test that writes where the state of whoever runs it would be."""
    yield
    found = [str(path) for path in Path(_USER_FOLDERS.name).rglob("*")]
    if found:
        _USER_FOLDERS.cleanup()
        Path(_USER_FOLDERS.name).mkdir()
    assert not found, "the test writes into the user's own folders; set XDG_DATA_HOME"


def _run_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all workers of this run share."""
    root = tmp_path_factory.getbasetemp()
    return root.parent if "PYTEST_XDIST_WORKER" in os.environ else root


@pytest.fixture(scope="session")
def servers_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder for the files of servers."""
    return get_server_folder(_run_root(tmp_path_factory))


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory, servers_root: Path) -> Iterator[str]:
    """Start the run's server, or join it, and make the migrated template once."""
    root = _run_root(tmp_path_factory)
    with run_postgres_server(servers_root / "postgres") as server:
        url = server.url
        with FileLock(root / "postgres.lock"):
            _ensure_template(url)
        yield url


def _ensure_template(url: str) -> None:
    with psycopg.connect(url) as connection:
        if connection.execute(
            "SELECT 1 FROM pg_database WHERE datname = %s", [TEMPLATE]
        ).fetchone():
            return
    draft = f"{TEMPLATE}_draft"
    _execute(url, f"CREATE DATABASE {draft}")
    template = Database.from_url(_with_database(url, draft))
    upgrade(template)
    template.close()
    _execute(url, f"ALTER DATABASE {draft} RENAME TO {TEMPLATE}")


@pytest.fixture
def database_url(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Make a database of the test's own, with the current schema."""
    yield from _create_database(postgres_url, request, f"TEMPLATE {TEMPLATE} STRATEGY file_copy")


@pytest.fixture(scope="module")
def module_database_url(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Make a database that the tests of one module share."""
    yield from _create_database(postgres_url, request, f"TEMPLATE {TEMPLATE} STRATEGY file_copy")


@pytest.fixture(scope="session")
def shared_database_url(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Make a database that tests of one worker share."""
    yield from _create_database(postgres_url, request, f"TEMPLATE {TEMPLATE} STRATEGY file_copy")


@pytest.fixture
def empty_database_url(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Make a database without any schema."""
    yield from _create_database(postgres_url, request, "")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """Connect to the test's own database."""
    connected = Database.from_url(database_url)
    yield connected
    connected.close()


@pytest.fixture(scope="session")
def initialized_data_dir(tmp_path_factory: pytest.TempPathFactory, servers_root: Path) -> Path:
    """Return the directory of a server that does not run, with a migrated database in it."""
    root = _run_root(tmp_path_factory)
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
    """Return a copy of the test's own, of a server that may be started, stopped and killed."""
    copy = copy_server_data(initialized_data_dir, servers_root / f"own-{uuid4().hex[:12]}")
    yield copy
    shutil.rmtree(copy, ignore_errors=True)


@pytest.fixture
def server(data_dir: Path) -> Iterator[PostgresServerProcess]:
    """Run a server that the test may stop and start."""
    with run_postgres_server(data_dir) as running:
        yield running


@pytest.fixture(scope="session")
def provider_server() -> Iterator["RunningProvider"]:
    """Run the reference provider that tests share; it is not to be stopped."""
    from support.provider import serve_provider  # noqa: PLC0415  # it brings a web server

    with serve_provider() as server:
        yield server


@pytest.fixture
def reference_provider(provider_server: "RunningProvider") -> "RunningProvider":
    """Return that provider, with no fault and an empty record."""
    provider_server.reset()
    return provider_server


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """Run a NATS server that tests share; it is not to be stopped."""
    with run_nats_server(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def nats_name(request: pytest.FixtureRequest) -> str:
    """Return a name for a bucket or a stream of the test's own."""
    return f"test_{sha256(request.node.nodeid.encode()).hexdigest()[:16]}"


@pytest.fixture
def connect(nats_server: NatsServer) -> Iterator[Callable[[], NatsConnection]]:
    """Connect to the shared server, as often as a test likes."""
    with ExitStack() as connections:
        yield lambda: connections.enter_context(open_connection(nats_server.url))


def _create_database(url: str, request: pytest.FixtureRequest, options: str) -> Iterator[str]:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    name = f"test_{worker}_{abs(hash((request.node.nodeid, request.fixturename)))}"
    _execute(url, f"CREATE DATABASE {name} {options}")
    yield _with_database(url, name)
    _execute(url, f"DROP DATABASE {name} WITH (FORCE)")


def _with_database(url: str, name: str) -> str:
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def _execute(url: str, statement: str) -> None:
    """Run one statement by the driver alone: an engine asks the server much before it begins."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
