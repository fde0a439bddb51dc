"""Partitions: their state, their sealed raw data, and the validator's verdicts."""

from alembic import op

revision = "0009"
down_revision = "0008"

MOVES = (
    ("enqueue", None, "pending", ("operator", "scheduler")),
    ("accept", "pending", "success", ("validator",)),
    ("accept", "success", "success", ("validator",)),
    ("reject", "pending", "failed", ("validator",)),
    ("reject", "failed", "failed", ("validator",)),
    ("reject", "success", "success", ("validator",)),
    ("requeue", "failed", "pending", ("operator", "scheduler")),
    ("reprocess", "success", "success", ("operator",)),
    ("abandon", "pending", "failed", ("scheduler", "worker")),
    ("abandon", "success", "success", ("scheduler", "worker")),
    ("mark_terminal", "failed", "failed", ("operator",)),
)


def upgrade() -> None:
    """Create the tables, and the trigger that refuses undeclared transitions."""
    op.execute(
        """
        CREATE TABLE partitions (
            id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT partitions_pkey PRIMARY KEY,
            source text COLLATE "C" NOT NULL,
            customer_id text COLLATE "C" NOT NULL,
            query_name text COLLATE "C" NOT NULL,
            logical_date date NOT NULL,
            status text NOT NULL,
            attempt_count integer NOT NULL DEFAULT 0,
            current_run_id text COLLATE "C",
            active_run_id text COLLATE "C"
                CONSTRAINT partitions_active_run REFERENCES runs (run_id),
            last_run_id text COLLATE "C" NOT NULL
                CONSTRAINT partitions_last_run REFERENCES runs (run_id),
            abandoned boolean NOT NULL DEFAULT false,
            needs_review boolean NOT NULL DEFAULT false,
            terminal_marker text,
            error_message text,
            created_at timestamptz NOT NULL,
            updated_at timestamptz NOT NULL,
            transition text NOT NULL,
            changed_by text NOT NULL,
            CONSTRAINT partitions_key UNIQUE (source, customer_id, query_name, logical_date),
            CONSTRAINT partitions_attempt_count CHECK (
                attempt_count >= (current_run_id IS NOT NULL)::integer
            ),
            CONSTRAINT partitions_times CHECK (updated_at >= created_at),
            CONSTRAINT partitions_active CHECK (
                active_run_id IS NULL OR (
                    active_run_id = last_run_id AND active_run_id IS DISTINCT FROM current_run_id
                )
            ),
            CONSTRAINT partitions_state CHECK (
                CASE status
                WHEN 'pending' THEN active_run_id IS NOT NULL AND NOT abandoned
                    AND NOT needs_review AND terminal_marker IS NULL
                WHEN 'success' THEN attempt_count > 0 AND current_run_id IS NOT NULL
                    AND terminal_marker IS NULL AND NOT (abandoned AND active_run_id IS NOT NULL)
                WHEN 'failed' THEN error_message IS NOT NULL AND active_run_id IS NULL
                    AND NOT needs_review AND (abandoned OR attempt_count > 0)
                ELSE false END
            )
        )
        """
    )
    op.execute("CREATE UNIQUE INDEX partitions_by_last_run ON partitions (last_run_id)")
    op.execute(
        "CREATE INDEX partitions_failed ON partitions (source, updated_at) WHERE status = 'failed'"
    )
    op.execute(
        """
        CREATE TABLE raw_partitions (
            run_id text COLLATE "C" NOT NULL CONSTRAINT raw_partitions_pkey PRIMARY KEY
                CONSTRAINT raw_partitions_run REFERENCES runs (run_id),
            partition_id bigint NOT NULL
                CONSTRAINT raw_partitions_partition REFERENCES partitions (id),
            tiles integer NOT NULL,
            bytes bigint NOT NULL,
            manifest_sha256 bytea NOT NULL,
            sealed_at timestamptz NOT NULL,
            CONSTRAINT raw_partitions_of UNIQUE (partition_id, run_id),
            CONSTRAINT raw_partitions_manifest CHECK (octet_length(manifest_sha256) = 32)
        )
        """
    )
    # A partition can only reference sealed raw data of its own.
    op.execute(
        "ALTER TABLE partitions ADD CONSTRAINT partitions_current_run"
        " FOREIGN KEY (id, current_run_id) REFERENCES raw_partitions (partition_id, run_id)"
    )
    op.execute(
        """
        CREATE TABLE partition_attempts (
            partition_id bigint NOT NULL
                CONSTRAINT partition_attempts_partition REFERENCES partitions (id),
            attempt integer NOT NULL,
            run_id text COLLATE "C" NOT NULL
                CONSTRAINT partition_attempts_run REFERENCES runs (run_id),
            outcome text NOT NULL,
            explanation text,
            judged_at timestamptz NOT NULL,
            CONSTRAINT partition_attempts_pkey PRIMARY KEY (partition_id, attempt),
            CONSTRAINT partition_attempts_once UNIQUE (run_id),
            CONSTRAINT partition_attempts_outcome CHECK (
                outcome IN ('passed', 'needs_review', 'failed')
                AND (explanation IS NULL) = (outcome = 'passed')
            )
        )
        """
    )
    # The planned retry belongs to the control plane; it is not part of a partition's state.
    op.execute(
        """
        CREATE TABLE partition_retries (
            partition_id bigint NOT NULL CONSTRAINT partition_retries_pkey PRIMARY KEY
                CONSTRAINT partition_retries_partition REFERENCES partitions (id),
            next_run_at timestamptz NOT NULL,
            backoff_strategy text NOT NULL
        )
        """
    )
    op.execute("CREATE INDEX partition_retries_by_time ON partition_retries (next_run_at)")
    _refuse_undeclared()


