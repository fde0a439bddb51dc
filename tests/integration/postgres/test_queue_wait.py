"""Waiting for runs: somebody says so, and where nobody can, the wait just ends."""

import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import text
from support.work_desk import LEASE, W1, Desk, postgres_desk

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
def desk(database_url: str) -> Iterator[Desk]:
    """Somebody else, with connections of their own."""
    theirs = Database.at(database_url)
    yield postgres_desk(theirs)
    theirs.close()


class Waiting:
    """Waits in a thread."""

    def __init__(self, queue: PostgresRunQueue) -> None:
        self.queue, self.told = queue, False
        self.thread = threading.Thread(target=self._wait)
        queue.wait(0.01)  # from here on it listens
        self.thread.start()

    def _wait(self) -> None:
        self.told = self.queue.wait(LONG_S)

    def ended(self) -> bool:
        self.thread.join(SOON_S)
        assert not self.thread.is_alive()
        return self.told


def test_a_new_run_wakes_who_waits(queue: PostgresRunQueue, desk: Desk) -> None:
    waiting = Waiting(queue)
    desk.submitted()
    assert waiting.ended()


def test_a_run_that_is_made_due_at_once_wakes_too(queue: PostgresRunQueue, desk: Desk) -> None:
    run = desk.submitted()
    error = StorageError(action="write", path="x", problem="full", remedy="wait")
    desk.control.process_error(desk.claimed(), error)
    waiting = Waiting(queue)
    desk.control.retry_now(run.run_id, reason="there is room again", by="ann")
    assert waiting.ended()


def test_what_changes_nothing_for_the_queue_wakes_nobody(
    queue: PostgresRunQueue, desk: Desk
) -> None:
    desk.submitted()
    held = desk.claimed()
    queue.wait(0.01)
    desk.control.process_error(held, InvalidValueError(field="x", value=1, problem="is wrong"))
    assert not queue.wait(0.2)


def test_what_was_said_before_is_not_missed(queue: PostgresRunQueue, desk: Desk) -> None:
    queue.wait(0.01)
    desk.submitted()
    assert queue.wait(LONG_S)


def test_a_wait_lasts_as_long_as_it_was_asked_for(queue: PostgresRunQueue) -> None:
    started_s = time.monotonic()
    assert not queue.wait(0.3)
    assert 0.25 <= time.monotonic() - started_s < SOON_S


def test_who_cannot_listen_still_waits_and_finds_runs_by_looking(
    queue: PostgresRunQueue, desk: Desk, database: Database
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
    desk.submitted()
    assert queue.claim(W1, limit=1, lease=LEASE)
    queue._not_before_s = 0.0
    queue.wait(0.01)
    desk.submitted()
    assert queue.wait(LONG_S)
