"""Conversion between runs and rows, and the statements of the queue.

Each statement performs one transition of ``tileferry.domain.runs``, using the database's clock; a
contract suite checks that both agree. A worker's writes match its name and the epoch of its claim,
so an outdated claim changes nothing.
"""

import json
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from attrs import evolve

from tileferry.domain.canonical import canonical_json
from tileferry.domain.retry import RetryBudget
from tileferry.domain.runs import (
    ADMIT_MAX,
    Run,
    RunAttempt,
    RunKind,
    RunPriority,
    RunStatus,
    is_due,
    restore_run,
)
from tileferry.domain.state_machine import Change

RUN_COLUMNS = (
    "run_id, kind, source, priority, submitted_date, dedupe_key, payload, status, retry_count,"
    " rate_limited_count, rescues, next_retry_at, error_class, error_message, worker,"
    " lease_expires_at, lease_epoch, began_at, ended_at, needs_token"
)
_KINDS = {str(kind): kind for kind in RunKind}
_STATUSES = {str(status): status for status in RunStatus}
_PRIORITIES = {int(priority): priority for priority in RunPriority}


def refill_budget(budget: RetryBudget, row: Any) -> RetryBudget:
    """Return a source's retry budget, refilled up to the server's time."""
    return evolve(
        budget,
        tokens=min(row.tokens, budget.capacity),
        updated_s=row.refilled_at.timestamp(),
    ).refill(row.now.timestamp())


def run_from_row(row: Sequence[Any]) -> Run:
    """Build a run from a row of ``RUN_COLUMNS``, by position, which is faster than by name."""
    (
        run_id, kind, source, priority, submitted_date, dedupe_key, payload, status_text,
        retry_count, rate_limited_count, rescues, next_retry_at, error_class, error_message,
        worker, lease_expires_at, lease_epoch, _began_at, _ended_at, needs_token,
    ) = row  # fmt: skip
    status = _STATUSES[status_text]
    # Skip the constructor's validation: the table's CHECKs cover it, and it is half the cost of a
    # claim.
    return restore_run(
        run_id, _KINDS[kind], source, submitted_date, _PRIORITIES[priority], dedupe_key,
        _parse_payload(payload), status, retry_count, rate_limited_count, next_retry_at,
        error_class,
        error_message, worker if status is RunStatus.PROCESSING else None, lease_expires_at,
        lease_epoch, rescues, needs_token,
    )  # fmt: skip


