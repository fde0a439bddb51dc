"""Several at once at the books in one Postgres, each with connections of its own."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

from sqlalchemy import text

from support.control_plane import ControlPlane, create_postgres_control_plane
from tileferry.adapters.postgres import Database
from tileferry.adapters.postgres.session import SessionLimits
from tileferry.domain.errors import TileManagerError

CONTROL_PLANES = 8
T = TypeVar("T")


@contextmanager
def open_control_planes(database_url: str) -> Iterator[Sequence[ControlPlane]]:
    """Sit several at desks, as so many processes would; their run ids do not meet."""
    databases = [Database.from_url(database_url) for _ in range(CONTROL_PLANES)]
    desks = [create_postgres_control_plane(database) for database in databases]
    for number, desk in enumerate(desks, 1):
        desk._numbers = count(number * 1_000)
    yield desks
    for database in databases:
        database.close()


def run_concurrently(
    crowd: Sequence[ControlPlane], act: Callable[[ControlPlane], T]
) -> tuple[list[T], Counter[type]]:
    """Have all do something at the same time; return what came of it, and which errors."""
    ready = threading.Barrier(len(crowd))
    refusals: Counter[type] = Counter()

    def one(desk: ControlPlane) -> list[T]:
        ready.wait()
        try:
            return [act(desk)]
        except TileManagerError as refusal:
            refusals[type(refusal)] += 1
            return []

    with ThreadPoolExecutor(len(crowd)) as pool:
        return [outcome for outcomes in pool.map(one, crowd) for outcome in outcomes], refusals


@contextmanager
def hold_lock(database_url: str, statement: str) -> Iterator[Database]:
    """Be a session that has locked something; give a database where others do not wait long."""
    database = Database.from_url(database_url, limits=SessionLimits(lock_timeout_s=0.2))
    try:
        with database.transaction() as connection:
            connection.execute(text(statement))
            yield database
    finally:
        database.close()


def wait_for_blocked_session(database: Database) -> None:
    """Wait until somebody waits for a lock."""
    asked = text("SELECT count(*) FROM pg_locks WHERE NOT granted")

    def is_waiting() -> bool:
        with database.read_connection() as connection:
            return bool(connection.execute(asked).scalar_one())

    wait_until(is_waiting)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Look again and again, for some seconds."""
    pause = threading.Event()
    for _ in range(1_000):
        if is_so():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come to that")
