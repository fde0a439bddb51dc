"""Signed upload batches whose results are not recorded yet."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the table of envelopes, and the indexes that find pending and given-up tiles."""
    op.execute(
        """
        CREATE TABLE upload_envelopes (
            key text COLLATE "C" NOT NULL CONSTRAINT upload_envelopes_pkey PRIMARY KEY,
            flight_id text COLLATE "C" NOT NULL,
            number bigint GENERATED ALWAYS AS IDENTITY,
            manifest bytea NOT NULL,
            body_sha256 bytea NOT NULL,
            signed_at text COLLATE "C" NOT NULL,
            public_key bytea NOT NULL,
            signature bytea NOT NULL,
            CONSTRAINT upload_envelopes_body CHECK (octet_length(body_sha256) = 32),
            CONSTRAINT upload_envelopes_public_key CHECK (octet_length(public_key) = 32),
            CONSTRAINT upload_envelopes_signature CHECK (octet_length(signature) = 64)
        )
        """
    )
    op.execute("CREATE INDEX upload_envelopes_by_flight ON upload_envelopes (flight_id, number)")
    op.execute(
        "CREATE INDEX tiles_given_up ON tiles (flight_id, source, zoom, x, y)"
        " WHERE voting_status = 'upload_giveup'"
    )


def downgrade() -> None:
    """Drop them. Open batches are then signed again, under a new key."""
    op.execute("DROP INDEX tiles_given_up")
    op.execute("DROP TABLE upload_envelopes")
