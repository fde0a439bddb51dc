"""Conversion between partitions and rows, and the statements that write them."""

from collections.abc import Sequence
from datetime import UTC
from typing import Any

from tileferry.application.ports.work import PartitionAttempt
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.partitions import Partition, PartitionKey, PartitionStatus, find_verdict
from tileferry.domain.runs import RunId, VerdictOutcome
from tileferry.domain.state_machine import Change

with import_on_call(globals()):  # only raw partitions have manifests
    from tileferry.domain.partitions.manifest import SealedPartition

KEY_COLUMNS = "source, customer_id, query_name, logical_date"
_STATE = (
    "status, attempt_count, current_run_id, active_run_id, last_run_id, abandoned, needs_review,"
    " terminal_marker, error_message, updated_at"
)
PARTITION_COLUMNS = f"{KEY_COLUMNS}, {_STATE}, created_at"
KEY_MATCHES = (
    "source = %(source)s AND customer_id = %(customer_id)s AND query_name = %(query_name)s"
    " AND logical_date = %(logical_date)s"
)


def key_values(key: PartitionKey) -> dict[str, object]:
    """Return a key as statement parameters."""
    return {
        "source": key.source,
        "customer_id": key.customer_id,
        "query_name": key.query_name,
        "logical_date": key.logical_date,
    }


def key_arrays(keys: Sequence[PartitionKey]) -> dict[str, object]:
    """Return keys as statement parameters, one array per column."""
    return {
        "sources": [key.source for key in keys],
        "customer_ids": [key.customer_id for key in keys],
        "query_names": [key.query_name for key in keys],
        "logical_dates": [key.logical_date for key in keys],
    }


def partition_from_row(row: Any) -> Partition:
    return Partition(
        key=_key_from_row(row),
        status=PartitionStatus(row.status),
        attempt_count=row.attempt_count,
        current_run_id=row.current_run_id,
        active_run_id=row.active_run_id,
        last_run_id=row.last_run_id,
        abandoned=row.abandoned,
        needs_review=row.needs_review,
        terminal_marker=row.terminal_marker,
        error_message=row.error_message,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _key_from_row(row: Any) -> PartitionKey:
    return PartitionKey(
        source=row.source,
        customer_id=row.customer_id,
        query_name=row.query_name,
        logical_date=row.logical_date,
    )


def to_partition_row(change: Change[Partition]) -> dict[str, object]:
    """Return the parameters that store a changed partition, with the transition and its actor."""
    partition = change.after
    return {
        **key_values(partition.key),
        "status": partition.status,
        "attempt_count": partition.attempt_count,
        "current_run_id": partition.current_run_id,
        "active_run_id": partition.active_run_id,
        "last_run_id": partition.last_run_id,
        "abandoned": partition.abandoned,
        "needs_review": partition.needs_review,
        "terminal_marker": partition.terminal_marker,
        "error_message": partition.error_message,
        "created_at": partition.created_at,
        "updated_at": partition.updated_at,
        "transition": change.transition,
        "changed_by": change.actor,
    }


def to_verdict_row(change: Change[Partition]) -> dict[str, object] | None:
    """Return the parameters that store a change's verdict; ``None`` if it has no verdict."""
    outcome = find_verdict(change)
    if outcome is None:
        return None
    return {
        **key_values(change.after.key),
        "attempt": change.after.attempt_count,
        "run_id": change.after.last_run_id,
        "outcome": outcome,
        "explanation": change.reason,
        "judged_at": change.at,
    }


def to_raw_row(sealed: SealedPartition) -> dict[str, object]:
    """Return the parameters that store a sealed raw partition."""
    return {
        **key_values(sealed.key),
        "run_id": sealed.run_id,
        "tiles": sealed.tiles,
        "bytes": sealed.size_bytes,
        "manifest_sha256": bytes.fromhex(sealed.manifest_sha256),
        "sealed_at": sealed.sealed_at,
    }


def raw_from_row(row: Any) -> SealedPartition:
    """Build a sealed raw partition from a row joined with its partition's key."""
    return SealedPartition(
        key=_key_from_row(row),
        run_id=RunId(row.run_id),
        tiles=row.tiles,
        size_bytes=row.bytes,
        manifest_sha256=bytes(row.manifest_sha256).hex(),
        sealed_at=row.sealed_at.astimezone(UTC),
    )


def verdict_from_row(row: Any) -> PartitionAttempt:
    return PartitionAttempt(
        attempt=row.attempt,
        run_id=RunId(row.run_id),
        outcome=VerdictOutcome(row.outcome),
        explanation=row.explanation,
        judged_at=row.judged_at,
    )


_WRITTEN = f"{KEY_COLUMNS}, {_STATE}, created_at, transition, changed_by"
_PARAMETERS = ", ".join(f"%({name})s" for name in _WRITTEN.split(", "))
_ID = f"(SELECT id FROM partitions WHERE {KEY_MATCHES})"  # noqa: S608  # interpolates constants only, here and below
INSERT_PARTITION = f"INSERT INTO partitions ({_WRITTEN}) VALUES ({_PARAMETERS})"  # noqa: S608
UPDATE_PARTITION = (
    "UPDATE partitions SET "  # noqa: S608
    + ", ".join(f"{name} = %({name})s" for name in f"{_STATE}, transition, changed_by".split(", "))
    + f" WHERE {KEY_MATCHES}"
)
INSERT_VERDICT = (
    f"INSERT INTO partition_attempts VALUES ({_ID}, %(attempt)s, %(run_id)s, %(outcome)s,"  # noqa: S608
    " %(explanation)s, %(judged_at)s)"
)
INSERT_RAW = (
    f"INSERT INTO raw_partitions VALUES (%(run_id)s, {_ID}, %(tiles)s, %(bytes)s,"  # noqa: S608
    " %(manifest_sha256)s, %(sealed_at)s) ON CONFLICT (run_id) DO NOTHING"
)
PLAN_RETRY = (
    f"INSERT INTO partition_retries VALUES ({_ID}, %(next_run_at)s, %(backoff_strategy)s)"  # noqa: S608
    " ON CONFLICT (partition_id) DO UPDATE SET next_run_at = excluded.next_run_at,"
    " backoff_strategy = excluded.backoff_strategy"
)
FORGET_RETRY = f"DELETE FROM partition_retries WHERE partition_id = {_ID}"  # noqa: S608
