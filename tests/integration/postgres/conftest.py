"""Directories of servers that a test may stop and start: copies of one that is made once."""

import os
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock
from support.postgres_server import handle_of

from tileferry.adapters.postgres import Database, start_embedded, upgrade


@pytest.fixture(scope="session")
def initialised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a server that does not run, with a migrated database in it."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    made = root / "initialised"
    with FileLock(root / "initialised.lock"):
        if not made.exists():
            database = Database.at(start_embedded(made))
            upgrade(database)
            database.close()
            handle_of(made).cleanup()
    return made


@pytest.fixture
def data_dir(initialised: Path, tmp_path: Path) -> Path:
    """Return a copy of the test's own; its files keep their owner, whom the server runs as."""
    copy = tmp_path / "pg"
    subprocess.run(["/bin/cp", "-a", initialised, copy], check=True)  # noqa: S603  # as written here
    return copy
