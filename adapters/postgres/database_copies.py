"""Copies of a database: a dump of one moment, and its load into an empty database.

pg_dump reads the snapshot that a session of ours exports, so a dump shows exactly the moment at
which the snapshot was taken. pg_restore loads it in one transaction.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread
from typing import IO

from attrs import frozen
from psycopg.conninfo import make_conninfo
from sqlalchemy import Connection, text

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.engine import disable_transactions, get_settings
from tileferry.adapters.postgres.errors import translate_database_errors
from tileferry.adapters.postgres.flights import lock_decisions
from tileferry.adapters.postgres.migrate import get_schema_status, upgrade
from tileferry.adapters.postgres.psql import build_client_command
from tileferry.domain.backups import DatabaseFacts
from tileferry.domain.errors import DatabaseError, DatabaseRefusedError
from tileferry.domain.text import printable
from tileferry.migrations import REVISIONS

_CHUNK_BYTES = 1024 * 1024
_MESSAGE_BYTES_MAX = 4_096
# Roles belong to the server, not to the installation.
_NO_ROLES = {"no-owner": None, "no-privileges": None}
_DUMP_OPTIONS = {"format": "custom", "compress": "1", "lock-wait-timeout": "30s", **_NO_ROLES}
_LOAD_OPTIONS = {"single-transaction": None, "exit-on-error": None, **_NO_ROLES}
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WAIT_FOR_COPY = "SET LOCAL idle_in_transaction_session_timeout = 0"
_EXPORT = "SELECT pg_export_snapshot()"
_FACTS = """
    SELECT (SELECT version_num FROM alembic_version) AS schema_revision,
        current_setting('server_version') AS server_version,
        (SELECT count(*) FROM tiles) AS tiles,
        sequence AS audit_sequence, encode(hash, 'hex') AS audit_hash
    FROM audit_head
"""
_FIND_RELATION = text("""
    SELECT oid::regclass::text FROM pg_class
    WHERE relnamespace IN (
        SELECT oid FROM pg_namespace
        WHERE nspname <> 'information_schema' AND nspname NOT LIKE 'pg\\_%'
    ) LIMIT 1
""")


@frozen
class PostgresSnapshot:
    """A consistent view of the database at one moment."""

    facts: DatabaseFacts
    _database: Database
    _snapshot: str

    def iter_dump(self) -> Iterator[bytes]:
        """Yield the output of pg_dump, in its custom format."""
        options = {**_DUMP_OPTIONS, "snapshot": self._snapshot}
        with _run(self._database, "pg_dump", options) as process:
            while chunk := process.output.read(_CHUNK_BYTES):
                yield chunk


@frozen(kw_only=True)
class PostgresDatabaseCopies:
    """Copies of one database."""

    database: Database

    @contextmanager
    def hold_removals(self) -> Iterator[None]:
        """Prevent evictions and prunes during a block."""
        with self.database.transaction() as connection:
            lock_decisions(connection)
            connection.exec_driver_sql(_WAIT_FOR_COPY)
            yield

    @contextmanager
    def open_snapshot(self) -> Iterator[PostgresSnapshot]:
        """Take a snapshot of the database, and keep it for the block."""
        get_schema_status(self.database).check()
        with translate_database_errors(), self.database.engine.connect() as pooled:
            if get_settings(pooled).is_pooled:
                raise DatabaseRefusedError(
                    problem="the server is behind a pooler, through which pg_dump cannot see the"
                    " snapshot",
                    remedy="set database_url to the address of the server itself for backups",
                )
            connection = disable_transactions(pooled)
            connection.exec_driver_sql(_BEGIN)
            try:
                connection.exec_driver_sql(_WAIT_FOR_COPY)
                snapshot = connection.exec_driver_sql(_EXPORT).scalar_one()
                yield PostgresSnapshot(_read_facts(connection), self.database, snapshot)
            finally:
                connection.exec_driver_sql("ROLLBACK")

    def check_loadable(self, facts: DatabaseFacts) -> None:
        """Raise unless the database has no tables, and this version knows the schema."""
        if facts.schema_revision not in REVISIONS:
            raise DatabaseRefusedError(
                problem=f"the backup has the schema {printable(facts.schema_revision)}, which this"
                " version does not know",
                remedy="use the version that created the backup, or a later one",
            )
        self.database.check_server()
        with self.database.read_connection() as connection:
            found = connection.execute(_FIND_RELATION).scalar_one_or_none()
        if found is not None:
            raise DatabaseRefusedError(
                problem=f"the database is not empty: it has {printable(found)}",
                remedy="restore into a new database: set database_url or data_dir to one, or drop"
                " this one if a restore was interrupted",
            )

    def load(self, dump: Iterable[bytes]) -> None:
        """Load a dump in one transaction, then upgrade the schema if it is older."""
        with (
            _run(self.database, "pg_restore", _LOAD_OPTIONS) as process,
            suppress(BrokenPipeError),  # its exit code and message tell why
        ):
            for chunk in dump:
                process.input.write(chunk)
        if not get_schema_status(self.database).is_current:
            upgrade(self.database)


def _read_facts(connection: Connection) -> DatabaseFacts:
    return DatabaseFacts(**connection.exec_driver_sql(_FACTS).mappings().one())


@frozen
class _Process:
    input: IO[bytes]
    output: IO[bytes]


@contextmanager
def _run(database: Database, program: str, options: Mapping[str, str | None]) -> Iterator[_Process]:
    """Run a client program during a block; raise with its message if it fails.

    If this process is killed, pg_restore changes nothing unless its input was already complete.
    """
    command = build_client_command(database, program)
    # Given the name of a database, pg_restore writes to it instead of printing SQL.
    connect = command.arguments or ("-d", make_conninfo("", dbname=command.database))
    arguments = [
        f"--{name}" if value is None else f"--{name}={value}" for name, value in options.items()
    ]
    with subprocess.Popen(  # noqa: S603  # a program of Postgres, with arguments of our own
        [command.program, *arguments, *connect],
        env={**os.environ, **command.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin and process.stdout and process.stderr  # noqa: S101, PT018  # pipes
        said: list[bytes] = []
        listener = Thread(target=_keep_last, args=(process.stderr, said), daemon=True)
        listener.start()
        try:
            yield _Process(process.stdin, process.stdout)
            with suppress(BrokenPipeError):
                process.stdin.close()
        except BaseException:
            process.kill()
            raise
        process.wait()
        listener.join()
    if process.returncode:
        message = b"".join(said).decode("utf-8", "replace").strip()
        raise DatabaseError(
            problem=f"{program} failed: {printable(message, limit=1_000)}",
            remedy="check the server and the version of the PostgreSQL client, then re-run",
        )


def _keep_last(stream: IO[bytes], said: list[bytes]) -> None:
    while part := stream.read1(_MESSAGE_BYTES_MAX):  # type: ignore[attr-defined]
        said[:] = [b"".join([*said, part])[-_MESSAGE_BYTES_MAX:]]
