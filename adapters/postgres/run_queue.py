"""The run queue in Postgres, as workers use it."""

import json
import math
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from threading import Lock
from typing import Any, cast

import psycopg
from attrs import define, field
from psycopg.rows import namedtuple_row
from sqlalchemy import Connection

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.engine import begin_in_pipeline, get_settings
from tileferry.adapters.postgres.errors import translate_database_errors
from tileferry.adapters.postgres.run_rows import (
    ADMIT_RETRIES,
    CANCELLED,
    CLAIM,
    COMPLETE,
    DUE_SOURCES,
    NEXT_START,
    PASSED_BEFORE,
    RENEW_FREE,
    RENEW_ONE,
    queue_order,
    refill_budget,
    run_from_row,
    to_claim_parameters,
)
from tileferry.adapters.postgres.wake_ups import CHANNEL, NOTIFY
from tileferry.application.ports.work import ALL_KINDS, NO_PROGRESS
from tileferry.domain.errors import DatabaseError
from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import QUEUE_BUDGET, Run, RunId, RunKind, RunProgress, WorkerId

_NOT_DUE: Mapping[str, object] = {"due": None, "allowed": None, "tokens": None}
_RECONNECT_S = 5.0


@define(kw_only=True, eq=False)
class PostgresRunQueue:
    """Run queue that claims with ``SKIP LOCKED``, so workers never wait for each other."""

    database: Database
    budget: RetryBudget = QUEUE_BUDGET
    listen_database: Database | None = None
    """Where to listen for new runs, such as the server behind a pooler; ``None``: ``database``."""
    _listening: "psycopg.Connection[Any] | None" = field(default=None, init=False)
    _not_before_s: float = field(default=0.0, init=False)
    """Earliest monotonic time of the next attempt to listen, after a failed one."""
    _guard: Lock = field(factory=Lock, init=False)

    def claim(
        self,
        worker: WorkerId,
        *,
        limit: int,
        lease: timedelta,
        kinds: Sequence[RunKind] = ALL_KINDS,
        sources: Sequence[str] | None = None,
    ) -> Sequence[Run]:
        """Claim due runs for a worker."""
        _, claimed = self.exchange(
            (), worker, limit=limit, lease=lease, kinds=kinds, sources=sources
        )
        return claimed

    def exchange(
        self,
        ended: Sequence[Run],
        worker: WorkerId,
        *,
        limit: int,
        lease: timedelta,
        kinds: Sequence[RunKind] = ALL_KINDS,
        sources: Sequence[str] | None = None,
    ) -> tuple[Sequence[RunId], Sequence[Run]]:
        """Complete runs and claim the next ones, in one transaction of two round trips.

        It has more of them if retries are due, or if there is nothing to claim.
        """
        values: dict[str, object] = {
            **_to_filter(kinds, sources),
            **_NOT_DUE,
            "worker": worker,
            "limit": limit,
            "lease": lease,
            "capacity": self.budget.capacity,
            "earned": self.budget.earned_per_success,
        }
        claims = to_claim_parameters(ended)
        with self.database.transaction(begins_itself=True) as connection:
            with begin_in_pipeline(connection) as driver:
                completed = driver.execute(COMPLETE, claims) if ended else None
                claiming = driver.execute(CLAIM, values)
            kept = [RunId(row[0]) for row in completed or ()]
            if len(kept) < len(ended):  # an earlier, unconfirmed commit may have completed some
                kept += [RunId(row[0]) for row in driver.execute(PASSED_BEFORE, claims)]
            rows = claiming.fetchall() or self._claim_with_retries(driver, values)
        return kept, [run_from_row(row) for row in sorted(rows, key=queue_order)]

    def _claim_with_retries(
        self, driver: "psycopg.Connection[Any]", values: Mapping[str, object]
    ) -> Sequence[Any]:
        """Put due retries into the lines of their sources, and claim what their tokens allow.

        Sources whose gates are locked are left out, so that other sources can be claimed from.
        """
        with driver.cursor(row_factory=namedtuple_row) as cursor:
            due: Sequence[Any] = cursor.execute(DUE_SOURCES, values).fetchall()
        budgets = {row.source: refill_budget(self.budget, row) for row in due}
        if budgets:
            driver.execute(ADMIT_RETRIES, {"due": list(budgets)})
        tokens = {
            "due": list(budgets),
            "allowed": [budget.retries_allowed for budget in budgets.values()],
            "tokens": [budget.tokens for budget in budgets.values()],
        }
        return driver.execute(CLAIM, {**values, **tokens}).fetchall()

    def get_wait_s(
        self, *, kinds: Sequence[RunKind] = ALL_KINDS, sources: Sequence[str] | None = None
    ) -> float | None:
        """Return the seconds until the next queued run may start."""
        with self.database.read_connection() as connection:
            wait_s = connection.exec_driver_sql(NEXT_START, _to_filter(kinds, sources)).scalar_one()
        return None if wait_s is None else float(wait_s)

    def renew(
        self,
        held: Sequence[Run],
        *,
        lease: timedelta,
        progress: Mapping[RunId, RunProgress] = NO_PROGRESS,
    ) -> Sequence[RunId]:
        """Extend leases: all unlocked runs in one statement, then the locked ones one by one."""
        reported = json.dumps({run_id: one.as_json() for run_id, one in progress.items()})
        values = {"lease": lease, "progress": reported}
        renewed = self._renew_with(RENEW_FREE, held, values)
        for run in held:
            if run.run_id not in renewed:
                renewed |= self._renew_with(RENEW_ONE, [run], values)
        return [run_id for run_id in dict.fromkeys(run.run_id for run in held) if run_id in renewed]

    def _renew_with(
        self, statement: str, held: Sequence[Run], values: Mapping[str, object]
    ) -> set[RunId]:
        with self.database.transaction() as connection:
            rows = connection.exec_driver_sql(statement, {**to_claim_parameters(held), **values})
            return {RunId(row[0]) for row in rows}

    def find_cancelled(self, held: Sequence[Run]) -> Collection[RunId]:
        """Return the runs that an operator cancelled under these claims."""
        with self.database.read_connection() as connection:
            rows = connection.exec_driver_sql(CANCELLED, to_claim_parameters(held))
            return {RunId(row[0]) for row in rows}

    def complete(self, ended: Sequence[Run]) -> Sequence[RunId]:
        """Mark runs as passed; return those that the worker still held."""
        with self.database.transaction() as connection:
            return _complete_runs(connection, ended)

    # Waiting

    def wait(self, seconds: float) -> bool:
        """Wait for a notification of new runs; return whether one arrived.

        If listening fails, or a pooler would lose the notifications, sleep for the given time.
        """
        started_s = time.monotonic()
        with self._guard:
            try:
                connection = self._connect()
                if connection is not None:
                    return any(True for _ in connection.notifies(timeout=seconds, stop_after=1))
            except (psycopg.Error, DatabaseError):
                self._disconnect()
        time.sleep(max(0.0, seconds - (time.monotonic() - started_s)))
        return False

    def check_notifications(self, timeout_s: float = 5.0) -> bool:
        """Return whether a notification that is sent through ``database`` arrives."""
        self.wait(0)
        with self.database.transaction() as connection:
            connection.exec_driver_sql(NOTIFY)
        return self.wait(timeout_s)

    def _connect(self) -> "psycopg.Connection[Any] | None":
        if self._listening is None and time.monotonic() >= self._not_before_s:
            # Detached from the pool: this connection receives notifications at any time.
            with translate_database_errors():
                connection = (self.listen_database or self.database).engine.raw_connection()
            if get_settings(connection).is_pooled:
                connection.close()
                self._not_before_s = math.inf
                return None
            self._listening = cast("psycopg.Connection[Any]", connection.driver_connection)
            connection.detach()
            self._listening.execute(f"LISTEN {CHANNEL}")
        return self._listening

    def _disconnect(self) -> None:
        self._not_before_s = time.monotonic() + _RECONNECT_S
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def close(self) -> None:
        """Close the listening connection."""
        with self._guard:
            self._disconnect()


def _to_filter(kinds: Sequence[RunKind], sources: Sequence[str] | None) -> dict[str, object]:
    return {
        "kinds": [str(kind) for kind in kinds],
        "sources": None if sources is None else list(sources),
    }


def _complete_runs(connection: Connection, ended: Sequence[Run]) -> list[RunId]:
    if not ended:
        return []
    claims = to_claim_parameters(ended)
    kept = {row[0] for row in connection.exec_driver_sql(COMPLETE, claims)}
    if len(kept) < len(ended):  # an earlier, unconfirmed commit may have completed some
        kept |= {row[0] for row in connection.exec_driver_sql(PASSED_BEFORE, claims)}
    return [run.run_id for run in ended if run.run_id in kept]
