"""Partitions move as their table declares; everything else the database refuses, whoever asks."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from psycopg.errors import RestrictViolation
from sqlalchemy import text
from support.control_plane import get_partition
from support.partition_tables import (
    ABANDONED,
    NEW,
    PENDING,
    REJECTED,
    REPROCESSING,
    SUCCESS,
    PartitionTables,
    open_partition_tables,
)

from tileferry.adapters.postgres import Database
from tileferry.adapters.postgres.partition_rows import (
    INSERT_PARTITION,
    UPDATE_PARTITION,
    key_values,
    to_partition_row,
)
from tileferry.domain.partitions import (
    PARTITION_TRANSITIONS,
    Partition,
    PartitionStatus,
    TerminalityPolicy,
    abandon,
    accept,
    enqueue,
    mark_terminal,
    reject,
    reprocess,
    requeue,
)
from tileferry.domain.runs import RunId
from tileferry.domain.state_machine import Actor, Change

DECLARED = {
    (rule.name, before or "absent", after.value, actor.value)
    for rule in PARTITION_TRANSITIONS
    for before, after in rule.moves
    for actor in rule.actors
}
STATUSES = ["absent", *PartitionStatus]
MOVES = list(
    product([rule.name for rule in PARTITION_TRANSITIONS], STATUSES, PartitionStatus, Actor)
)
LATER = timedelta(days=1)
Take = Callable[[Partition, RunId, Actor], Change[Partition]]


@pytest.fixture
def partition_tables(database: Database) -> Iterator[PartitionTables]:
    with open_partition_tables(database) as made:
        yield made


TAKE: dict[str, Take] = {
    "accept": lambda it, _, actor: accept(it, it.last_run_id, actor=actor, now=_next_day(it)),
    "reject": lambda it, _, actor: reject(
        it, it.last_run_id, actor=actor, now=_next_day(it), error="bad"
    ),
    "requeue": lambda it, run, actor: requeue(
        it, run, actor=actor, now=_next_day(it), terminality=TerminalityPolicy(), reason="why"
    ),
    "reprocess": lambda it, run, actor: reprocess(
        it, run, actor=actor, now=_next_day(it), reason="why"
    ),
    "abandon": lambda it, _, actor: abandon(
        it, it.last_run_id, actor=actor, now=_next_day(it), error="gone"
    ),
    "mark_terminal": lambda it, _, actor: mark_terminal(
        it, actor=actor, now=_next_day(it), reason="why"
    ),
}
OF_STATUS = {
    ("reject", "failed"): ABANDONED,
    ("reprocess", "success"): SUCCESS,
    ("absent", "absent"): NEW,
}


def _next_day(partition: Partition) -> Any:
    return partition.updated_at + LATER


def _pick_partition(transition: str, status: str) -> Any:
    """The partition in a status to which only the table can object."""
    by_status = {"pending": PENDING, "success": REPROCESSING, "failed": REJECTED, "absent": NEW}
    return OF_STATUS.get((transition, status), by_status[status])


def test_declared_moves_match_the_domain(partition_tables: PartitionTables) -> None:
    rows = partition_tables.connection.execute(text("SELECT * FROM partition_moves"))
    assert {tuple(row) for row in rows} == DECLARED


def test_invariant_15_every_declared_move_is_accepted(partition_tables: PartitionTables) -> None:
    for transition, before, after, actor in sorted(DECLARED):
        if before == "absent":
            change = enqueue(
                NEW,
                partition_tables.spare,
                actor=Actor(actor),
                now=partition_tables.desk.reader.now(),
            )
            statement = INSERT_PARTITION
        else:
            partition = get_partition(partition_tables.desk, _pick_partition(transition, before))
            change = TAKE[transition](partition, partition_tables.spare, Actor(actor))
            statement = UPDATE_PARTITION
        assert (change.transition, change.after.status) == (transition, after)
        with partition_tables.connection.begin_nested() as savepoint:
            _seal(partition_tables, change.after)
            partition_tables.connection.exec_driver_sql(statement, to_partition_row(change))
            savepoint.rollback()


def _seal(books: PartitionTables, partition: Partition) -> None:
    """Note a raw partition of the newest run, as far as there is a partition."""
    books.connection.execute(
        text(
            "INSERT INTO raw_partitions SELECT :run_id, id, 1, 1, decode(repeat('ab', 32), 'hex'),"
            " now() FROM partitions WHERE logical_date = :logical_date ON CONFLICT DO NOTHING"
        ),
        {"run_id": partition.last_run_id, "logical_date": partition.key.logical_date},
    )


def test_invariant_15_every_undeclared_move_is_rejected(partition_tables: PartitionTables) -> None:
    refused = [move for move in MOVES if move not in DECLARED]
    assert (len(MOVES), len(refused)) == (7 * 4 * 3 * 7, 588 - len(DECLARED))
    for transition, before, after, actor in refused:
        _assert_move_refused(partition_tables, transition, before, after, actor)


def test_invariant_15_unknown_moves_actors_and_statuses_are_rejected(
    partition_tables: PartitionTables,
) -> None:
    statuses = [*PartitionStatus, "terminal"]
    for before, after in product(STATUSES, statuses):
        _assert_move_refused(partition_tables, "steal", before, after, "operator")
        _assert_move_refused(partition_tables, "accept", before, after, "nobody")
    for transition, before, actor in product(TAKE, PartitionStatus, Actor):
        _assert_move_refused(partition_tables, transition, before, "terminal", actor)


def _assert_move_refused(
    books: PartitionTables, transition: str, before: str, after: str, actor: str
) -> None:
    problem = (
        f"{transition} by {actor} from {before} to {after} is refused: no such move is declared"
    )
    values = {"status": after, "transition": transition, "actor": actor, "run": books.spare}
    sample = key_values(_pick_partition(transition, before))
    if before == "absent":
        statement = (
            "INSERT INTO partitions (source, customer_id, query_name, logical_date, status,"
            " active_run_id, last_run_id, created_at, updated_at, transition, changed_by) VALUES"
            " (:source, :customer_id, :query_name, :logical_date, :status, :run, :run, now(),"
            " now(), :transition, :actor)"
        )
    else:
        statement = (
            "UPDATE partitions SET status = :status, transition = :transition,"
            " changed_by = :actor WHERE logical_date = :logical_date"
        )
    books.assert_refused(statement, problem, RestrictViolation, **values, **sample)


# What a declared move may not do beside it

REJECT = "transition = 'reject', changed_by = 'validator', error_message = 'bad'"
ACCEPT = "status = 'success', transition = 'accept', changed_by = 'validator'"
REQUEUE = "status = 'pending', transition = 'requeue', changed_by = 'operator'"
REPROCESS = "transition = 'reprocess', changed_by = 'operator'"
ABANDON = "transition = 'abandon', changed_by = 'scheduler', abandoned = true, error_message = 'x'"
MARK = "transition = 'mark_terminal', changed_by = 'operator', terminal_marker = 'hopeless'"
FAIL = f"status = 'failed', active_run_id = NULL, {REJECT}"
COUNT = "attempt_count rises by one with each verdict, and by nothing else"
CURRENT = "current_run_id is the run that was accepted"
NEW_RUN = "active_run_id = :spare, last_run_id = :spare"
ONE_RUN = "a new try has a new run, one at a time"


BESIDE = [
    (PENDING, f"{FAIL}, attempt_count = attempt_count", COUNT),
    (PENDING, f"{FAIL}, attempt_count = attempt_count + 2", COUNT),
    (PENDING, f"status = 'failed', active_run_id = NULL, {ABANDON}, attempt_count = 1", COUNT),
    (REJECTED, f"{MARK}, attempt_count = attempt_count + 1", COUNT),
    (REJECTED, f"{MARK}, attempt_count = 0", COUNT),
    (REJECTED, f"{REQUEUE}, {NEW_RUN}, attempt_count = 0", COUNT),
    (SUCCESS, f"{REPROCESS}, {NEW_RUN}, attempt_count = attempt_count + 1", COUNT),
    (REJECTED, f"{REJECT}, attempt_count = attempt_count + 1", "there is no run to judge"),
    (SUCCESS, f"{REJECT}, attempt_count = attempt_count + 1", "there is no run to judge"),
    (SUCCESS, f"{ACCEPT}, attempt_count = attempt_count + 1", "there is no run to judge"),
    (SUCCESS, ABANDON, "there is no run to give up"),
    (REPROCESSING, ABANDON, "its run has ended"),
    (REPROCESSING, f"{REJECT}, attempt_count = attempt_count + 1", "its run has ended"),
    (
        ABANDONED,
        f"{REJECT}, attempt_count = attempt_count + 1",
        "its run has ended",
    ),
    (REJECTED, f"{REQUEUE}, active_run_id = last_run_id", ONE_RUN),
    (SUCCESS, f"{REPROCESS}, last_run_id = :spare", ONE_RUN),
    (REPROCESSING, f"{REPROCESS}, {NEW_RUN}", ONE_RUN),
    (REJECTED, f"{MARK}, last_run_id = :spare", "only a new try has a new run"),
    (REJECTED, MARK.replace("'hopeless'", "NULL"), "it is marked with a reason"),
    (
        REJECTED,
        f"{REQUEUE}, {NEW_RUN}, terminal_marker = 'no'",
        "only mark_terminal marks it",
    ),
    (
        REPROCESSING,
        f"{ACCEPT}, active_run_id = NULL, attempt_count = attempt_count + 1",
        CURRENT,
    ),
    (SUCCESS, f"{REPROCESS}, {NEW_RUN}, current_run_id = NULL", CURRENT),
    (SUCCESS, f"{REPROCESS}, {NEW_RUN}, current_run_id = :other", CURRENT),
    (REJECTED, f"{MARK}, current_run_id = last_run_id", CURRENT),
    (REJECTED, f"{MARK}, updated_at = updated_at - interval '1 s'", "updated_at does not go"),
    (REJECTED, f"{MARK}, created_at = created_at - interval '1 s'", "its beginning stay"),
    (REJECTED, f"{MARK}, source = 'sat'", "its key and its beginning stay"),
    (REJECTED, f"{MARK}, customer_id = 'x'", "its key and its beginning stay"),
    (REJECTED, f"{MARK}, query_name = 'x'", "its key and its beginning stay"),
    (REJECTED, f"{MARK}, logical_date = '2020-01-01'", "its key and its beginning stay"),
]


def test_invariants_9_15_16_move_with_unrelated_changes_is_rejected(
    partition_tables: PartitionTables,
) -> None:
    for wanted, changes, problem in BESIDE:
        partition_tables.assert_refused(
            f"UPDATE partitions SET {changes} WHERE logical_date = :day",  # noqa: S608  # as above
            problem,
            day=wanted.logical_date,
            spare=partition_tables.spare,
            other=partition_tables.get_last_run_id(REPROCESSING if wanted is SUCCESS else SUCCESS),
        )


def test_invariant_15_new_partition_has_no_attempts_or_current_run(
    partition_tables: PartitionTables,
) -> None:
    for column, value in (
        ("attempt_count", "1"),
        ("current_run_id", f"'{partition_tables.get_last_run_id(SUCCESS)}'"),
    ):
        partition_tables.assert_refused(
            "INSERT INTO partitions (source, customer_id, query_name, logical_date, status,"  # noqa: S608  # as above
            " active_run_id, last_run_id, created_at, updated_at, transition, changed_by,"
            f" {column}) VALUES ('osm', 'acme', 'city', '2020-01-01', 'pending', :spare, :spare,"
            f" now(), now(), 'enqueue', 'operator', {value})",
            "a new one has no attempts",
            spare=partition_tables.spare,
        )
