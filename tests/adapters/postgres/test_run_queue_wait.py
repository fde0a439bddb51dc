"""Waiting for runs: somebody says so, and where nobody can, the wait just ends."""

import random
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest
from sqlalchemy import text
from support.control_plane import LEASE, W1, ControlPlane, create_postgres_control_plane

from tileferry.adapters.postgres import Database, PostgresRunQueue, wake_ups
from tileferry.adapters.postgres.wake_ups import CHANNEL
from tileferry.domain.errors import InvalidValueError, StorageError

if TYPE_CHECKING:
    import psycopg

    from tileferry.domain.runs import RunId

LONG_S = 30.0
SOON_S = 10.0


@pytest.fixture
def queue(database: Database) -> Iterator[PostgresRunQueue]:
    made = PostgresRunQueue(database=database)
    yield made
    made.close()


@pytest.fixture
def their_database(database_url: str) -> Iterator[Database]:
    """The connections of somebody else."""
    theirs = Database.from_url(database_url)
    yield theirs
    theirs.close()


@pytest.fixture
def control_plane(their_database: Database) -> ControlPlane:
    return create_postgres_control_plane(their_database)


class QueueWaiter:
    """Waits in a thread."""

    def __init__(self, queue: PostgresRunQueue) -> None:
        self.queue, self.told = queue, False
        self.thread = threading.Thread(target=self._wait)
        queue.wait(0.01)  # from here on it listens
        self.thread.start()

    def _wait(self) -> None:
        self.told = self.queue.wait(LONG_S)

    def join(self) -> bool:
        self.thread.join(SOON_S)
        assert not self.thread.is_alive()
        return self.told


def test_new_run_wakes_a_waiting_queue(
    queue: PostgresRunQueue, control_plane: ControlPlane
) -> None:
    waiting = QueueWaiter(queue)
    control_plane.submit_run()
    assert waiting.join()


def test_run_retried_now_wakes_a_waiting_queue(
    queue: PostgresRunQueue, control_plane: ControlPlane
) -> None:
    run = control_plane.submit_run()
    error = StorageError(action="write", path="x", problem="full", remedy="wait")
    control_plane.control.process_error(control_plane.claim_run(), error)
    waiting = QueueWaiter(queue)
    control_plane.control.retry_now(run.run_id, reason="there is room again", by="ann")
    assert waiting.join()


def test_irrelevant_change_does_not_wake_the_queue(
    queue: PostgresRunQueue, control_plane: ControlPlane
) -> None:
    control_plane.submit_run()
    held = control_plane.claim_run()
    queue.wait(0.01)
    control_plane.control.process_error(
        held, InvalidValueError(field="x", value=1, problem="is wrong")
    )
    assert not queue.wait(0.2)


def test_notification_sent_before_the_wait_is_not_missed(
    queue: PostgresRunQueue, control_plane: ControlPlane
) -> None:
    queue.wait(0.01)
    control_plane.submit_run()
    assert queue.wait(LONG_S)


def test_wait_lasts_for_the_requested_time(queue: PostgresRunQueue) -> None:
    started_s = time.monotonic()
    assert not queue.wait(0.3)
    assert 0.25 <= time.monotonic() - started_s < SOON_S


def test_queue_falls_back_to_polling_when_listen_is_lost(
    queue: PostgresRunQueue, control_plane: ControlPlane, database: Database
) -> None:
    queue.wait(0.01)
    with database.transaction() as connection:
        ended = connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
            )
        ).all()
    assert len(ended) == 1
    for _ in range(2):  # while the line is down, and before it is tried again
        started_s = time.monotonic()
        assert not queue.wait(0.2)
        assert time.monotonic() - started_s >= 0.15
    control_plane.submit_run()
    assert queue.claim(W1, limit=1, lease=LEASE)
    queue._not_before_s = 0.0
    queue.wait(0.01)
    control_plane.submit_run()
    assert queue.wait(LONG_S)


class Notifications:
    """Counts what a listener hears, until it is stopped."""

    def __init__(self, database: Database) -> None:
        raw = database.engine.raw_connection()
        self.connection = cast("psycopg.Connection[Any]", raw.driver_connection)
        raw.detach()
        self.connection.execute(f"LISTEN {CHANNEL}")

    def count(self, *, seconds: float = 0.2, stop_after: int | None = None) -> int:
        return sum(1 for _ in self.connection.notifies(timeout=seconds, stop_after=stop_after))

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def notifications(database: Database) -> Iterator[Notifications]:
    made = Notifications(database)
    yield made
    made.close()


def test_notifications_are_coalesced(
    notifications: Notifications,
    control_plane: ControlPlane,
    their_database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wake_ups, "WINDOW_S", 60.0)
    for _ in range(20):
        control_plane.submit_run()
    assert notifications.count() == 1  # the other one is owed
    their_database.close()
    assert notifications.count() == 1


def test_owed_notification_is_sent_when_the_window_ends(
    notifications: Notifications, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake_ups, "WINDOW_S", 0.5)
    for _ in range(3):
        control_plane.submit_run()
    assert notifications.count(seconds=SOON_S, stop_after=2) == 2


@pytest.mark.parametrize("seed", range(5))
def test_waiting_worker_is_woken_for_the_last_run(
    queue: PostgresRunQueue, control_plane: ControlPlane, seed: int
) -> None:
    """Runs come at random moments of a window; no wait for the next one times out."""
    chance = random.Random(seed)  # noqa: S311  # the same moments each time
    count = 15
    claimed: list[RunId] = []

    def work() -> None:
        while len(claimed) < count:
            found = queue.claim(W1, limit=1 + chance.randrange(3), lease=LEASE)
            claimed.extend(run.run_id for run in found)
            if not found and not queue.wait(SOON_S):
                return

    queue.wait(0.01)  # from here on it listens
    worker = threading.Thread(target=work)
    worker.start()
    for _ in range(count):
        control_plane.submit_run()
        time.sleep(chance.choice([0.0, 0.0, 0.002, 0.012]))
    worker.join(2 * SOON_S)
    assert len(set(claimed)) == count
