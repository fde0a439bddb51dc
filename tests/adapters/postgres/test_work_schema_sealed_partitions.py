"""What was sealed and judged is kept by the database, and speaks for its own partition alone."""

from collections.abc import Iterator

import pytest
from psycopg.errors import ForeignKeyViolation, UniqueViolation
from sqlalchemy import text
from support.partition_tables import (
    NEW,
    PENDING,
    REJECTED,
    SUCCESS,
    PartitionTables,
    open_partition_tables,
)

from tileferry.adapters.postgres import Database


@pytest.fixture
def partition_tables(database: Database) -> Iterator[PartitionTables]:
    with open_partition_tables(database) as made:
        yield made


def test_invariant_16_run_without_raw_data_cannot_become_current(
    partition_tables: PartitionTables,
) -> None:
    partition_tables.assert_refused(
        "UPDATE partitions SET status = 'success', transition = 'accept', changed_by = 'validator',"
        " active_run_id = NULL, current_run_id = last_run_id,"
        " attempt_count = attempt_count + 1 WHERE logical_date = :day",
        "partitions_current_run",
        ForeignKeyViolation,
        day=PENDING.logical_date,
    )


def test_invariant_16_run_of_another_partition_cannot_become_current(
    partition_tables: PartitionTables,
) -> None:
    partition_tables.connection.execute(text("ALTER TABLE partitions DISABLE TRIGGER USER"))
    for run_id in (partition_tables.get_last_run_id(REJECTED), partition_tables.spare, "nowhere"):
        partition_tables.assert_refused(
            "UPDATE partitions SET current_run_id = :run WHERE logical_date = :day",
            "partitions_current_run",
            ForeignKeyViolation,
            run=run_id,
            day=SUCCESS.logical_date,
        )


KEPT = [
    "DELETE FROM partitions",
    "TRUNCATE partitions CASCADE",
    "TRUNCATE runs CASCADE",
    "DELETE FROM raw_partitions",
    "UPDATE raw_partitions SET tiles = tiles + 1",
    "UPDATE raw_partitions SET run_id = 'x'",
    "UPDATE raw_partitions SET manifest_sha256 = decode(repeat('cd', 32), 'hex')",
    "TRUNCATE raw_partitions CASCADE",
    "DELETE FROM partition_attempts",
    "UPDATE partition_attempts SET outcome = 'passed', explanation = NULL",
    "UPDATE partition_attempts SET attempt = attempt + 1",
    "TRUNCATE partition_attempts",
    "INSERT INTO partition_moves VALUES ('requeue', 'failed', 'pending', 'consumer')",
    "UPDATE partition_moves SET actor = 'consumer'",
    "DELETE FROM partition_moves",
    "TRUNCATE partition_moves",
]


def test_invariants_9_16_sealed_data_and_verdicts_are_immutable(
    partition_tables: PartitionTables,
) -> None:
    for statement in KEPT:
        partition_tables.assert_refused(statement, "is refused: what is there is kept as it is")


def test_invariant_16_run_with_raw_data_cannot_be_deleted(
    partition_tables: PartitionTables,
) -> None:
    for wanted in (SUCCESS, REJECTED, PENDING):
        partition_tables.assert_refused(
            "DELETE FROM runs WHERE run_id = :run",
            "violates foreign key constraint",
            ForeignKeyViolation,
            run=partition_tables.get_last_run_id(wanted),
        )


def test_invariants_9_16_run_has_one_raw_partition_and_one_verdict(
    partition_tables: PartitionTables,
) -> None:
    partition_tables.assert_refused(
        "INSERT INTO raw_partitions SELECT run_id, partition_id, 9, 9, manifest_sha256, now()"
        " FROM raw_partitions LIMIT 1",
        "raw_partitions_pkey",
        UniqueViolation,
    )
    partition_tables.assert_refused(
        "INSERT INTO partition_attempts SELECT partition_id, attempt + 1, run_id, 'passed', NULL,"
        " now() FROM partition_attempts LIMIT 1",
        "partition_attempts_once",
        UniqueViolation,
    )
    partition_tables.assert_refused(
        "INSERT INTO partition_attempts SELECT partition_id, attempt, :spare, 'passed', NULL,"
        " now() FROM partition_attempts LIMIT 1",
        "partition_attempts_pkey",
        UniqueViolation,
        spare=partition_tables.spare,
    )
    for run, partition in (("'nowhere'", "1"), (f"'{partition_tables.spare}'", "-1")):
        partition_tables.assert_refused(
            f"INSERT INTO raw_partitions VALUES ({run}, {partition}, 1, 1,"  # noqa: S608  # as above
            " decode(repeat('ab', 32), 'hex'), now())",
            "violates foreign key constraint",
            ForeignKeyViolation,
        )


def test_two_partitions_never_share_a_key_or_a_run(partition_tables: PartitionTables) -> None:
    insert = (
        "INSERT INTO partitions (source, customer_id, query_name, logical_date, status,"
        " active_run_id, last_run_id, created_at, updated_at, transition, changed_by) VALUES"
        " ('osm', 'acme', 'city', :day, 'pending', :run, :run, now(), now(), 'enqueue',"
        " 'operator')"
    )
    partition_tables.execute_and_roll_back(insert, day=NEW.logical_date, run=partition_tables.spare)
    partition_tables.assert_refused(
        insert,
        "partitions_key",
        UniqueViolation,
        day=PENDING.logical_date,
        run=partition_tables.spare,
    )
    partition_tables.assert_refused(
        insert,
        "partitions_by_last_run",
        UniqueViolation,
        day=NEW.logical_date,
        run=partition_tables.get_last_run_id(PENDING),
    )
