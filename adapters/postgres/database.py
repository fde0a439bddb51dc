"""Postgres connections and transactions: timeouts, error translation, commit verification."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

import psycopg
from attrs import define, field, frozen
from sqlalchemy import URL, Connection, Engine, Row, TextClause, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError

from tileferry.adapters.postgres.errors import (
    database_error,
    get_sqlstate,
    translate_database_errors,
)
from tileferry.domain.errors import DatabaseError, InvalidValueError

SERVER_VERSION_MIN = 15
POOL_SIZE = 8
RESOLVE_S = 30.0
LOCK_TIMEOUT_S = 30.0
"""How long a statement waits for a lock held by another transaction."""
STATEMENT_TIMEOUT_S = 120.0
"""Maximum duration of a statement."""
IDLE_TIMEOUT_S = 60.0
"""How long a transaction may be idle before the server ends it: its process may be dead."""
_RESOLVE_PAUSE_S = 0.1
_GRACE_S = 1.0
_CONNECT_ARGS = {
    "connect_timeout": 10,
    "client_encoding": "utf8",
    "fallback_application_name": "tileferry",
    # Detect a dead network within a minute; the TCP default is two hours.
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 50_000,
}


def create_postgres_engine(
    url: str,
    *,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    statement_timeout_s: float = STATEMENT_TIMEOUT_S,
    idle_timeout_s: float = IDLE_TIMEOUT_S,
) -> Engine:
    """Return an engine for a ``postgresql://`` URL, without connecting.

    The timeouts apply unless the URL, the server or the database user sets its own.
    """
    parsed = _parse_url(url)
    limits = {
        "lock_timeout": f"{lock_timeout_s * 1_000:.0f}",
        "statement_timeout": f"{statement_timeout_s * 1_000:.0f}",
        "idle_in_transaction_session_timeout": f"{idle_timeout_s * 1_000:.0f}",
    }
    engine = create_engine(
        parsed.set(drivername="postgresql+psycopg"),
        pool_size=POOL_SIZE,
        connect_args={key: _CONNECT_ARGS[key] for key in _CONNECT_ARGS.keys() - parsed.query},
    )
    event.listen(engine, "connect", partial(_prepare, limits=limits))
    event.listen(engine, "checkout", _refuse_dead)
    return engine


def _parse_url(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is None or "@" in (parsed.host or ""):
        # Show neither the URL nor the parse error: in a mistyped URL the password can end up in any
        # part, such as the host or the port.
        raise InvalidValueError(
            field="TILEFERRY_DATABASE_URL",
            value="***",
            problem="is not a database URL",
            remedy="use postgresql://user:password@host:port/database, with %40 for an @ in the"
            " password, %3A for a colon and %2F for a slash",
        )
    if parsed.get_backend_name() not in {"postgresql", "postgres"}:
        raise InvalidValueError(
            field="TILEFERRY_DATABASE_URL",
            value=parsed.get_backend_name(),
            problem="is not a Postgres URL",
            remedy="use postgresql://user:password@host:port/database",
        )
    password = parsed.query.get("password")
    if isinstance(password, str):  # SQLAlchemy hides the password of the URL, not of the query
        parsed = parsed.set(password=password).difference_update_query(["password"])
    return parsed


def _prepare(
    connection: psycopg.Connection[Any], _record: object, *, limits: Mapping[str, str]
) -> None:
    """Set the session's timeouts and require durable commits.

    ``synchronous_commit`` is turned on even if the server turns it off. A timeout is set only if it
    still has the server's built-in default.
    """
    connection.autocommit = True
    connection.execute(_PREPARE, {"names": [*limits], "values": [*limits.values()]})
    connection.autocommit = False


def _refuse_dead(connection: psycopg.Connection[Any], _record: object, _proxy: object) -> None:
    """Make the pool replace a connection that the server closed since its last use.

    Reads pending input without waiting, which is a thousand times cheaper than a query. Reads
    twice, because the server may send a final message before it closes the connection.
    """
    try:
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.OperationalError as error:
        raise DisconnectionError(str(error)) from error


def _refuse_closed(*_args: object) -> None:
    raise DatabaseError(problem="this connection was closed", remedy="open a new one")


def _redact_url(engine: Engine) -> str:
    url = engine.url
    place = {name: url.query[name] for name in ("host", "port") if name in url.query}
    return url.set(query=place).render_as_string(hide_password=True)


@define
class Database:
    """A Postgres database: transactions with translated errors and verified commits."""

    engine: Engine = field(repr=_redact_url)
    resolve_s: float = field(default=RESOLVE_S, kw_only=True)
    """How long to wait for a lost server to return and report the outcome of a transaction."""

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        statement_timeout_s: float = STATEMENT_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> "Database":
        return cls(
            create_postgres_engine(
                url,
                lock_timeout_s=lock_timeout_s,
                statement_timeout_s=statement_timeout_s,
                idle_timeout_s=idle_timeout_s,
            )
        )

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Run a block in a transaction; commit when the block succeeds.

        If the connection is lost during the commit, its outcome is unknown. The server is then
        queried for the transaction's status, and the error is raised unless it committed.
        """
        with self.resolvable_transaction() as (connection, xid_holder):
            yield connection
            xid_holder.append(get_transaction_id(connection))

    def change(self, statement: TextClause, parameters: Mapping[str, object]) -> Row[Any] | None:
        """Run one statement as a transaction; return its row, or ``None`` if it changed no row.

        The statement must return ``WITH_XID`` as its last column. This saves the round trip in
        which ``transaction`` queries the transaction id.
        """
        with self.resolvable_transaction() as (connection, xid_holder):
            row = connection.execute(statement, parameters).first()
            xid_holder.append(None if row is None else row.xid)
        return row

    @contextmanager
    def resolvable_transaction(self) -> Iterator[tuple[Connection, list[str | None]]]:
        """Run a block in a transaction; the block appends the transaction id to the list.

        The id is ``None`` if nothing was changed. For callers that get the id from one of their
        statements; ``transaction`` queries it instead.
        """
        with translate_database_errors():
            xid_holder: list[str | None] = []
            lost = None
            with self.engine.connect() as connection:
                transaction = connection.begin()
                try:
                    yield connection, xid_holder
                except BaseException:
                    transaction.rollback()
                    raise
                try:
                    transaction.commit()
                except DBAPIError as error:
                    lost = error
            # Resolve only after the connection is back in the pool: resolving needs a connection,
            # and the pool may have no other.
            if lost is not None:
                xid = xid_holder[0]
                if xid is None or not self._has_committed(xid, lost=lost):
                    raise lost

    @contextmanager
    def read_connection(self) -> Iterator[Connection]:
        """Run a read-only block; each statement sees the data committed before it starts."""
        with translate_database_errors(), self.engine.connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")

    def _has_committed(self, xid: str, *, lost: DBAPIError) -> bool:
        """Return whether a transaction committed; poll the server for up to ``resolve_s``."""
        started_s = time.monotonic()
        while (waited_s := time.monotonic() - started_s) < self.resolve_s:
            try:
                with self.read_connection() as connection:
                    status = connection.execute(_STATUS_OF, {"xid": xid}).scalar_one()
                    if status == "in progress" and waited_s > _GRACE_S:
                        # The server has not noticed the disconnect and still holds the session's
                        # row locks.
                        connection.execute(_END_SESSION_OF, {"xid": xid})
            except DatabaseError:  # the server is not back yet
                status = None
            if status in {"committed", "aborted"}:
                return bool(status == "committed")
            time.sleep(_RESOLVE_PAUSE_S)
        raise DatabaseError(
            problem=f"the connection was lost while committing transaction {xid}; it is unknown "
            f"whether it took effect: {database_error(lost).problem}",
            remedy="check the data once the server is back, before you repeat the operation",
        ) from lost

    def check_server(self) -> str:
        """Return the server's version; raise if it is older than ``SERVER_VERSION_MIN``."""
        with self.read_connection() as connection:
            number = int(connection.execute(text("SHOW server_version_num")).scalar_one())
            version: str = connection.execute(text("SHOW server_version")).scalar_one()
        if number < SERVER_VERSION_MIN * 10_000:
            raise DatabaseError(
                problem=f"the server is PostgreSQL {version}",
                remedy=f"use version {SERVER_VERSION_MIN} or later",
            )
        return version

    def now(self) -> datetime:
        """Return the server's time."""
        with self.read_connection() as connection:
            moment: datetime = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        return moment

    def close(self) -> None:
        """Close all pooled connections and refuse new ones."""
        # A late thread must not open a connection after this: nothing would close it.
        event.listen(self.engine, "do_connect", _refuse_closed)
        self.engine.dispose()


