"""What it costs to have the database chain the audit log, against a raw COPY of the same rows."""

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import psycopg
from attrs import define, frozen

from benchmarks.cache_site import Site
from benchmarks.harness import Ratio, seconds_per_call
from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.domain.audit import (
    GENESIS,
    AuditEvent,
    ChainHead,
    RetryAttempted,
    build_next_entry,
    get_subject,
    verify_chain,
)
from tileferry.domain.retry import (
    POLICY_MATRIX,
    DecisionRecord,
    Failure,
    Retryable,
    RetryAt,
    RetryCategory,
    decide,
)

GROUP = 1_000
ROUNDS = 25
AT = datetime(2026, 11, 1, tzinfo=UTC)
POLICY = POLICY_MATRIX[RetryCategory.API_REQUEST]
TYPES = ["int8", "bytea", "bytea", "bytea", "text", "timestamptz", "text", "text", "uuid"]
_numbers = itertools.count()


def made_event() -> RetryAttempted:
    """Return the event of a failed attempt, as the retry manager makes it."""
    number = next(_numbers)
    failure = Failure(key=f"key-{number}", attempt=1, error=Retryable())
    decision = decide(POLICY, failure)
    assert isinstance(decision, RetryAt)
    return RetryAttempted(
        timestamp=AT + timedelta(microseconds=number),
        tenant_id="tenant-123",
        correlation_id=f"corr-{number}",
        trace_id=f"trace-{number}",
        retry_category=RetryCategory.API_REQUEST,
        operation="GET /api/satellite/tiles/15/19000/11000",
        attempt_number=1,
        max_attempts=POLICY.max_attempts,
        delay_seconds=decision.delay_s,
        exception_type="TimeoutError",
        exception_message="Connection timeout",
        decision_record=DecisionRecord(policy=POLICY, failure=failure, decision=decision),
    )


@frozen(kw_only=True)
class Ready:
    """What the log needs of an event, with its bytes made: for the part of the database alone."""

    event_type: str
    timestamp: datetime
    correlation_id: str | None
    body: bytes

    def canonical_bytes(self) -> bytes:
        """Return what was made."""
        return self.body


def ready(event: AuditEvent) -> AuditEvent:
    """Return an event whose bytes are made."""
    made = Ready(
        event_type=event.event_type,
        timestamp=event.timestamp,
        correlation_id=event.correlation_id,
        body=event.canonical_bytes(),
    )
    return cast("AuditEvent", made)


@define
class RawCopy:
    """Chains in the client, alone and unguarded, and copies the rows in binary form."""

    connection: "psycopg.Connection[Any]"
    head: ChainHead = GENESIS

    def rows(self, events: list[AuditEvent]) -> list[tuple[object, ...]]:
        """Return the very rows that the log would hold."""
        made: list[tuple[object, ...]] = []
        for event in events:
            entry = build_next_entry(self.head, event.canonical_bytes())
            self.head = entry.head
            made.append(
                (entry.sequence, bytes.fromhex(entry.previous_hash), bytes.fromhex(entry.hash),
                 entry.body, event.event_type, event.timestamp, event.correlation_id,
                 get_subject(event), None)
            )  # fmt: skip
        return made

    def write(self, rows: list[tuple[object, ...]]) -> None:
        """Copy them, and commit."""
        statement = "COPY copied FROM STDIN (FORMAT BINARY)"
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(TYPES)
            for row in rows:
                copy.write_row(row)
        self.connection.commit()


def groups(make: Callable[[], AuditEvent]) -> Iterator[list[AuditEvent]]:
    """Return a group for each round, made beforehand."""
    return iter([[make() for _ in range(GROUP)] for _ in range(ROUNDS)])


def measured(url: str, log: PostgresAuditLog) -> dict[str, float]:
    """Time all four in turns; the table of the copies has the log's columns and indexes."""
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE copied (LIKE audit_log INCLUDING ALL)")
        connection.commit()
        raw = RawCopy(connection)
        events, others = groups(made_event), groups(made_event)
        bodies = groups(lambda: ready(made_event()))
        rows = iter([raw.rows(group) for group in groups(lambda: ready(made_event()))])
        return seconds_per_call(
            {
                "emit": lambda _: log.emit(next(events)),
                "chain and copy": lambda _: raw.write(raw.rows(next(others))),
                "emit ready": lambda _: log.emit(next(bodies)),
                "copy ready": lambda _: raw.write(next(rows)),
            },
            calls=GROUP,
            rounds=ROUNDS,
        )


def run() -> Iterator[Ratio]:
    """All measurements of this file."""
    with Site.prepared("audit").place() as (_, url):
        database = Database.from_url(url)
        log = PostgresAuditLog(database=database)
        times = measured(url, log)
        report = verify_chain(log.iter_entries(), expected_head=log.read_head())
        assert (report.intact, report.checked) == (True, 2 * GROUP * ROUNDS)
        database.close()
    micros = {name: f"{seconds * 1e6:.1f} µs" for name, seconds in times.items()}
    yield Ratio(
        name="audit in Postgres: a raw COPY of the same rows / ours, chained by the database",
        ratio=times["copy ready"] / times["emit ready"],
        goal=0.5,
        at_least=True,
        detail=f"groups of {GROUP}, bytes made before, an event: ours {micros['emit ready']}, "
        f"COPY {micros['copy ready']}",
    )
    yield Ratio(
        name="audit in Postgres, from events: chained in the client and COPY / ours",
        ratio=times["chain and copy"] / times["emit"],
        goal=0.5,
        at_least=True,
        detail=f"groups of {GROUP}, with making the bytes, an event: ours {micros['emit']}, "
        f"COPY {micros['chain and copy']}",
    )
