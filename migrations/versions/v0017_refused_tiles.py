"""Tiles that a gate refused, so that operators see where and why imagery is missing."""

from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE refused_tiles (
            source text COLLATE "C" NOT NULL,
            zoom smallint NOT NULL,
            x integer NOT NULL,
            y integer NOT NULL,
            sector_class text NOT NULL,
            gate text NOT NULL,
            produced_at timestamptz NOT NULL,
            resolution_m_per_px double precision NOT NULL,
            refused_at timestamptz NOT NULL,
            CONSTRAINT refused_tiles_pkey PRIMARY KEY (source, zoom, x, y, sector_class),
            CONSTRAINT refused_tiles_zoom CHECK (zoom BETWEEN 0 AND 21),
            CONSTRAINT refused_tiles_x CHECK (x >= 0 AND x < (1 << zoom::integer)),
            CONSTRAINT refused_tiles_y CHECK (y >= 0 AND y < (1 << zoom::integer)),
            CONSTRAINT refused_tiles_sector_class CHECK (
                sector_class IN ('active_conflict', 'stable_rear')
            ),
            CONSTRAINT refused_tiles_gate CHECK (gate IN ('resolution', 'freshness')),
            CONSTRAINT refused_tiles_resolution CHECK (
                resolution_m_per_px > 0 AND resolution_m_per_px < 'infinity'
            )
        )
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE refused_tiles")
