"""Idempotency records: claims in progress and recorded outcomes."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table."""
    # The primary key is a hash, since a key can exceed the maximum size of an index entry. Each
    # state uses its own columns; the columns of other states are NULL.
    op.execute(
        """
        CREATE TABLE idempotency_records (
            key_sha256 bytea NOT NULL CONSTRAINT idempotency_records_pkey PRIMARY KEY,
            key text COLLATE "C" NOT NULL,
            fingerprint text COLLATE "C" NOT NULL,
            epoch bigint NOT NULL,
            owner text COLLATE "C" NOT NULL,
            state text NOT NULL,
            lease_expires_at timestamptz,
            result bytea,
            error_type text,
            error_message text,
            recorded_at timestamptz,
            expires_at timestamptz,
            CONSTRAINT idempotency_records_key CHECK (octet_length(key_sha256) = 32),
            CONSTRAINT idempotency_records_epoch CHECK (epoch > 0),
            CONSTRAINT idempotency_records_expiry CHECK (expires_at > recorded_at),
            CONSTRAINT idempotency_records_state CHECK (
                CASE state
                WHEN 'in_progress' THEN lease_expires_at IS NOT NULL
                    AND num_nonnulls(result, error_type, error_message, recorded_at, expires_at) = 0
                WHEN 'completed' THEN num_nulls(result, recorded_at) = 0
                    AND num_nonnulls(lease_expires_at, error_type, error_message) = 0
                WHEN 'failed' THEN num_nulls(error_type, error_message, recorded_at) = 0
                    AND num_nonnulls(lease_expires_at, result) = 0
                ELSE false END
            )
        )
        """
    )
    op.execute(
        "CREATE INDEX idempotency_records_by_expiry ON idempotency_records (expires_at)"
        " WHERE expires_at IS NOT NULL"
    )
    op.execute(
        "CREATE INDEX idempotency_records_by_lease ON idempotency_records (lease_expires_at)"
        " WHERE lease_expires_at IS NOT NULL"
    )


def downgrade() -> None:
    """Drop the table with all records."""
    op.execute("DROP TABLE idempotency_records")
