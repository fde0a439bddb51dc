"""Waiting for runs: somebody says so, and where nobody can, the wait just ends."""

import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import text
from support.control_plane import LEASE, W1, ControlPlane, create_postgres_control_plane

from tileferry.adapters.postgres import Database, PostgresRunQueue
from tileferry.domain.errors import InvalidValueError, StorageError

LONG_S = 30.0
SOON_S = 10.0


@pytest.fixture
def queue(database: Database) -> Iterator[PostgresRunQueue]:
    made = PostgresRunQueue(database=database)
    yield made
    made.close()


@pytest.fixture
def control_plane(database_url: str) -> Iterator[ControlPlane]:
    """Somebody else, with connections of their own."""
    theirs = Database.from_url(database_url)
    yield create_postgres_control_plane(theirs)
    theirs.close()


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
