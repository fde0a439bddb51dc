"""The last counted rejected upload of each tile."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the column, so that an attempt repeated after a crash is counted once."""
    op.execute('ALTER TABLE tiles ADD COLUMN last_attempt text COLLATE "C"')


def downgrade() -> None:
    """Drop the column. An attempt repeated after a crash is then counted twice."""
    op.execute("ALTER TABLE tiles DROP COLUMN last_attempt")
