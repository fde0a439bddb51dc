"""Audit log: hash-chained by the database, without gaps, append-only."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the log, its head, and the function that writes both."""
    op.execute(
        """
        CREATE TABLE audit_log (
            sequence bigint NOT NULL CONSTRAINT audit_log_pkey PRIMARY KEY,
            previous_hash bytea NOT NULL,
            hash bytea NOT NULL,
            body bytea NOT NULL,
            event_type text COLLATE "C" NOT NULL,
            occurred_at timestamptz NOT NULL,
            correlation_id text COLLATE "C",
            subject text COLLATE "C",
            group_id uuid,
            CONSTRAINT audit_log_sequence CHECK (sequence > 0)
        )
        """
    )
    # Indexed by hash: a value can exceed the maximum size of an index entry.
    for column, name in (("correlation_id", "correlation"), ("subject", "subject")):
        op.execute(
            f"CREATE INDEX audit_log_by_{name} ON audit_log"
            f" (hashtextextended({column}, 0), sequence) WHERE {column} IS NOT NULL"
        )
    op.execute(
        "CREATE UNIQUE INDEX audit_log_by_group ON audit_log (group_id) WHERE group_id IS NOT NULL"
    )
    op.execute(
        """
        CREATE TABLE audit_head (
            one_row boolean NOT NULL DEFAULT true CONSTRAINT audit_head_pkey PRIMARY KEY,
            sequence bigint NOT NULL,
            hash bytea NOT NULL,
            CONSTRAINT audit_head_one_row CHECK (one_row),
            CONSTRAINT audit_head_place CHECK (sequence >= 0 AND octet_length(hash) = 32)
        )
        """
    )
    op.execute(
        "INSERT INTO audit_head (sequence, hash) VALUES (0, decode(repeat('00', 32), 'hex'))"
    )
    op.execute(_APPEND)
    op.execute(
        """
        CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'the audit log is only ever appended to: % of % is refused',
                TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
        END
        $$
        """
    )
    for table, refused, appends in (
        ("audit_log", "UPDATE OR DELETE OR TRUNCATE", "INSERT"),
        ("audit_head", "INSERT OR DELETE OR TRUNCATE", "UPDATE"),
    ):
        op.execute(
            f"CREATE TRIGGER {table}_append_only BEFORE {refused} ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse()"
        )
        # Rows and head must change together, so only the function that changes both may write. It
        # identifies itself with a setting that contains the transaction's id.
        op.execute(
            f"CREATE TRIGGER {table}_by_function BEFORE {appends} ON {table} FOR EACH STATEMENT"
            " WHEN (current_setting('tileferry.audit_append', true)"
            " IS DISTINCT FROM pg_current_xact_id()::text)"
            " EXECUTE FUNCTION audit_refuse()"
        )


def downgrade() -> None:
    """Drop the log and its head with all entries."""
    op.execute("DROP TABLE audit_head")
    op.execute("DROP TABLE audit_log")
    op.execute("DROP FUNCTION audit_refuse()")
    op.execute("DROP FUNCTION audit_append(uuid, bytea[], text[], timestamptz[], text[], text[])")


# The head's row stays locked until the end of the transaction, so there is one writer at a time,
# and callers append last. A group that exists is not written again: one of its rows has the
# group's id, and the previous holder of the head committed it.
_APPEND = """
CREATE FUNCTION audit_append(
    new_group uuid, bodies bytea[], event_types text[], moments timestamptz[],
    correlation_ids text[], subjects text[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    head audit_head%ROWTYPE;
    number bigint;
    link bytea;
    entry bytea;
    hashes bytea[] := '{}';
BEGIN
    SELECT * INTO head FROM audit_head FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'audit_head has no row: the chain cannot be continued';
    END IF;
    IF EXISTS (SELECT FROM audit_log WHERE group_id = new_group) THEN
        RETURN head.sequence;
    END IF;
    PERFORM set_config('tileferry.audit_append', pg_current_xact_id()::text, true);
    number := head.sequence;
    link := head.hash;
    FOREACH entry IN ARRAY bodies LOOP
        number := number + 1;
        link := sha256(convert_to(
            E'tileferry-audit-v1\\n' || number || E'\\n' || encode(link, 'hex') || E'\\n', 'UTF8'
        ) || entry);
        hashes := hashes || link;
    END LOOP;
    INSERT INTO audit_log (
        sequence, previous_hash, hash, body, event_type, occurred_at, correlation_id, subject,
        group_id
    )
    SELECT head.sequence + n, CASE WHEN n = 1 THEN head.hash ELSE hashes[n - 1] END, hashed, body,
           event_type, moment, correlation_id, subject, CASE WHEN n = 1 THEN new_group END
    FROM unnest(bodies, hashes, event_types, moments, correlation_ids, subjects)
         WITH ORDINALITY AS new(body, hashed, event_type, moment, correlation_id, subject, n);
    UPDATE audit_head SET sequence = number, hash = link;
    PERFORM set_config('tileferry.audit_append', '', true);
    RETURN number;
END
$$
"""
