"""Partitions in every state in Postgres, for tests of what the database itself refuses."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from attrs import define
from psycopg.errors import RestrictViolation
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from support.partition_desk import ANN, FAILED, PASSED, enqueued, given_up, known, made
from support.work_desk import Desk, key, postgres_desk
from tileferry.adapters.postgres import Database
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.runs import RunId

PENDING, SUCCESS, REPROCESSING, REJECTED, ABANDONED, NEW = (key(day) for day in range(1, 7))


@define
class Books:
    """Partitions in every state, and a connection on which nothing is kept."""

    desk: Desk
    connection: Connection
    spare: RunId
    """A run that no partition has."""

    def try_(self, statement: str, **values: object) -> None:
        """Run a statement, and take it back."""
        with self.connection.begin_nested() as savepoint:
            self.connection.execute(text(statement), values)
            savepoint.rollback()

    def refuses(
        self,
        statement: str,
        problem: str,
        kind: type[Exception] = RestrictViolation,
        **values: object,
    ) -> None:
        """See the database refuse a statement, and say why."""
        with pytest.raises(DBAPIError) as caught, self.connection.begin_nested():
            self.connection.execute(text(statement), values)
        assert isinstance(caught.value.orig, kind), caught.value
        assert problem in str(caught.value.orig)

    def run_of(self, wanted: PartitionKey) -> RunId:
        """Return the newest run of a partition."""
        return known(self.desk, wanted).last_run_id


@contextmanager
def books_in(database: Database) -> Iterator[Books]:
    """Make them."""
    desk = postgres_desk(database)
    made(desk, PASSED, wanted=SUCCESS)
    made(desk, PASSED, wanted=REPROCESSING)
    made(desk, FAILED, wanted=REJECTED)
    enqueued(desk, ABANDONED)
    given_up(desk, ABANDONED)
    enqueued(desk, PENDING)
    desk.partitions.retry([REPROCESSING], ANN)
    spare = desk.submitted().run_id
    with database.engine.connect() as connection:
        yield Books(desk, connection, spare)
