"""Count the rejected uploads of each tile."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the counter; it starts at 0 for every tile."""
    op.execute("ALTER TABLE tiles ADD COLUMN upload_attempts integer NOT NULL DEFAULT 0")


def downgrade() -> None:
    """Drop the counter."""
    op.execute("ALTER TABLE tiles DROP COLUMN upload_attempts")
