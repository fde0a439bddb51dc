"""Table definitions for the run queue and partitions."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from tileferry.adapters.postgres.schema import NAME, enum_check, metadata, timestamp_column
from tileferry.domain.runs import RunKind

_NONE = text("0")
_FALSE = text("false")

runs = Table(
    "runs",
    metadata,
    Column("run_id", NAME, nullable=False, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("source", NAME, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    timestamp_column("submitted_date"),
    Column("dedupe_key", NAME),
    Column("payload", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("ready", Boolean, nullable=False),
    Column("retry_count", Integer, nullable=False, server_default=_NONE),
    Column("rate_limited_count", Integer, nullable=False, server_default=_NONE),
    Column("rescues", Integer, nullable=False, server_default=_NONE),
    timestamp_column("next_retry_at", nullable=True),
    Column("error_class", Text),
    Column("error_message", Text),
    Column("worker", NAME),
    timestamp_column("lease_expires_at", nullable=True),
    Column("lease_epoch", BigInteger, nullable=False, server_default=_NONE),
    timestamp_column("began_at", nullable=True),
    timestamp_column("ended_at", nullable=True),
    Column("needs_token", Boolean, nullable=False, server_default=_FALSE),
    Column("progress", Text),
    CheckConstraint(enum_check("kind", RunKind), name="runs_kind"),
    CheckConstraint("priority IN (0, 1)", name="runs_priority"),
    CheckConstraint(
        "retry_count >= 0 AND rate_limited_count >= 0 AND rescues >= 0 AND lease_epoch >= 0",
        name="runs_counts",
    ),
    CheckConstraint(
        "error_class IN ('final', 'retryable', 'rate_limited')", name="runs_error_class"
    ),
    CheckConstraint(
        "CASE status"
        " WHEN 'discovered' THEN ready AND num_nonnulls(next_retry_at, lease_expires_at) = 0"
        " AND num_nulls(error_class, error_message) <> 1"
        " AND (lease_epoch > 0 OR (num_nonnulls(error_class, worker, began_at, ended_at) = 0"
        " AND retry_count + rate_limited_count + rescues = 0))"
        " WHEN 'processing' THEN NOT ready AND lease_epoch > 0"
        " AND num_nulls(worker, lease_expires_at, began_at) = 0"
        " AND num_nonnulls(next_retry_at, ended_at) = 0"
        " AND num_nulls(error_class, error_message) <> 1"
        " WHEN 'error' THEN num_nulls(error_class, error_message) = 0"
        " AND lease_expires_at IS NULL AND (next_retry_at IS NOT NULL OR NOT ready)"
        " ELSE status IN ('passed', 'needs_review', 'failed') AND NOT ready"
        " AND lease_epoch > 0 AND retry_count + rate_limited_count = 0"
        " AND num_nulls(worker, began_at, ended_at) = 0"
        " AND num_nonnulls(next_retry_at, error_class, lease_expires_at) = 0"
        " AND (error_message IS NULL) = (status = 'passed')"
        " END",
        name="runs_state",
    ),
    CheckConstraint(
        "NOT needs_token OR (status = 'error' AND next_retry_at IS NOT NULL)",
        name="runs_needs_token",
    ),
    CheckConstraint("progress IS NULL OR status = 'processing'", name="runs_progress"),
    Index(
        "runs_ready",
        "source",
        "priority",
        "submitted_date",
        "run_id",
        postgresql_where=text("ready"),
    ),
    Index(
        "runs_waiting",
        "source",
        "next_retry_at",
        postgresql_where=text("next_retry_at IS NOT NULL"),
    ),
    Index("runs_leased", "lease_expires_at", postgresql_where=text("lease_expires_at IS NOT NULL")),
    Index(
        "runs_of_note",
        "submitted_date",
        "run_id",
        postgresql_where=text("status IN ('error', 'failed', 'needs_review')"),
    ),
    Index("runs_by_submission", "submitted_date", "run_id"),
    Index(
        "runs_by_dedupe_key",
        "dedupe_key",
        unique=True,
        postgresql_where=text(
            "dedupe_key IS NOT NULL"
            " AND (status IN ('discovered', 'processing') OR next_retry_at IS NOT NULL)"
        ),
    ),
)

run_attempts = Table(
    "run_attempts",
    metadata,
    Column("run_id", NAME, ForeignKey("runs.run_id", name="run_attempts_run"), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("worker", NAME, nullable=False),
    timestamp_column("began_at"),
    timestamp_column("ended_at"),
    Column("outcome", Text, nullable=False),
    Column("error_class", Text),
    Column("error_message", Text),
    Column("delay_s", Double),
    PrimaryKeyConstraint("run_id", "epoch", name="run_attempts_pkey"),
    CheckConstraint(
        "outcome IN ('error', 'lost', 'released', 'cancelled')"
        " AND (outcome = 'released' OR num_nulls(error_class, error_message) = 0)",
        name="run_attempts_outcome",
    ),
)

source_gates = Table(
    "source_gates",
    metadata,
    Column("source", NAME, nullable=False, primary_key=True),
    timestamp_column("closed_until", nullable=True),
    Column("tokens", Double, nullable=False),
    timestamp_column("refilled_at"),
    CheckConstraint("tokens >= 0", name="source_gates_tokens"),
)

partitions = Table(
    "partitions",
    metadata,
    Column("id", BigInteger, Identity(always=True), nullable=False, primary_key=True),
    Column("source", NAME, nullable=False),
    Column("customer_id", NAME, nullable=False),
    Column("query_name", NAME, nullable=False),
    Column("logical_date", Date, nullable=False),
    Column("status", Text, nullable=False),
    Column("attempt_count", Integer, nullable=False, server_default=_NONE),
    Column("current_run_id", NAME),
    Column("active_run_id", NAME, ForeignKey("runs.run_id", name="partitions_active_run")),
    Column(
        "last_run_id", NAME, ForeignKey("runs.run_id", name="partitions_last_run"), nullable=False
    ),
    Column("abandoned", Boolean, nullable=False, server_default=_FALSE),
    Column("needs_review", Boolean, nullable=False, server_default=_FALSE),
    Column("terminal_marker", Text),
    Column("error_message", Text),
    timestamp_column("created_at"),
    timestamp_column("updated_at"),
    Column("transition", Text, nullable=False),
    Column("changed_by", Text, nullable=False),
    UniqueConstraint("source", "customer_id", "query_name", "logical_date", name="partitions_key"),
    ForeignKeyConstraint(
        ["id", "current_run_id"],
        ["raw_partitions.partition_id", "raw_partitions.run_id"],
        name="partitions_current_run",
        use_alter=True,
    ),
    CheckConstraint(
        "attempt_count >= (current_run_id IS NOT NULL)::integer", name="partitions_attempt_count"
    ),
    CheckConstraint("updated_at >= created_at", name="partitions_times"),
    CheckConstraint(
        "active_run_id IS NULL OR"
        " (active_run_id = last_run_id AND active_run_id IS DISTINCT FROM current_run_id)",
        name="partitions_active",
    ),
    CheckConstraint(
        "CASE status"
        " WHEN 'pending' THEN active_run_id IS NOT NULL AND NOT abandoned"
        " AND NOT needs_review AND terminal_marker IS NULL"
        " WHEN 'success' THEN attempt_count > 0 AND current_run_id IS NOT NULL"
        " AND terminal_marker IS NULL AND NOT (abandoned AND active_run_id IS NOT NULL)"
        " WHEN 'failed' THEN error_message IS NOT NULL AND active_run_id IS NULL"
        " AND NOT needs_review AND (abandoned OR attempt_count > 0)"
        " ELSE false END",
        name="partitions_state",
    ),
    Index("partitions_by_last_run", "last_run_id", unique=True),
    Index("partitions_failed", "source", "updated_at", postgresql_where=text("status = 'failed'")),
)


def _partition_id_column() -> Column[object]:
    return Column("partition_id", BigInteger, nullable=False)


def _partition_foreign_key(table: str) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["partition_id"], ["partitions.id"], name=f"{table}_partition")


raw_partitions = Table(
    "raw_partitions",
    metadata,
    Column(
        "run_id",
        NAME,
        ForeignKey("runs.run_id", name="raw_partitions_run"),
        nullable=False,
        primary_key=True,
    ),
    _partition_id_column(),
    Column("tiles", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("manifest_sha256", LargeBinary, nullable=False),
    timestamp_column("sealed_at"),
    _partition_foreign_key("raw_partitions"),
    UniqueConstraint("partition_id", "run_id", name="raw_partitions_of"),
    CheckConstraint("octet_length(manifest_sha256) = 32", name="raw_partitions_manifest"),
)

partition_attempts = Table(
    "partition_attempts",
    metadata,
    _partition_id_column(),
    Column("attempt", Integer, nullable=False),
    Column(
        "run_id", NAME, ForeignKey("runs.run_id", name="partition_attempts_run"), nullable=False
    ),
    Column("outcome", Text, nullable=False),
    Column("explanation", Text),
    timestamp_column("judged_at"),
    PrimaryKeyConstraint("partition_id", "attempt", name="partition_attempts_pkey"),
    _partition_foreign_key("partition_attempts"),
    UniqueConstraint("run_id", name="partition_attempts_once"),
    CheckConstraint(
        "outcome IN ('passed', 'needs_review', 'failed')"
        " AND (explanation IS NULL) = (outcome = 'passed')",
        name="partition_attempts_outcome",
    ),
)

partition_retries = Table(
    "partition_retries",
    metadata,
    Column("partition_id", BigInteger, nullable=False, primary_key=True, autoincrement=False),
    timestamp_column("next_run_at"),
    Column("backoff_strategy", Text, nullable=False),
    _partition_foreign_key("partition_retries"),
    Index("partition_retries_by_time", "next_run_at"),
)

partition_moves = Table(
    "partition_moves",
    metadata,
    Column("transition", Text, nullable=False),
    Column("from_status", Text, nullable=False),
    Column("to_status", Text, nullable=False),
    Column("actor", Text, nullable=False),
    PrimaryKeyConstraint(
        "transition", "from_status", "to_status", "actor", name="partition_moves_pkey"
    ),
)
"""The allowed transitions; a database trigger enforces them."""
