"""Tiles that the provider did not have, so that they are not requested again at once."""

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE absent_tiles (
            source text COLLATE "C" NOT NULL,
            zoom smallint NOT NULL,
            x integer NOT NULL,
            y integer NOT NULL,
            absent_at timestamptz NOT NULL,
            CONSTRAINT absent_tiles_pkey PRIMARY KEY (source, zoom, x, y),
            CONSTRAINT absent_tiles_zoom CHECK (zoom BETWEEN 0 AND 21),
            CONSTRAINT absent_tiles_x CHECK (x >= 0 AND x < (1 << zoom::integer)),
            CONSTRAINT absent_tiles_y CHECK (y >= 0 AND y < (1 << zoom::integer))
        )
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE absent_tiles")
