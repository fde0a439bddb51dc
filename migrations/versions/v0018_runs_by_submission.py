"""An index of all runs by their submission, for lists without a filter."""

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Create the index: ``runs_of_note`` leaves out most runs, those that passed."""
    op.execute("CREATE INDEX runs_by_submission ON runs (submitted_date, run_id)")


def downgrade() -> None:
    op.execute("DROP INDEX runs_by_submission")
