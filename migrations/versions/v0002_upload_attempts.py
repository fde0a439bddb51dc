"""How often each tile's upload was rejected."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Start every tile at no attempts."""
    op.execute("ALTER TABLE tiles ADD COLUMN upload_attempts integer NOT NULL DEFAULT 0")


def downgrade() -> None:
    """Forget the counts."""
    op.execute("ALTER TABLE tiles DROP COLUMN upload_attempts")
