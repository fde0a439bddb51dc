"""The shapes of flights' areas: polygons and lines in their canonical text.

The digest makes the unique constraint possible: an index has no room for a long text.
"""

from alembic import op

revision = "0019"
down_revision = "0018"

_KEY = "flight_id, source, bbox, zoom_levels, sector_class"


def upgrade() -> None:
    """Add the columns. Areas without a shape are boxes."""
    op.execute(
        f"""
        ALTER TABLE flight_areas
            ADD COLUMN shape text COLLATE "C",
            ADD COLUMN shape_digest text COLLATE "C" NOT NULL DEFAULT '',
            ADD CONSTRAINT flight_areas_shape CHECK ((shape IS NULL) = (shape_digest = '')),
            DROP CONSTRAINT flight_areas_once,
            ADD CONSTRAINT flight_areas_once UNIQUE ({_KEY}, shape_digest)
        """
    )


def downgrade() -> None:
    """Turn shapes into their boxes, each once. What pins protect stays the same."""
    op.execute(
        f"""
        DELETE FROM flight_areas WHERE area_id NOT IN (
            SELECT min(area_id) FROM flight_areas GROUP BY {_KEY}
        )
        """  # noqa: S608  # a constant
    )
    op.execute(
        f"""
        ALTER TABLE flight_areas
            DROP CONSTRAINT flight_areas_once,
            DROP COLUMN shape,
            DROP COLUMN shape_digest,
            ADD CONSTRAINT flight_areas_once UNIQUE ({_KEY})
        """
    )
