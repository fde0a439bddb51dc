"""Runs pay for retries when they are claimed, report progress, and are given back as queued."""

from alembic import op

revision = "0012"
down_revision = "0011"

_COMMON = """
    WHEN 'processing' THEN NOT ready AND lease_epoch > 0
        AND num_nulls(worker, lease_expires_at, began_at) = 0
        AND num_nonnulls(next_retry_at, ended_at) = 0
        AND num_nulls(error_class, error_message) <> 1
    WHEN 'error' THEN num_nulls(error_class, error_message) = 0
        AND lease_expires_at IS NULL AND (next_retry_at IS NOT NULL OR NOT ready)
    ELSE status IN ('passed', 'needs_review', 'failed') AND NOT ready
        AND lease_epoch > 0 AND retry_count + rate_limited_count = 0
        AND num_nulls(worker, began_at, ended_at) = 0
        AND num_nonnulls(next_retry_at, error_class, lease_expires_at) = 0
        AND (error_message IS NULL) = (status = 'passed')
    END
"""


def upgrade() -> None:
    """Add the columns; relax the state of a queued run, which may have had attempts."""
    op.execute("ALTER TABLE runs ADD COLUMN needs_token boolean NOT NULL DEFAULT false")
    op.execute("ALTER TABLE runs ADD COLUMN progress text")
    # Retries that are already scheduled still pay for themselves.
    op.execute(
        "UPDATE runs SET needs_token = true"
        " WHERE next_retry_at IS NOT NULL AND NOT ready AND error_class = 'retryable'"
    )
    op.execute(
        "ALTER TABLE runs ADD CONSTRAINT runs_needs_token"
        " CHECK (NOT needs_token OR (status = 'error' AND next_retry_at IS NOT NULL))"
    )
    op.execute(
        "ALTER TABLE runs ADD CONSTRAINT runs_progress"
        " CHECK (progress IS NULL OR status = 'processing')"
    )
    _replace_state(
        "WHEN 'discovered' THEN ready AND num_nonnulls(next_retry_at, lease_expires_at) = 0"
        " AND num_nulls(error_class, error_message) <> 1"
        " AND (lease_epoch > 0 OR (num_nonnulls(error_class, worker, began_at, ended_at) = 0"
        " AND retry_count + rate_limited_count + rescues = 0))"
    )
    op.execute("DROP INDEX runs_waiting")
    op.execute(
        "CREATE INDEX runs_waiting ON runs (source, next_retry_at) WHERE next_retry_at IS NOT NULL"
    )
    op.execute("ALTER TABLE run_attempts ALTER error_class DROP NOT NULL")
    op.execute("ALTER TABLE run_attempts ALTER error_message DROP NOT NULL")
    op.execute("ALTER TABLE run_attempts DROP CONSTRAINT run_attempts_outcome")
    op.execute(
        "ALTER TABLE run_attempts ADD CONSTRAINT run_attempts_outcome CHECK ("
        "outcome IN ('error', 'lost', 'released', 'cancelled')"
        " AND (outcome = 'released' OR num_nulls(error_class, error_message) = 0))"
    )


def downgrade() -> None:
    """Turn queued runs that had attempts back into waiting ones."""
    op.execute("UPDATE runs SET progress = NULL WHERE progress IS NOT NULL")
    op.execute("ALTER TABLE runs DROP CONSTRAINT runs_state")
    op.execute(
        "UPDATE runs SET status = 'error', next_retry_at = now(),"
        " error_class = coalesce(error_class, 'retryable'),"
        " error_message = coalesce(error_message, 'released by worker ' || worker)"
        " WHERE status = 'discovered' AND lease_epoch > 0"
    )
    _replace_state(
        "WHEN 'discovered' THEN ready AND lease_epoch = 0 AND num_nonnulls("
        "next_retry_at, error_class, error_message, worker, lease_expires_at, began_at, ended_at"
        ") = 0 AND retry_count + rate_limited_count + rescues = 0"
    )
    op.execute("DROP INDEX runs_waiting")
    op.execute(
        "CREATE INDEX runs_waiting ON runs (source, next_retry_at)"
        " WHERE next_retry_at IS NOT NULL AND NOT ready"
    )
    op.execute("ALTER TABLE runs DROP COLUMN progress")
    op.execute("ALTER TABLE runs DROP COLUMN needs_token")
    op.execute("ALTER TABLE run_attempts DROP CONSTRAINT run_attempts_outcome")
    op.execute(
        "UPDATE run_attempts SET error_class = coalesce(error_class, 'retryable'),"
        " error_message = coalesce(error_message, 'released by worker ' || worker),"
        " outcome = CASE outcome WHEN 'cancelled' THEN 'error' ELSE outcome END"
        " WHERE outcome IN ('released', 'cancelled')"
    )
    op.execute(
        "ALTER TABLE run_attempts ADD CONSTRAINT run_attempts_outcome"
        " CHECK (outcome IN ('error', 'lost', 'released'))"
    )
    op.execute("ALTER TABLE run_attempts ALTER error_class SET NOT NULL")
    op.execute("ALTER TABLE run_attempts ALTER error_message SET NOT NULL")


def _replace_state(discovered: str) -> None:
    op.execute("ALTER TABLE runs DROP CONSTRAINT IF EXISTS runs_state")
    op.execute(
        f"ALTER TABLE runs ADD CONSTRAINT runs_state CHECK (CASE status {discovered}{_COMMON})"
    )
