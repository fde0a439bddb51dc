"""When the provider last confirmed a tile, and how its server recognizes the version."""

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the columns. A tile without ``confirmed_at`` was last confirmed when it was stored."""
    op.execute(
        "ALTER TABLE tiles ADD COLUMN confirmed_at timestamptz,"
        " ADD COLUMN etag text, ADD COLUMN last_modified text"
    )


def downgrade() -> None:
    op.execute(
        "ALTER TABLE tiles DROP COLUMN confirmed_at, DROP COLUMN etag, DROP COLUMN last_modified"
    )
