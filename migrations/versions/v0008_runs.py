"""Run queue: runs with leases and retries, their attempts, and the gate of each source."""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the tables, and the indexes for claims, sweeps and listings."""
    # Only ``ready`` runs can be claimed. A run that waits for its retry becomes ready when it is
    # due and its source's tokens allow it, so a claim never scans runs that may not start yet.
    # ``worker``, ``began_at`` and ``ended_at`` describe the newest attempt, also after it has
    # ended.
    op.execute(
        """
        CREATE TABLE runs (
            run_id text COLLATE "C" NOT NULL CONSTRAINT runs_pkey PRIMARY KEY,
            kind text NOT NULL,
            source text COLLATE "C" NOT NULL,
            priority smallint NOT NULL,
            submitted_date timestamptz NOT NULL,
            dedupe_key text COLLATE "C",
            payload text NOT NULL,
            status text NOT NULL,
            ready boolean NOT NULL,
            retry_count integer NOT NULL DEFAULT 0,
            rate_limited_count integer NOT NULL DEFAULT 0,
            rescues integer NOT NULL DEFAULT 0,
            next_retry_at timestamptz,
            error_class text,
            error_message text,
            worker text COLLATE "C",
            lease_expires_at timestamptz,
            lease_epoch bigint NOT NULL DEFAULT 0,
            began_at timestamptz,
            ended_at timestamptz,
            CONSTRAINT runs_kind CHECK (
                kind IN ('acquire_partition', 'download_area', 'upload_flight')
            ),
            CONSTRAINT runs_priority CHECK (priority IN (0, 1)),
            CONSTRAINT runs_counts CHECK (
                retry_count >= 0 AND rate_limited_count >= 0 AND rescues >= 0 AND lease_epoch >= 0
            ),
            CONSTRAINT runs_error_class CHECK (
                error_class IN ('final', 'retryable', 'rate_limited')
            ),
            CONSTRAINT runs_state CHECK (
                CASE status
                WHEN 'discovered' THEN ready AND lease_epoch = 0 AND num_nonnulls(
                        next_retry_at, error_class, error_message, worker, lease_expires_at,
                        began_at, ended_at
                    ) = 0 AND retry_count + rate_limited_count + rescues = 0
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
            )
        )
        """
    )
    op.execute(
        "CREATE INDEX runs_ready ON runs (source, priority, submitted_date, run_id) WHERE ready"
    )
    op.execute(
        "CREATE INDEX runs_waiting ON runs (source, next_retry_at)"
        " WHERE next_retry_at IS NOT NULL AND NOT ready"
    )
    op.execute(
        "CREATE INDEX runs_leased ON runs (lease_expires_at) WHERE lease_expires_at IS NOT NULL"
    )
    op.execute(
        "CREATE INDEX runs_of_note ON runs (submitted_date, run_id)"
        " WHERE status IN ('error', 'failed', 'needs_review')"
    )
    op.execute(
        "CREATE UNIQUE INDEX runs_by_dedupe_key ON runs (dedupe_key) WHERE dedupe_key IS NOT NULL"
        " AND (status IN ('discovered', 'processing') OR next_retry_at IS NOT NULL)"
    )
    op.execute(
        """
        CREATE TABLE run_attempts (
            run_id text COLLATE "C" NOT NULL
                CONSTRAINT run_attempts_run REFERENCES runs (run_id),
            epoch bigint NOT NULL,
            worker text COLLATE "C" NOT NULL,
            began_at timestamptz NOT NULL,
            ended_at timestamptz NOT NULL,
            outcome text NOT NULL,
            error_class text NOT NULL,
            error_message text NOT NULL,
            delay_s double precision,
            CONSTRAINT run_attempts_pkey PRIMARY KEY (run_id, epoch),
            CONSTRAINT run_attempts_outcome CHECK (outcome IN ('error', 'lost', 'released'))
        )
        """
    )
    op.execute(
        """
        CREATE TABLE source_gates (
            source text COLLATE "C" NOT NULL CONSTRAINT source_gates_pkey PRIMARY KEY,
            closed_until timestamptz,
            tokens double precision NOT NULL,
            refilled_at timestamptz NOT NULL,
            CONSTRAINT source_gates_tokens CHECK (tokens >= 0)
        )
        """
    )


def downgrade() -> None:
    """Drop the tables with all queued runs."""
    op.execute("DROP TABLE source_gates")
    op.execute("DROP TABLE run_attempts")
    op.execute("DROP TABLE runs")
