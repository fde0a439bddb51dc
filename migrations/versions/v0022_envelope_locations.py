"""Locations and answers of the tiles of an open upload, to settle it after a later capture."""

from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Add the locations, as pairs of numbers, and the answers that are not counted yet."""
    op.execute("ALTER TABLE upload_envelopes ADD COLUMN locations bigint[]")
    op.execute("ALTER TABLE upload_envelopes ADD COLUMN rejected boolean[]")


def downgrade() -> None:
    op.execute("ALTER TABLE upload_envelopes DROP COLUMN rejected")
    op.execute("ALTER TABLE upload_envelopes DROP COLUMN locations")
