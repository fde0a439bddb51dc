"""The cache that the tile rows refer to, so that another cache is refused."""

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Create the table; the next use of the cache binds it."""
    op.execute(
        """
        CREATE TABLE bound_cache (
            one_row boolean NOT NULL DEFAULT true CONSTRAINT bound_cache_pkey PRIMARY KEY,
            cache_id text COLLATE "C" NOT NULL,
            place text COLLATE "C" NOT NULL,
            bound_at timestamptz NOT NULL,
            CONSTRAINT bound_cache_one_row CHECK (one_row),
            CONSTRAINT bound_cache_id CHECK (cache_id ~ '^[0-9a-f]{32}$')
        )
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE bound_cache")