def _parse_payload(text_of_it: str) -> dict[str, Any]:
    """Parse a payload; return an empty one if it is corrupt, which the run's handler then rejects.

    Raising here would make the run unreadable, so that it could not even be given up.
    """
    try:
        payload = json.loads(text_of_it)
    except (ValueError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


def to_insert_row(change: Change[Run]) -> dict[str, object]:
    """Return the parameters that insert a submitted run."""
    run = change.after
    return {
        "run_id": run.run_id,
        "kind": run.kind,
        "source": run.source,
        "priority": int(run.priority),
        "submitted_date": run.submitted_date,
        "dedupe_key": run.dedupe_key,
        "payload": canonical_json(run.payload, field="payload").decode(),
    }


def to_update_row(change: Change[Run]) -> dict[str, object]:
    """Return the parameters that update a changed run."""
    run, before = change.after, change.before
    ended = before is not None and before.status is RunStatus.PROCESSING
    return {
        "run_id": run.run_id,
        "status": run.status,
        "ready": is_due(run, change.at),
        "retry_count": run.retry_count,
        "rate_limited_count": run.rate_limited_count,
        "rescues": run.rescues,
        "next_retry_at": run.next_retry_at,
        "needs_token": run.needs_token,
        "error_class": run.error_class,
        "error_message": run.error_message,
        "ended_at": change.at if ended else None,
    }


def to_attempt_row(attempt: RunAttempt) -> dict[str, object]:
    """Return the parameters that insert an ended attempt."""
    return {
        "run_id": attempt.run_id,
        "epoch": attempt.epoch,
        "worker": attempt.worker,
        "began_at": attempt.began_at,
        "ended_at": attempt.ended_at,
        "outcome": attempt.outcome,
        "error_class": attempt.error_class,
        "error_message": attempt.error_message,
        "delay_s": attempt.delay_s,
    }


def to_claim_parameters(held: Sequence[Run]) -> dict[str, object]:
    """Return the ids of held runs and the worker's claims on them."""
    # Newline-separated text, split by the server, is cheaper to encode than an array.
    return {
        "run_ids": "\n".join([run.run_id for run in held]),
        "epochs": "\n".join([str(run.lease_epoch) for run in held]),
        "workers": "\n".join([run.lease_owner or "" for run in held]),
    }


queue_order = itemgetter(
    *map(RUN_COLUMNS.split(", ").index, ("priority", "submitted_date", "run_id"))
)
"""Sort key of a row; the same order as ``domain.runs.fair_order``."""


INSERT = (
    "INSERT INTO runs (run_id, kind, source, priority, submitted_date, dedupe_key, payload,"
    " status, ready) VALUES (%(run_id)s, %(kind)s, %(source)s, %(priority)s, %(submitted_date)s,"
    " %(dedupe_key)s, %(payload)s, 'discovered', true)"
)
# Needs no guard: the run was locked when it was read.
UPDATE = (
    "UPDATE runs SET status = %(status)s, ready = %(ready)s, retry_count = %(retry_count)s,"
    " rate_limited_count = %(rate_limited_count)s, rescues = %(rescues)s,"
    " needs_token = %(needs_token)s, progress = NULL, next_retry_at = %(next_retry_at)s,"
    " error_class = %(error_class)s, error_message = %(error_message)s, lease_expires_at = NULL,"
    " ended_at = coalesce(%(ended_at)s, ended_at) WHERE run_id = %(run_id)s"
)
INSERT_ATTEMPT = (
    "INSERT INTO run_attempts VALUES (%(run_id)s, %(epoch)s, %(worker)s, %(began_at)s,"
    " %(ended_at)s, %(outcome)s, %(error_class)s, %(error_message)s, %(delay_s)s)"
)
OPEN_GATE = (
    "INSERT INTO source_gates VALUES (%(source)s, NULL, %(tokens)s, now()) ON CONFLICT DO NOTHING"
)

_IS_OPEN = "(closed_until IS NULL OR closed_until <= now())"
_IS_WANTED = "(%(sources)s::text[] IS NULL OR g.source = ANY (%(sources)s))"
_LINE = "priority, submitted_date, run_id"
_DUE_RETRIES = "(SELECT FROM runs WHERE runs.source = g.source AND next_retry_at <= now())"
# The open sources that have due retries. Their gates are locked, so that no two workers spend the
# same token. A source whose gate another transaction has locked is left out of this claim, or new
# runs could overtake its retries; a source without due retries is claimed from without a lock.
DUE_SOURCES = (
    "SELECT source, tokens, refilled_at, now() AS now FROM source_gates AS g"  # noqa: S608  # interpolates constants only, here and below
    f" WHERE {_IS_OPEN} AND {_IS_WANTED} AND EXISTS"
    f" {_DUE_RETRIES} ORDER BY source FOR UPDATE SKIP LOCKED"
)
# Due retries join the line of their source, the oldest submission first.
ADMIT_RETRIES = (
    "UPDATE runs SET ready = true WHERE run_id IN (SELECT due.run_id"  # noqa: S608
    " FROM unnest(%(due)s::text[]) AS g(source) CROSS JOIN LATERAL (SELECT run_id FROM runs"
    " WHERE runs.source = g.source AND next_retry_at <= now() AND NOT ready"
    f" ORDER BY {_LINE} LIMIT {ADMIT_MAX} FOR UPDATE SKIP LOCKED) AS due)"
)
# Without an array of due sources it claims only if no source has due retries: their tokens would
# have to be looked at first. Reads up to the limit from each open source, since any source may have
# the oldest runs. A line stops at the first retry that its source's tokens cannot pay. Uses
# clock_timestamp() instead of the transaction's start: a run may have become free since then. First
# attempts earn tokens for sources below capacity; a gate locked by another transaction is skipped.
CLAIM = f"""
    WITH budget AS MATERIALIZED (
        SELECT * FROM unnest(%(due)s::text[], %(allowed)s::bigint[], %(tokens)s::double precision[])
            AS b(source, allowed, tokens)
    ), picked AS MATERIALIZED (
        SELECT * FROM (
            SELECT first.*, coalesce(allowed, 0) AS allowed,
                sum(needs_token::integer) OVER (PARTITION BY g.source ORDER BY {_LINE}) AS cost
            FROM source_gates AS g LEFT JOIN budget USING (source) CROSS JOIN LATERAL (
                SELECT run_id, source AS of_source, priority, submitted_date, rescues, needs_token
                FROM runs WHERE runs.source = g.source AND ready AND kind = ANY (%(kinds)s)
                ORDER BY {_LINE} LIMIT %(limit)s FOR UPDATE SKIP LOCKED
            ) AS first
            WHERE {_IS_OPEN} AND {_IS_WANTED}
                AND CASE WHEN %(due)s::text[] IS NULL
                    THEN NOT EXISTS (
                        SELECT FROM source_gates AS g
                        WHERE {_IS_OPEN} AND {_IS_WANTED} AND EXISTS {_DUE_RETRIES}
                    )
                    ELSE budget.source IS NOT NULL OR NOT EXISTS {_DUE_RETRIES} END
        ) AS line WHERE cost <= allowed ORDER BY {_LINE} LIMIT %(limit)s
    ), batch AS (
        SELECT run_id, of_source, needs_token, row_number() OVER line = 1 AS is_first,
            bool_or(rescues > 0) OVER line AS any
        FROM picked WINDOW line AS (ORDER BY {_LINE})
    ), taken AS MATERIALIZED (
        SELECT run_id, of_source, needs_token FROM batch WHERE is_first OR NOT batch.any
    ), claimed AS (
        UPDATE runs SET status = 'processing', ready = false, next_retry_at = NULL,
            needs_token = false,
            worker = %(worker)s, lease_expires_at = clock_timestamp() + %(lease)s,
            lease_epoch = lease_epoch + 1, began_at = clock_timestamp(), ended_at = NULL
        WHERE run_id = ANY (ARRAY(SELECT run_id FROM taken))
        RETURNING {RUN_COLUMNS}
    ), poor AS (
        SELECT source FROM source_gates
        WHERE tokens < %(capacity)s OR source = ANY (%(due)s::text[]) FOR UPDATE SKIP LOCKED
    ), paid AS (
        UPDATE source_gates AS g SET tokens = least(
            CAST(%(capacity)s AS double precision),
            greatest(0, coalesce(budget.tokens, g.tokens)
                - (SELECT count(*) FROM taken WHERE of_source = g.source AND needs_token))
            + CAST(%(earned)s AS double precision)
                * (SELECT count(*) FROM claimed WHERE source = g.source AND lease_epoch = 1)
        ), refilled_at = CASE WHEN budget.source IS NULL THEN refilled_at ELSE now() END
        FROM poor LEFT JOIN budget USING (source) WHERE g.source = poor.source
    )
    SELECT * FROM claimed
"""  # noqa: S608
# The earliest start of a queued run: not before its retry is due, nor before its gate opens. A run
# with an expired lease counts as due: the next sweep that may rescue it queues it.
NEXT_START = f"""
    SELECT CASE WHEN EXISTS (
        SELECT FROM runs AS g
        WHERE lease_expires_at <= now() AND kind = ANY (%(kinds)s) AND {_IS_WANTED}
    ) THEN 0 ELSE (
        SELECT extract(epoch FROM min(greatest(next_retry_at, closed_until, now())) - now())
        FROM runs JOIN source_gates AS g USING (source)
        WHERE (ready OR next_retry_at IS NOT NULL) AND kind = ANY (%(kinds)s) AND {_IS_WANTED}
    ) END AS wait_s
"""  # noqa: S608
# The planner expects ten claims, and looks up each by its id.
_CLAIMS = (
    "unnest(string_to_array(%(run_ids)s, E'\\n'), string_to_array(%(epochs)s, E'\\n')::bigint[],"
    " string_to_array(%(workers)s, E'\\n')) AS claim(claimed_id, claimed_epoch, claimed_by)"
)
_CLAIMED = "run_id = claimed_id AND lease_epoch = claimed_epoch AND worker = claimed_by"
_HELD = f"{_CLAIMED} AND status = 'processing'"
_EXTEND = (
    "UPDATE runs SET lease_expires_at = now() + %(lease)s,"
    " progress = coalesce(CAST(%(progress)s AS jsonb) ->> run_id, progress)"
)
RENEW_ONE = f"{_EXTEND} FROM {_CLAIMS} WHERE {_HELD} RETURNING run_id"
# A bulk renewal must not wait for locks: the worker may be completing the same runs in another
# order.
RENEW_FREE = (
    f"{_EXTEND} WHERE run_id IN"  # noqa: S608
    f" (SELECT run_id FROM runs JOIN {_CLAIMS} ON {_HELD} FOR UPDATE OF runs SKIP LOCKED)"
    " RETURNING run_id"
)
CANCELLED = (
    f"SELECT run_id FROM run_attempts JOIN {_CLAIMS}"  # noqa: S608
    " ON run_id = claimed_id AND epoch = claimed_epoch AND worker = claimed_by"
    " AND outcome = 'cancelled'"
)
PASSED_BEFORE = f"SELECT run_id FROM runs JOIN {_CLAIMS} ON {_CLAIMED} AND status = 'passed'"  # noqa: S608
COMPLETE = (
    "UPDATE runs SET status = 'passed', error_message = NULL, error_class = NULL,"  # noqa: S608
    " retry_count = 0, rate_limited_count = 0, lease_expires_at = NULL, ended_at = now(),"
    " progress = NULL"
    f" FROM {_CLAIMS} WHERE {_HELD} RETURNING run_id"
)
