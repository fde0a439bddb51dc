"""The last commit of each session, so that a commit whose answer was lost can be looked up."""

from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Create the table. Its rows are updated in place: the index has the session only."""
    op.execute(
        """
        CREATE TABLE session_commits (
            session bigint NOT NULL,
            number bigint NOT NULL,
            committed_at timestamptz NOT NULL,
            CONSTRAINT session_commits_pkey PRIMARY KEY (session),
            CONSTRAINT session_commits_number CHECK (number > 0)
        ) WITH (fillfactor = 50)
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE session_commits")