def get_transaction_id(connection: Connection) -> str | None:
    """Return the id of the current transaction; ``None`` if it has changed nothing."""
    xid: str | None = connection.execute(_TRANSACTION_ID).scalar_one()
    return xid


_PREPARE = """
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off'
    UNION ALL
    SELECT set_config(name, value, false)
    FROM pg_settings JOIN unnest(%(names)s::text[], %(values)s::text[]) AS own(name, value)
         USING (name)
    WHERE source = 'default'
"""
WITH_XID = "pg_current_xact_id()::text AS xid"
_TRANSACTION_ID = text("SELECT pg_current_xact_id_if_assigned()::text")
_STATUS_OF = text("SELECT pg_xact_status(CAST(:xid AS xid8))")
_END_SESSION_OF = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE backend_xid = CAST(CAST(:xid AS xid8) AS xid)"
)


_REPEAT_PAUSE_S = 0.1
# SQLSTATE classes of temporary failures. ``None``: the error did not come from the server.
_TRANSIENT_CLASSES = {None, "08", "53", "55", "57"}


@frozen(kw_only=True)
class StatementResult:
    """The result of ``execute_idempotent``."""

    row: Row[Any] | None
    repeated: bool
    """Whether the statement was run again, so an earlier execution may have taken effect."""


