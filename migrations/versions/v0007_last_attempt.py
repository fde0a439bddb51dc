"""Which rejected upload of a tile was counted last."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the column: what a crash has counted again counts once."""
    op.execute('ALTER TABLE tiles ADD COLUMN last_attempt text COLLATE "C"')


def downgrade() -> None:
    """Drop it. A count that a crash repeats is made twice then."""
    op.execute("ALTER TABLE tiles DROP COLUMN last_attempt")
