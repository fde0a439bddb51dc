"""Cache budget: pinned flights and space reservations."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the tables of pins and reservations."""
    op.execute(
        "ALTER TABLE tiles ADD CONSTRAINT tiles_upload_attempts CHECK (upload_attempts >= 0)"
    )
    op.execute(
        """
        CREATE TABLE flight_pins (
            flight_id text COLLATE "C" NOT NULL CONSTRAINT flight_pins_pkey PRIMARY KEY,
            pinned_at timestamptz NOT NULL
        )
        """
    )
    op.execute(
        """
        CREATE TABLE cache_reservations (
            reservation_id text COLLATE "C" NOT NULL CONSTRAINT cache_reservations_pkey PRIMARY KEY,
            reserved_bytes bigint NOT NULL,
            expires_at timestamptz NOT NULL,
            CONSTRAINT cache_reservations_bytes CHECK (reserved_bytes >= 0)
        )
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE cache_reservations")
    op.execute("DROP TABLE flight_pins")
    op.execute("ALTER TABLE tiles DROP CONSTRAINT tiles_upload_attempts")
