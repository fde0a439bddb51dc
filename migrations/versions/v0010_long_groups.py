"""Faster append of large audit groups: the previous hash is found without a scan of the group."""

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Replace the append function; it writes the same rows."""
    op.execute(_function("lag(hashed, 1, head.hash) OVER (ORDER BY n)"))


def downgrade() -> None:
    """Restore the old function, whose cost grows with the square of the group's size."""
    op.execute(_function("CASE WHEN n = 1 THEN head.hash ELSE hashes[n - 1] END"))


def _function(previous_hash: str) -> str:
    return _APPEND.replace("PREVIOUS_HASH", previous_hash)


# The function of revision 0004 with one expression changed.
_APPEND = """
CREATE OR REPLACE FUNCTION audit_append(
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
    SELECT head.sequence + n, PREVIOUS_HASH, hashed, body,
           event_type, moment, correlation_id, subject, CASE WHEN n = 1 THEN new_group END
    FROM unnest(bodies, hashes, event_types, moments, correlation_ids, subjects)
         WITH ORDINALITY AS new(body, hashed, event_type, moment, correlation_id, subject, n);
    UPDATE audit_head SET sequence = number, hash = link;
    PERFORM set_config('tileferry.audit_append', '', true);
    RETURN number;
END
$$
"""
