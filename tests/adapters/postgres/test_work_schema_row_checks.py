"""Rows of runs and partitions that the domain could not build are refused, every one of them."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from psycopg.errors import UniqueViolation
from sqlalchemy import Connection, Table, insert, text
from sqlalchemy.exc import IntegrityError

from tileferry.adapters.postgres import Database
from tileferry.adapters.postgres.run_rows import RUN_COLUMNS, run_from_row
from tileferry.adapters.postgres.work_schema import partitions, runs
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import Partition, PartitionKey, PartitionStatus
from tileferry.domain.runs import Run, RunId, RunKind, RunPriority, RunStatus, WorkerId, has_ended

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
DAY = date(2026, 3, 1)
JUDGED = {RunStatus.PASSED, RunStatus.NEEDS_REVIEW, RunStatus.FAILED}
RUN_FIELDS: Mapping[str, tuple[Any, ...]] = {
    "retry_count": (0, 1),
    "rate_limited_count": (0, 1),
    "rescues": (0, 1),
    "next_retry_at": (None, NOW),
    "error_class": (None, "retryable"),
    "error_message": (None, "reset"),
    "lease_owner": (None, WorkerId("w1")),
    "lease_expires_at": (None, LATER),
    "lease_epoch": (0, 1),
    "needs_token": (False, True),
}
PARTITION_FIELDS: Mapping[str, tuple[Any, ...]] = {
    "attempt_count": (0, 1),
    "current_run_id": (None, "r0", "r1"),
    "active_run_id": (None, "r0", "r1"),
    "abandoned": (False, True),
    "needs_review": (False, True),
    "terminal_marker": (None, "hopeless"),
    "error_message": (None, "bad"),
}


def combine_fields(fields: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    for values in product(*fields.values()):
        yield dict(zip(fields, values, strict=True))


def insert_accepted(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, object]]
) -> list[int]:
    """Return the numbers of those rows that the table takes, one at a time."""
    connection.execute(text(f"CREATE TEMP TABLE offered AS TABLE {table.name} WITH NO DATA"))
    connection.execute(text("ALTER TABLE offered ADD COLUMN number integer"))
    names = [*rows[0], "number"]
    statement = f"INSERT INTO offered ({', '.join(names)}) VALUES (:{', :'.join(names)})"  # noqa: S608  # columns of ours
    numbered = [{**row, "number": number} for number, row in enumerate(rows)]
    connection.execute(text(statement), numbered)
    connection.execute(text("CREATE TEMP TABLE taken (number integer)"))
    columns = ", ".join(rows[0])
    connection.execute(
        text(
            f"""
            DO $$ DECLARE offer record; BEGIN
                FOR offer IN SELECT number FROM offered LOOP
                    BEGIN
                        INSERT INTO {table.name} ({columns})
                            SELECT {columns} FROM offered WHERE number = offer.number;
                        INSERT INTO taken VALUES (offer.number);
                    EXCEPTION WHEN check_violation THEN NULL;
                    END;
                END LOOP;
            END $$
            """  # noqa: S608  # as above
        )
    )
    return list(connection.execute(text("SELECT number FROM taken ORDER BY number")).scalars())


# Runs


def build_run(number: int, status: RunStatus, fields: Mapping[str, Any]) -> Run | None:
    """Return the run with these fields, if there can be one."""
    try:
        return Run(
            run_id=RunId(f"r{number}"),
            kind=RunKind.DOWNLOAD_AREA,
            source="osm",
            submitted_date=NOW,
            status=status,
            **fields,
        )
    except InvalidValueError:
        return None


def build_run_row(number: int, status: RunStatus, fields: Mapping[str, Any]) -> dict[str, object]:
    """Return the row with these fields; what the domain has no word for is as it should be.

    The worker of the newest attempt stays on the row, so of a run that was judged there is one.
    """
    row = {name: value for name, value in fields.items() if name != "lease_owner"}
    under_way = status is RunStatus.PROCESSING
    return {
        **row,
        "run_id": f"r{number}",
        "kind": "download_area",
        "source": "osm",
        "priority": int(RunPriority.FRESH),
        "submitted_date": NOW,
        "payload": "{}",
        "status": status,
        "ready": status is RunStatus.DISCOVERED,
        "worker": "w1" if status in JUDGED else fields["lease_owner"],
        "began_at": NOW if under_way or status in JUDGED else None,
        "ended_at": NOW if status in JUDGED else None,
    }


def test_run_row_is_accepted_exactly_when_the_domain_can_build_it(database: Database) -> None:
    offered = [
        (status, fields)
        for status in RunStatus
        for fields in combine_fields(RUN_FIELDS)
        # Whose lease it was, the row of a run that ended says in any case.
        if fields["lease_owner"] is None or status is RunStatus.PROCESSING
    ]
    rows = [build_run_row(number, *offer) for number, offer in enumerate(offered)]
    built = {number: build_run(number, *offer) for number, offer in enumerate(offered)}
    possible = [number for number, run in built.items() if run is not None]
    assert {offered[number][0] for number in possible} == set(RunStatus)
    with database.transaction() as connection:
        assert insert_accepted(connection, runs, rows) == possible
        for row in connection.execute(text(f"SELECT {RUN_COLUMNS} FROM runs")).all():  # noqa: S608  # columns of ours
            assert run_from_row(row) == built[int(row.run_id[1:])]


BASE = {name: values[0] for name, values in RUN_FIELDS.items()}
STANDING: Mapping[str, tuple[RunStatus, Mapping[str, Any]]] = {
    "discovered": (RunStatus.DISCOVERED, {}),
    "processing": (
        RunStatus.PROCESSING,
        {"lease_owner": "w1", "lease_expires_at": LATER, "lease_epoch": 1},
    ),
    "waiting": (
        RunStatus.ERROR,
        {"error_class": "retryable", "error_message": "reset", "next_retry_at": LATER},
    ),
    "given up": (RunStatus.ERROR, {"error_class": "final", "error_message": "no"}),
    "passed": (RunStatus.PASSED, {"lease_epoch": 1}),
    "needs review": (RunStatus.NEEDS_REVIEW, {"lease_epoch": 1, "error_message": "look"}),
    "failed": (RunStatus.FAILED, {"lease_epoch": 1, "error_message": "bad"}),
}


def build_standing_row(name: str) -> dict[str, object]:
    status, fields = STANDING[name]
    return build_run_row(0, status, {**BASE, **fields})


@pytest.mark.parametrize("name", STANDING)
def test_run_row_columns_must_match_its_status(database: Database, name: str) -> None:
    """What the domain has no word for: when the attempt was, by whom, and whether it competes."""
    row = build_standing_row(name)
    wrong: dict[str, list[object]] = {"ready": [not row["ready"]]}
    if name == "discovered":
        wrong |= {"began_at": [NOW], "ended_at": [NOW], "worker": ["w1"]}
    elif name == "processing":
        wrong |= {"began_at": [None], "ended_at": [NOW], "worker": [None]}
    elif name == "waiting":
        del wrong["ready"]  # it may compete, or wait for a token
    elif name != "given up":
        wrong |= {"began_at": [None], "ended_at": [None], "worker": [None]}
    wrong |= {"status": ["lost"], "kind": ["walk"], "priority": [2, -1], "error_class": ["x"]}
    counts = ("retry_count", "rate_limited_count", "rescues", "lease_epoch")
    wrong |= {column: [-1] for column in counts}
    with database.engine.connect() as connection:
        for column, values in wrong.items():
            for value in values:
                with pytest.raises(IntegrityError, match="check constraint"):
                    _insert(connection, {**row, column: value})
        _insert(connection, row)


def _insert(connection: Connection, row: Mapping[str, object]) -> None:
    with connection.begin_nested():
        connection.execute(insert(runs), row)


@pytest.mark.parametrize("name", STANDING)
def test_dedupe_key_is_released_when_its_run_ends(database: Database, name: str) -> None:
    status, fields = STANDING[name]
    run = build_run(0, status, {**BASE, **fields})
    assert run is not None
    with database.engine.connect() as connection:
        _insert(connection, {**build_standing_row(name), "dedupe_key": "k"})
        again = {**build_standing_row("discovered"), "run_id": "r1", "dedupe_key": "k"}
        if has_ended(run):
            _insert(connection, again)
        else:
            with pytest.raises(IntegrityError, match="runs_by_dedupe_key") as caught:
                _insert(connection, again)
            assert isinstance(caught.value.orig, UniqueViolation)
        for number in (2, 3):  # without a key there is nothing to be the same
            _insert(connection, {**build_standing_row("discovered"), "run_id": f"r{number}"})


# Partitions


def test_partition_row_is_accepted_exactly_when_the_domain_can_build_it(
    database: Database,
) -> None:
    offered = list(product(PartitionStatus, combine_fields(PARTITION_FIELDS), (NOW, LATER)))
    possible = [
        number
        for number, (status, fields, created_at) in enumerate(offered)
        if _build_partition(number, status, fields, created_at) is not None
    ]
    assert {offered[number][0] for number in possible} == set(PartitionStatus)
    rows = [
        {
            **fields,
            "source": "osm",
            "customer_id": "acme",
            "query_name": f"q{number}",
            "logical_date": DAY,
            "status": status,
            # Each of them has runs of its own, as the index wants it.
            **{name: _qualify_run_id(fields.get(name, "r1"), number) for name in _RUNS},
            "created_at": created_at,
            "updated_at": NOW,
            "transition": "-",
            "changed_by": "-",
        }
        for number, (status, fields, created_at) in enumerate(offered)
    ]
    with database.transaction() as connection:
        # Neither moves nor what the runs are tied to: the shape alone.
        connection.execute(text("ALTER TABLE partitions DISABLE TRIGGER ALL"))
        assert insert_accepted(connection, partitions, rows) == possible
        connection.execute(text("ALTER TABLE partitions ENABLE TRIGGER ALL"))


_RUNS = ("current_run_id", "active_run_id", "last_run_id")


def _qualify_run_id(run_id: str | None, number: int) -> str | None:
    return None if run_id is None else f"{run_id}-{number}"


def _build_partition(
    number: int, status: PartitionStatus, fields: Mapping[str, Any], created_at: datetime
) -> Partition | None:
    key = PartitionKey(source="osm", customer_id="acme", query_name=f"q{number}", logical_date=DAY)
    try:
        return Partition(
            key=key,
            status=status,
            last_run_id=RunId("r1"),
            created_at=created_at,
            updated_at=NOW,
            **fields,
        )
    except InvalidValueError:
        return None
