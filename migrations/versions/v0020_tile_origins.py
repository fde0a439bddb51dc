"""Which tiles were delivered by another server than that of their source."""

from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE tile_origins (
            source text COLLATE "C" NOT NULL,
            zoom smallint NOT NULL,
            x integer NOT NULL,
            y integer NOT NULL,
            sha256 bytea NOT NULL,
            origin text COLLATE "C" NOT NULL,
            CONSTRAINT tile_origins_pkey PRIMARY KEY (source, zoom, x, y),
            CONSTRAINT tile_origins_zoom CHECK (zoom BETWEEN 0 AND 21),
            CONSTRAINT tile_origins_x CHECK (x >= 0 AND x < (1 << zoom::integer)),
            CONSTRAINT tile_origins_y CHECK (y >= 0 AND y < (1 << zoom::integer)),
            CONSTRAINT tile_origins_sha256 CHECK (length(sha256) = 32),
            CONSTRAINT tile_origins_origin CHECK (origin <> '')
        )
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE tile_origins")
