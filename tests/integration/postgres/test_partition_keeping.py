"""What was sealed and judged is kept by the database, and speaks for its own partition alone."""

from collections.abc import Iterator

import pytest
from psycopg.errors import ForeignKeyViolation, UniqueViolation
from sqlalchemy import text
from support.partition_books import (
    NEW,
    PENDING,
    REJECTED,
    SUCCESS,
    Books,
    books_in,
)

from tileferry.adapters.postgres import Database


@pytest.fixture
def books(database: Database) -> Iterator[Books]:
    with books_in(database) as made:
        yield made


def test_invariant_16_a_run_that_sealed_nothing_cannot_speak_for_a_partition(books: Books) -> None:
    books.refuses(
        "UPDATE partitions SET status = 'success', transition = 'accept', changed_by = 'validator',"
        " active_run_id = NULL, current_run_id = last_run_id,"
        " attempt_count = attempt_count + 1 WHERE logical_date = :day",
        "partitions_current_run",
        ForeignKeyViolation,
        day=PENDING.logical_date,
    )


def test_invariant_16_not_even_past_the_rules_does_anothers_run_speak(books: Books) -> None:
    books.connection.execute(text("ALTER TABLE partitions DISABLE TRIGGER USER"))
    for run_id in (books.run_of(REJECTED), books.spare, "nowhere"):
        books.refuses(
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


def test_invariants_9_16_what_was_sealed_and_judged_stays_as_it_is(books: Books) -> None:
    for statement in KEPT:
        books.refuses(statement, "is refused: what is there is kept as it is")


def test_invariant_16_a_run_that_left_raw_data_stays(books: Books) -> None:
    for wanted in (SUCCESS, REJECTED, PENDING):
        books.refuses(
            "DELETE FROM runs WHERE run_id = :run",
            "violates foreign key constraint",
            ForeignKeyViolation,
            run=books.run_of(wanted),
        )


def test_invariants_9_16_each_run_has_one_raw_partition_and_one_verdict(books: Books) -> None:
    books.refuses(
        "INSERT INTO raw_partitions SELECT run_id, partition_id, 9, 9, manifest_sha256, now()"
        " FROM raw_partitions LIMIT 1",
        "raw_partitions_pkey",
        UniqueViolation,
    )
    books.refuses(
        "INSERT INTO partition_attempts SELECT partition_id, attempt + 1, run_id, 'passed', NULL,"
        " now() FROM partition_attempts LIMIT 1",
        "partition_attempts_once",
        UniqueViolation,
    )
    books.refuses(
        "INSERT INTO partition_attempts SELECT partition_id, attempt, :spare, 'passed', NULL,"
        " now() FROM partition_attempts LIMIT 1",
        "partition_attempts_pkey",
        UniqueViolation,
        spare=books.spare,
    )
    for run, partition in (("'nowhere'", "1"), (f"'{books.spare}'", "-1")):
        books.refuses(
            f"INSERT INTO raw_partitions VALUES ({run}, {partition}, 1, 1,"  # noqa: S608  # as above
            " decode(repeat('ab', 32), 'hex'), now())",
            "violates foreign key constraint",
            ForeignKeyViolation,
        )


def test_two_partitions_never_share_a_key_or_a_run(books: Books) -> None:
    insert = (
        "INSERT INTO partitions (source, customer_id, query_name, logical_date, status,"
        " active_run_id, last_run_id, created_at, updated_at, transition, changed_by) VALUES"
        " ('osm', 'acme', 'city', :day, 'pending', :run, :run, now(), now(), 'enqueue',"
        " 'operator')"
    )
    books.try_(insert, day=NEW.logical_date, run=books.spare)
    books.refuses(
        insert, "partitions_key", UniqueViolation, day=PENDING.logical_date, run=books.spare
    )
    books.refuses(
        insert,
        "partitions_by_last_run",
        UniqueViolation,
        day=NEW.logical_date,
        run=books.run_of(PENDING),
    )
