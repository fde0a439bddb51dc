"""Postgres transactions: error translation and commit verification."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from attrs import define, evolve, field, frozen
from sqlalchemy import Connection, Engine, Row, RowMapping, Select, TextClause, event, text
from sqlalchemy.exc import DBAPIError

from tileferry.adapters.postgres.engine import (
    IDLE_TIMEOUT_S,
    LOCK_TIMEOUT_S,
    STATEMENT_TIMEOUT_S,
    create_postgres_engine,
    disable_transactions,
    get_settings,
)
from tileferry.adapters.postgres.errors import (
    database_error,
    get_sqlstate,
    translate_database_errors,
)
from tileferry.adapters.postgres.patience import Patience, Result
from tileferry.domain.errors import DatabaseError
from tileferry.domain.health import ServerSettings

SERVER_VERSION_MIN = 15
RESOLVE_S = 30.0
_RESOLVE_PAUSE_S = 0.1
_GRACE_S = 1.0


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
    patience: Patience | None = field(default=None, kw_only=True)
    """Waits for a server that is away; without it, its absence is an error at once."""

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        statement_timeout_s: float = STATEMENT_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        patience: Patience | None = None,
        on_first_connection: Callable[[ServerSettings], None] | None = None,
    ) -> "Database":
        """Return a database, without connecting.

        ``on_first_connection`` gets the server's settings, once.
        """
        engine = create_postgres_engine(
            url,
            lock_timeout_s=lock_timeout_s,
            statement_timeout_s=statement_timeout_s,
            idle_timeout_s=idle_timeout_s,
        )
        if on_first_connection is not None:
            event.listen(
                engine,
                "connect",
                lambda _connection, record: on_first_connection(record.info["settings"]),
                once=True,
            )
        return cls(engine, patience=patience)

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
        return self.wait_for_server(lambda: self._change_once(statement, parameters))

    def _change_once(
        self, statement: TextClause, parameters: Mapping[str, object]
    ) -> Row[Any] | None:
        with self.resolvable_transaction() as (connection, xid_holder):
            row = connection.execute(statement, parameters).first()
            xid_holder.append(None if row is None else row.xid)
        return row

    @contextmanager
    def resolvable_transaction(self) -> Iterator[tuple[Connection, list[str | None]]]:
        """Run a block in a transaction; the block appends the transaction id to the list.

        The id is ``None`` if nothing was changed. For callers that get the id from one of their
        statements; ``transaction`` queries it instead. If the answer to the commit was lost and the
        server says that it committed, the id is in the list twice. After a crash a server may give
        the id of a transaction that it lost to another one, so the caller should look at its rows.
        """
        with translate_database_errors():
            xid_holder: list[str | None] = []
            lost = None
            with self.wait_for_server(self._begin) as connection:
                transaction = connection.get_transaction()
                assert transaction is not None  # noqa: S101  # it was begun
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
                xid_holder.append(xid)

    @contextmanager
    def read_connection(self) -> Iterator[Connection]:
        """Run a read-only block; each statement sees the data committed before it starts."""
        with translate_database_errors(), self.wait_for_server(self._connect) as connection:
            yield disable_transactions(connection)
            connection.commit()

    def read_rows(self, query: Select[Any]) -> Sequence[RowMapping]:
        """Return the rows of a query, all at once."""

        def read() -> Sequence[RowMapping]:
            with self.read_connection() as connection:
                return connection.execute(query).mappings().all()

        return self.wait_for_server(read)

    def wait_for_server(self, work: Callable[[], Result]) -> Result:
        """Return the result of a call; while the server is away, wait and repeat the call."""
        return work() if self.patience is None else self.patience.call(work)

    def set_patience(self, seconds: float) -> None:
        """Set how long to wait for a server that is away."""
        if self.patience is not None:
            self.patience.policy = evolve(self.patience.policy, deadline_s=seconds)

    def _connect(self) -> Connection:
        with translate_database_errors():
            return self.engine.connect()

    def _begin(self) -> Connection:
        connection = self._connect()
        try:
            with translate_database_errors():
                _check_writable(connection)
                connection.begin()
        except BaseException:
            connection.close()
            raise
        return connection

    def get_resolve_limit_s(self) -> float:
        """Return how long to look for the outcome of a transaction whose connection was lost."""
        deadline_s = None if self.patience is None else self.patience.policy.deadline_s
        return max(self.resolve_s, deadline_s or 0.0)

    def _has_committed(self, xid: str, *, lost: DBAPIError) -> bool:
        """Return whether a transaction committed; poll the server for up to ``resolve_s``."""
        started_s = time.monotonic()
        while (waited_s := time.monotonic() - started_s) < self.get_resolve_limit_s():
            try:
                with evolve(self, patience=None).read_connection() as connection:
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

    def read_settings(self) -> ServerSettings:
        """Return the server's settings that durability depends on; no query of its own."""
        with self.read_connection() as connection:
            return get_settings(connection)

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


def _check_writable(connection: Connection) -> None:
    try:
        get_settings(connection).check_writable()
    except DatabaseError:
        connection.invalidate()  # the next connection asks again: a replica may be promoted
        raise


def get_transaction_id(connection: Connection) -> str | None:
    """Return the id of the current transaction; ``None`` if it has changed nothing."""
    xid: str | None = connection.execute(_TRANSACTION_ID).scalar_one()
    return xid


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

    The statement uses the driver's parameter style. If it changes rows, it must select ``DURABLE``:
    without a transaction block, nothing else can make its commit durable.

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
        alone = disable_transactions(connection)
        row = alone.exec_driver_sql(statement, dict(parameters)).first()
        alone.commit()
        return row


def _repeat_statement(
    database: Database, statement: str, parameters: Mapping[str, object], lost: DBAPIError
) -> Row[Any] | None:
    started_s = time.monotonic()
    while time.monotonic() - started_s < database.get_resolve_limit_s():
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
