"""Figures for monitoring, read with a few short queries whatever the size of the tables.

What an index holds is counted, up to a limit. Large tables are sampled: at most
``_SAMPLE_PAGES`` of their pages are read, and the result is scaled. A table with fewer pages is
counted exactly.
"""

import time
from collections.abc import Mapping
from typing import Any

from attrs import frozen
from sqlalchemy import Connection

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.engine import disable_transactions
from tileferry.adapters.postgres.errors import translate_database_errors
from tileferry.adapters.postgres.run_rows import refill_budget
from tileferry.application.ports.figures import COUNT_MAX, DatabaseFigures, QueueFigures
from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import QUEUE_BUDGET

TIMEOUT_S = 2.0
"""Maximum duration of each query."""
_SAMPLE_PAGES = 1_000
_FAILED_MAX = 5_000
_VERDICT_PAGES = 4
_BEGIN = (
    f"BEGIN READ ONLY; SET LOCAL statement_timeout = {TIMEOUT_S * 1_000:.0f};"
    " SET LOCAL lock_timeout = 500"
)


def _count(what: str, limit: int = COUNT_MAX) -> str:
    return f"(SELECT count(*) FROM (SELECT 1 FROM {what} LIMIT {limit}) AS counted)"  # noqa: S608


def _find_oldest(priority: int) -> str:
    return (
        "(SELECT submitted_date FROM runs WHERE source = g.source AND ready"  # noqa: S608
        f" AND priority = {priority} ORDER BY submitted_date LIMIT 1)"
    )


# A comparison, for which the planner takes the index even if it knows nothing about the table.
_IS_LEASED = "lease_expires_at > '-infinity'"
_QUEUES = (
    "SELECT *, now() AS now,"  # noqa: S608
    f" {_count('runs WHERE source = g.source AND ready')} AS ready,"
    f" {_count('runs WHERE source = g.source AND next_retry_at IS NOT NULL AND NOT ready')}"
    " AS waiting,"
    f" (SELECT count(*) FROM runs WHERE source = g.source AND {_IS_LEASED}) AS leased,"
    f" least({_find_oldest(0)}, {_find_oldest(1)}) AS oldest_ready_at"
    " FROM source_gates AS g ORDER BY source"
)
_PENDING = "tiles WHERE voting_status = 'pending'"
_GIVEN_UP = "tiles WHERE voting_status = 'upload_giveup'"
_SINGLE = (
    "SELECT now() AS now,"  # noqa: S608
    " (SELECT version_num FROM alembic_version) AS schema_revision,"
    f" (SELECT count(DISTINCT worker) FROM runs WHERE {_IS_LEASED}) AS workers,"
    " (SELECT count(*) FROM runs WHERE lease_expires_at < now()) AS expired_leases,"
    f" {_count(_PENDING)} AS pending_uploads, {_count(_GIVEN_UP)} AS giveups,"
    " h.sequence AS audit_sequence,"
    " (SELECT occurred_at FROM audit_log WHERE sequence = h.sequence) AS audit_at"
    " FROM audit_head AS h"
)
# The table is only appended to, so the newest verdicts are on its last pages.
_VERDICT = (
    "SELECT max(judged_at) FROM partition_attempts WHERE ctid >= (SELECT format('(%%s,0)',"  # noqa: S608
    " greatest(0, pg_relation_size('partition_attempts')"
    f" / current_setting('block_size')::bigint - {_VERDICT_PAGES})))::tid"
)
_PAGES = (
    "SELECT c.relname, pg_relation_size(c.oid) / current_setting('block_size')::bigint AS pages"
    " FROM pg_class AS c WHERE c.oid IN"
    " ('runs'::regclass, 'partitions'::regclass, 'tiles'::regclass)"
)
_ARE_FAILED = "partitions WHERE status = 'failed'"
_FAILED = f"SELECT {_count(_ARE_FAILED, _FAILED_MAX)}"


@frozen(kw_only=True)
class PostgresFigureReader:
    """Reads the figures in one read-only transaction."""

    database: Database
    budget: RetryBudget = QUEUE_BUDGET

    def read(self) -> DatabaseFigures:
        """Return the figures; a query that takes too long is an error."""
        with translate_database_errors(), self.database.engine.connect() as pooled:
            connection = disable_transactions(pooled)
            started_s = time.perf_counter()
            connection.exec_driver_sql("SELECT 1")
            latency_s = time.perf_counter() - started_s
            connection.exec_driver_sql(_BEGIN)
            try:
                return self._read(connection, latency_s)
            finally:
                connection.exec_driver_sql("ROLLBACK")

    def _read(self, connection: Connection, latency_s: float) -> DatabaseFigures:
        pages = {row.relname: row.pages for row in connection.exec_driver_sql(_PAGES)}
        queues = [
            QueueFigures(
                source=row.source,
                ready=row.ready,
                waiting=row.waiting,
                leased=row.leased,
                oldest_ready_at=row.oldest_ready_at,
                retry_tokens=refill_budget(self.budget, row).tokens,
                closed_until=row.closed_until,
            )
            for row in connection.exec_driver_sql(_QUEUES)
        ]
        tiles = _sample(connection, "tiles", pages, "1 AS status, sum(byte_length)::bigint AS size")
        single = connection.exec_driver_sql(_SINGLE).mappings().one()
        return DatabaseFigures(
            latency_s=latency_s,
            queues=queues,
            runs=_count_by_status(connection, "runs", pages),
            partitions=_count_partitions(connection, pages),
            tiles=sum(row["number"] for row in tiles),
            tile_bytes=sum(row["size"] for row in tiles),
            verdict_at=connection.exec_driver_sql(_VERDICT).scalar_one(),
            **single,
        )


def _sample(
    connection: Connection, table: str, pages: Mapping[str, int], columns: str = "status"
) -> list[dict[str, Any]]:
    """Return the rows of a grouped query over a sample of a table, scaled to the whole table."""
    share = min(1.0, _SAMPLE_PAGES / max(1, pages[table]))
    found = connection.exec_driver_sql(
        f"SELECT {columns}, count(*) AS number FROM {table}"  # noqa: S608  # our own names
        f" TABLESAMPLE SYSTEM ({100 * share:.6f}) REPEATABLE (0) GROUP BY 1"
    )
    return [
        {
            name: round(value / share) if name in {"number", "size"} else value
            for name, value in row.items()
        }
        for row in found.mappings()
    ]


def _count_by_status(
    connection: Connection, table: str, pages: Mapping[str, int]
) -> dict[str, int]:
    return {row["status"]: row["number"] for row in _sample(connection, table, pages)}


def _count_partitions(connection: Connection, pages: Mapping[str, int]) -> dict[str, int]:
    """Return the partitions by status; failed ones are counted, because a sample may miss them."""
    sampled = _count_by_status(connection, "partitions", pages)
    failed = connection.exec_driver_sql(_FAILED).scalar_one()
    return sampled | {
        "failed": failed if failed < _FAILED_MAX else max(failed, sampled.get("failed", 0))
    }