def _refuse_undeclared() -> None:
    op.execute(
        """
        CREATE TABLE partition_moves (
            transition text NOT NULL,
            from_status text NOT NULL,
            to_status text NOT NULL,
            actor text NOT NULL,
            CONSTRAINT partition_moves_pkey PRIMARY KEY (transition, from_status, to_status, actor)
        )
        """
    )
    for transition, before, after, actors in MOVES:
        for actor in actors:
            op.execute(
                "INSERT INTO partition_moves VALUES"  # noqa: S608  # interpolates constants only
                f" ('{transition}', '{before or 'absent'}', '{after}', '{actor}')"
            )
    op.execute(_MOVE)
    op.execute(
        "CREATE TRIGGER partitions_declared_moves BEFORE INSERT OR UPDATE ON partitions"
        " FOR EACH ROW EXECUTE FUNCTION partition_move()"
    )
    op.execute(
        """
        CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION '% of % is refused: what is there is kept as it is',
                TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
        END
        $$
        """
    )
    for table, refused in (
        ("partitions", "DELETE OR TRUNCATE"),
        ("raw_partitions", "UPDATE OR DELETE OR TRUNCATE"),
        ("partition_attempts", "UPDATE OR DELETE OR TRUNCATE"),
        ("partition_moves", "INSERT OR UPDATE OR DELETE OR TRUNCATE"),
    ):
        op.execute(
            f"CREATE TRIGGER {table}_kept BEFORE {refused} ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )


def downgrade() -> None:
    """Drop the tables with all partitions."""
    op.execute("ALTER TABLE partitions DROP CONSTRAINT partitions_current_run")
    for table in (
        "partition_moves",
        "partition_retries",
        "partition_attempts",
        "raw_partitions",
        "partitions",
    ):
        op.execute(f"DROP TABLE {table}")
    op.execute("DROP FUNCTION partition_move()")
    op.execute("DROP FUNCTION refuse_change()")


_MOVE = """
CREATE FUNCTION partition_move() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    old_status text := 'absent';
    judged integer := (NEW.transition IN ('accept', 'reject'))::integer;
    problem text;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        old_status := OLD.status;
        problem := CASE
            WHEN (NEW.id, NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date,
                  NEW.created_at) IS DISTINCT FROM
                 (OLD.id, OLD.source, OLD.customer_id, OLD.query_name, OLD.logical_date,
                  OLD.created_at)
                THEN 'its key and its beginning stay'
            WHEN NEW.attempt_count <> OLD.attempt_count + judged
                THEN 'attempt_count rises by one with each verdict, and by nothing else'
            WHEN judged = 1 AND OLD.active_run_id IS NULL AND NOT OLD.abandoned
                THEN 'there is no run to judge'
            WHEN NEW.transition = 'abandon' AND OLD.active_run_id IS NULL
                THEN 'there is no run to give up'
            WHEN NEW.transition IN ('accept', 'reject', 'abandon') AND (
                     NEW.active_run_id IS NOT NULL
                     OR NEW.abandoned <> (NEW.transition = 'abandon'))
                THEN 'its run has ended'
            WHEN NEW.updated_at < OLD.updated_at THEN 'updated_at does not go back'
            WHEN NEW.current_run_id IS DISTINCT FROM
                 (CASE NEW.transition WHEN 'accept' THEN OLD.active_run_id
                                      ELSE OLD.current_run_id END)
                THEN 'current_run_id is the run that was accepted'
            WHEN NEW.transition IN ('requeue', 'reprocess') AND (
                     NEW.last_run_id = OLD.last_run_id OR NEW.active_run_id IS NULL
                     OR OLD.active_run_id IS NOT NULL)
                THEN 'a new try has a new run, one at a time'
            WHEN NEW.transition NOT IN ('requeue', 'reprocess')
                 AND NEW.last_run_id <> OLD.last_run_id
                THEN 'only a new try has a new run'
            WHEN NEW.transition = 'mark_terminal' AND NEW.terminal_marker IS NULL
                THEN 'it is marked with a reason'
            WHEN NEW.transition <> 'mark_terminal'
                 AND NEW.terminal_marker IS DISTINCT FROM (
                     CASE NEW.transition WHEN 'requeue' THEN NULL ELSE OLD.terminal_marker END)
                THEN 'only mark_terminal marks it'
        END;
    ELSIF NEW.attempt_count <> 0 OR NEW.current_run_id IS NOT NULL THEN
        problem := 'a new one has no attempts';
    END IF;
    IF NOT EXISTS (
        SELECT FROM partition_moves WHERE transition = NEW.transition AND actor = NEW.changed_by
            AND from_status = old_status AND to_status = NEW.status
    ) THEN
        problem := 'no such move is declared';
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'partition %/%/%/%: % by % from % to % is refused: %',
            NEW.source, NEW.customer_id, NEW.query_name, NEW.logical_date, NEW.transition,
            NEW.changed_by, old_status, NEW.status, problem USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$
"""
