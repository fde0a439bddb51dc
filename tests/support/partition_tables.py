"""Partitions in every state in Postgres, for tests of what the database itself refuses."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from attrs import define
from psycopg.errors import RestrictViolation
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from support.control_plane import (
    FAILED,
    OVERRIDE,
    PASSED,
    ControlPlane,
    create_judged_partition,
    create_postgres_control_plane,
    enqueue_partitions,
    get_partition,
    give_up_partition,
    partition_key,
)
from tileferry.adapters.postgres import Database
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.runs import RunId

PENDING, SUCCESS, REPROCESSING, REJECTED, ABANDONED, NEW = (
    partition_key(day) for day in range(1, 7)
)


@define
class PartitionTables:
    """Partitions in every state, and a connection on which nothing is kept."""

    desk: ControlPlane
    connection: Connection
    spare: RunId
    """A run that no partition has."""

    def execute_and_roll_back(self, statement: str, **values: object) -> None:
        """Run a statement, and take it back."""
        with self.connection.begin_nested() as savepoint:
            self.connection.execute(text(statement), values)
            savepoint.rollback()

    def assert_refused(
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

    def get_last_run_id(self, wanted: PartitionKey) -> RunId:
        """Return the newest run of a partition."""
        return get_partition(self.desk, wanted).last_run_id


@contextmanager
def open_partition_tables(database: Database) -> Iterator[PartitionTables]:
    """Make them."""
    desk = create_postgres_control_plane(database)
    create_judged_partition(desk, PASSED, wanted=SUCCESS)
    create_judged_partition(desk, PASSED, wanted=REPROCESSING)
    create_judged_partition(desk, FAILED, wanted=REJECTED)
    enqueue_partitions(desk, ABANDONED)
    give_up_partition(desk, ABANDONED)
    enqueue_partitions(desk, PENDING)
    desk.partitions.retry([REPROCESSING], OVERRIDE)
    spare = desk.submit_run().run_id
    with database.engine.connect() as connection:
        yield PartitionTables(desk, connection, spare)