def execute_idempotent(
    database: Database, statement: str, parameters: Mapping[str, object]
) -> StatementResult:
    """Run one statement as its own transaction; repeat it if the connection is lost.

    The statement uses the driver's parameter style.

    After a lost connection it is unknown whether the statement took effect. The same statement is
    run again once the server is reachable. The statement itself must detect its own earlier
    execution atomically; then it takes effect once, even if the first execution is still running on
    the server.
    """
    with translate_database_errors():
        try:
            return StatementResult(
                row=_execute_statement(database, statement, parameters), repeated=False
            )
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            lost = error
        return StatementResult(
            row=_repeat_statement(database, statement, parameters, lost), repeated=True
        )


def _execute_statement(
    database: Database, statement: str, parameters: Mapping[str, object]
) -> Row[Any] | None:
    with database.engine.connect() as connection:
        alone = connection.execution_options(isolation_level="AUTOCOMMIT")
        return alone.exec_driver_sql(statement, dict(parameters)).first()


def _repeat_statement(
    database: Database, statement: str, parameters: Mapping[str, object], lost: DBAPIError
) -> Row[Any] | None:
    started_s = time.monotonic()
    while time.monotonic() - started_s < database.resolve_s:
        try:
            return _execute_statement(database, statement, parameters)
        except DBAPIError as error:
            if not (error.connection_invalidated or _is_transient(error)):
                raise
        time.sleep(_REPEAT_PAUSE_S)
    raise DatabaseError(
        problem="the connection was lost during a change; it is unknown whether it took effect: "
        f"{database_error(lost).problem}",
        remedy="check the data once the server is back, before you repeat the operation",
    ) from lost


def _is_transient(error: DBAPIError) -> bool:
    code = get_sqlstate(error)
    return (None if code is None else code[:2]) in _TRANSIENT_CLASSES
