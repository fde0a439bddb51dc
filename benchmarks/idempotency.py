"""What idempotency in Postgres costs: round trips, counted in what libpq sends, and time."""

import itertools
import logging
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Any

from sqlalchemy import event

from benchmarks.cache_site import Site
from benchmarks.harness import Ratio, seconds_per_call
from tileferry.adapters.postgres import Database, PostgresAuditLog, PostgresIdempotencyStore
from tileferry.adapters.system import SystemClock, new_id
from tileferry.application import AuditTrail, IdempotencyManager
from tileferry.application.audit import CallContext
from tileferry.application.retries.idempotent_call import IdempotentCall

if TYPE_CHECKING:
    import psycopg

CONTEXT = CallContext(category="RETRY_API_REQUEST", operation="bench")
CALLS = 20
_keys = (f"key-{number}" for number in itertools.count())


def manager_over(database: Database) -> IdempotencyManager:
    """Return a manager whose results and their audit events are one transaction."""
    log = PostgresAuditLog(database=database)
    return IdempotencyManager(
        store=PostgresIdempotencyStore(database=database, audit_sink=log),
        clock=SystemClock(),
        new_id=new_id,
        audit=AuditTrail(logger=logging.getLogger("benchmarks")),
    )


def once(manager: IdempotencyManager, key: str) -> None:
    """Make one call."""
    assert manager.run_once(lambda: 5, IdempotentCall(key=key, context=CONTEXT)) == 5  # noqa: PLR2004


def round_trips(url: str, calls: list[Callable[[IdempotencyManager], None]]) -> list[int]:
    """Return how often each call waits for the server, over a connection that is made already."""
    database = Database.from_url(url)
    with tempfile.TemporaryFile() as trace:

        def follow(connection: "psycopg.Connection[Any]", _record: object) -> None:
            connection.pgconn.trace(trace.fileno())

        event.listen(database.engine, "connect", follow)
        manager = manager_over(database)
        manager.store.find("nothing")
        counts = [turns(trace)]
        for call in calls:
            call(manager)
            counts.append(turns(trace))
        database.close()
    return [later - earlier for earlier, later in pairwise(counts)]


def turns(trace: IO[bytes]) -> int:
    """Count the changes from the client's (F) to the server's (B) messages."""
    trace.seek(0)
    speakers = [line.split(b"\t")[1] for line in trace if line.count(b"\t") > 1]
    return sum(pair == (b"F", b"B") for pair in pairwise(speakers))


def run() -> Iterator[Ratio]:
    """All measurements of this file."""
    with Site.prepared("idempotency").place() as (_, url):
        first, hit = round_trips(url, [partial(once, key="one")] * 2)
        database = Database.from_url(url)
        manager = manager_over(database)

        def select(calls: int) -> None:
            with database.read_connection() as connection:
                for _ in range(calls):
                    connection.exec_driver_sql("SELECT 1").scalar()

        def repeat(calls: int, keys: Iterator[str]) -> None:
            for _ in range(calls):
                once(manager, next(keys))

        times = seconds_per_call(
            {
                "first": partial(repeat, keys=_keys),
                "hit": partial(repeat, keys=itertools.repeat("one")),
                "select": select,
            },
            calls=CALLS,
        )
        database.close()
    micros = {name: f"{seconds * 1e6:.0f} µs" for name, seconds in times.items()}
    told = f"a first call {micros['first']}, a hit {micros['hit']}, SELECT 1 {micros['select']}"
    yield Ratio(
        name="idempotency in Postgres: round trips of a first call, its audit event included",
        ratio=first,
        goal=2,
        detail=told,
    )
    yield Ratio(name="idempotency in Postgres: round trips of a hit", ratio=hit, goal=1)
