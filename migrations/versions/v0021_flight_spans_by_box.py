"""An index that finds the spans around a tile: a shape has thousands of spans."""

from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Create the index on the rectangles of spans, which may be wide."""
    op.execute(
        "CREATE INDEX flight_spans_by_box ON flight_spans"
        " USING gist (box(point(x_min, y_min), point(x_max, y_max)))"
    )


def downgrade() -> None:
    op.execute("DROP INDEX flight_spans_by_box")
