"""Create the tiles table."""

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the table.

    Names use collation "C" (byte order, as in the code). Language collations can change with the
    operating system, which would corrupt the indexes.
    """
    op.execute(
        """
        CREATE TABLE tiles (
            source text COLLATE "C" NOT NULL,
            zoom smallint NOT NULL,
            x integer NOT NULL,
            y integer NOT NULL,
            flight_id text COLLATE "C" NOT NULL,
            produced_at timestamptz NOT NULL,
            resolution_m_per_px double precision NOT NULL,
            sector_class text NOT NULL,
            freshness text NOT NULL,
            voting_status text NOT NULL,
            segment integer NOT NULL,
            byte_offset bigint NOT NULL,
            byte_length integer NOT NULL,
            sha256 bytea NOT NULL,
            stored_at timestamptz NOT NULL,
            last_used_at timestamptz NOT NULL,
            uploaded_at timestamptz,
            CONSTRAINT tiles_pkey PRIMARY KEY (source, zoom, x, y),
            CONSTRAINT tiles_zoom CHECK (zoom BETWEEN 0 AND 21),
            CONSTRAINT tiles_x CHECK (x >= 0 AND x < (1 << zoom::integer)),
            CONSTRAINT tiles_y CHECK (y >= 0 AND y < (1 << zoom::integer)),
            CONSTRAINT tiles_resolution CHECK (
                resolution_m_per_px > 0 AND resolution_m_per_px < 'infinity'
            ),
            CONSTRAINT tiles_sector_class CHECK (
                sector_class IN ('active_conflict', 'stable_rear')
            ),
            CONSTRAINT tiles_freshness CHECK (freshness IN ('fresh', 'downgraded')),
            CONSTRAINT tiles_voting_status CHECK (
                voting_status IN ('pending', 'uploaded', 'trusted', 'rejected', 'upload_giveup')
            ),
            CONSTRAINT tiles_blob CHECK (segment > 0 AND byte_offset >= 0 AND byte_length >= 0),
            CONSTRAINT tiles_sha256 CHECK (octet_length(sha256) = 32),
            CONSTRAINT tiles_uploaded_at CHECK (
                CASE WHEN voting_status IN ('pending', 'upload_giveup') THEN uploaded_at IS NULL
                     WHEN voting_status IN ('uploaded', 'rejected') THEN uploaded_at IS NOT NULL
                     ELSE true END
            )
        )
        """
    )
    op.execute("CREATE INDEX tiles_by_place ON tiles (zoom, x, y)")
    op.execute("CREATE UNIQUE INDEX tiles_by_blob ON tiles (segment, byte_offset)")
    op.execute("CREATE INDEX tiles_by_use ON tiles (last_used_at)")
    op.execute(
        "CREATE INDEX tiles_pending ON tiles (flight_id, source, zoom, x, y)"
        " WHERE voting_status = 'pending'"
    )


def downgrade() -> None:
    """Drop the table with all rows."""
    op.execute("DROP TABLE tiles")
