"""Postgres transactions: error translation and commit verification."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from attrs import define, evolve, field

from tileferry.adapters.postgres.connections import Connections
from tileferry.adapters.postgres.patience import Patience, Result
from tileferry.adapters.postgres.session import SessionLimits
from tileferry.domain.errors import DatabaseError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.server_settings import ServerSettings

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Row, RowMapping, Select, TextClause
    from sqlalchemy.exc import DBAPIError

with import_on_call(globals()):  # a process that only reads needs none of them
    from tileferry.adapters.postgres.engine import (
        disable_transactions,
        get_settings,
        leave_begin_to_block,
    )
    from tileferry.adapters.postgres.errors import database_error, translate_database_errors

SERVER_VERSION_MIN = 15
RESOLVE_S = 30.0
_RESOLVE_PAUSE_S = 0.1
_GRACE_S = 1.0


@define
class Database:
    """A Postgres database: transactions with translated errors and verified commits."""

    connections: Connections
    resolve_s: float = field(default=RESOLVE_S, kw_only=True)
    """How long to wait for a lost server to return and report the outcome of a transaction."""
    patience: Patience | None = field(default=None, kw_only=True)
    """Waits for a server that is away; without it, its absence is an error at once."""

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        limits: SessionLimits | None = None,
        patience: Patience | None = None,
        on_first_connection: Callable[[ServerSettings], None] | None = None,
    ) -> "Database":
        """Return a database, without connecting.

        ``on_first_connection`` gets the server's settings, once.
        """
        connections = Connections(
            url=url, limits=limits or SessionLimits(), on_first_connection=on_first_connection
        )
        return cls(connections, patience=patience)

    @property
    def engine(self) -> "Engine":
        """The pool of connections, for everything but ``fetch_rows``."""
        return self.connections.engine

    @contextmanager
    def transaction(self) -> Iterator["Connection"]:
        """Run a block in a transaction; commit when the block succeeds.

        If the connection is lost during the commit, its outcome is unknown. The server is then
        queried for the transaction's status, and the error is raised unless it committed.
        """
        with self.resolvable_transaction() as (connection, xid_holder):
            yield connection
            xid_holder.append(get_transaction_id(connection))

    def change(
        self, statement: "TextClause", parameters: Mapping[str, object]
    ) -> "Row[Any] | None":
        """Run one statement as a transaction; return its row, or ``None`` if it changed no row.

        The statement must return ``WITH_XID`` as its last column. This saves the round trip in
        which ``transaction`` queries the transaction id.
        """
        return self.wait_for_server(lambda: self._change_once(statement, parameters))

    def _change_once(
        self, statement: "TextClause", parameters: Mapping[str, object]
    ) -> "Row[Any] | None":
        with self.resolvable_transaction() as (connection, xid_holder):
            row = connection.execute(statement, parameters).first()
            xid_holder.append(None if row is None else row.xid)
        return row

    @contextmanager
    def resolvable_transaction(
        self, *, begins_itself: bool = False
    ) -> Iterator[tuple["Connection", list[str | None]]]:
        """Run a block in a transaction; the block appends the transaction id to the list.

        With ``begins_itself`` the block sends BEGIN: ``begin_in_pipeline``.

        The id is ``None`` if nothing was changed. For callers that get the id from one of their
        statements; ``transaction`` queries it instead. If the answer to the commit was lost and the
        server says that it committed, the id is in the list twice. After a crash a server may give
        the id of a transaction that it lost to another one, so the caller should look at its rows.
        """
        with translate_database_errors():
            xid_holder: list[str | None] = []
            lost = None
            with self.wait_for_server(lambda: self._begin(begins_itself)) as connection:
                transaction = connection.get_transaction()
                assert transaction is not None  # noqa: S101  # it was begun
                try:
                    yield connection, xid_holder
                except BaseException:
                    transaction.rollback()
                    raise
                try:
                    transaction.commit()
                except Exception as error:  # noqa: BLE001  # raised below unless it committed
                    lost = error
            # Resolve only after the connection is back in the pool: resolving needs a connection,
            # and the pool may have no other.
            if lost is not None:
                xid = xid_holder[0]
                if xid is None or not self._has_committed(xid, lost=lost):
                    raise lost
                xid_holder.append(xid)

    @contextmanager
    def read_connection(self) -> Iterator["Connection"]:
        """Run a read-only block; each statement sees the data committed before it starts."""
        with translate_database_errors(), self.wait_for_server(self._connect) as connection:
            yield disable_transactions(connection)
            connection.commit()

    def fetch_rows(
        self, query: str, parameters: Mapping[str, object] | None = None
    ) -> Sequence[Any]:
        """Return the rows of a query in the driver's style, with named fields.

        A process that reads in no other way does not import SQLAlchemy.
        """
        return self.wait_for_server(lambda: self._fetch_once(query, parameters or {}))

    def _fetch_once(self, query: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        if not self.connections.has_pool:
            return self.connections.fetch_rows(query, parameters)
        with self.read_connection() as connection:
            return connection.exec_driver_sql(query, dict(parameters)).all()

    def read_rows(self, query: "Select[Any]") -> Sequence["RowMapping"]:
        """Return the rows of a query, all at once."""

        def read() -> Sequence["RowMapping"]:
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

    def _connect(self) -> "Connection":
        with translate_database_errors():
            return self.engine.connect()

    def _begin(self, begins_itself: bool) -> "Connection":  # noqa: FBT001  # see the caller
        connection = self._connect()
        try:
            with translate_database_errors():
                _check_writable(connection)
                (leave_begin_to_block(connection) if begins_itself else connection).begin()
        except BaseException:
            connection.close()
            raise
        return connection

    def get_resolve_limit_s(self) -> float:
        """Return how long to look for the outcome of a transaction whose connection was lost."""
        deadline_s = None if self.patience is None else self.patience.policy.deadline_s
        return max(self.resolve_s, deadline_s or 0.0)

    def _has_committed(self, xid: str, *, lost: Exception) -> bool:
        """Return whether a transaction committed; poll the server for up to ``resolve_s``."""
        started_s = time.monotonic()
        while (waited_s := time.monotonic() - started_s) < self.get_resolve_limit_s():
            try:
                with evolve(self, patience=None).read_connection() as connection:
                    status = connection.exec_driver_sql(_STATUS_OF, {"xid": xid}).scalar_one()
                    if status == "in progress" and waited_s > _GRACE_S:
                        # The server has not noticed the disconnect and still holds the session's
                        # row locks.
                        connection.exec_driver_sql(_END_SESSION_OF, {"xid": xid})
            except DatabaseError:  # the server is not back yet
                status = None
            if status in {"committed", "aborted"}:
                return bool(status == "committed")
            time.sleep(_RESOLVE_PAUSE_S)
        raise DatabaseError(
            problem=f"the connection was lost while committing transaction {xid}; it is unknown "
            f"whether it took effect: {database_error(cast('DBAPIError', lost)).problem}",
            remedy="check the data once the server is back, before you repeat the operation",
        ) from lost

    def check_server(self) -> str:
        """Return the server's version; raise if it is older than ``SERVER_VERSION_MIN``."""
        ((number, version),) = self.fetch_rows(_VERSION)
        if number < SERVER_VERSION_MIN * 10_000:
            raise DatabaseError(
                problem=f"the server is PostgreSQL {version}",
                remedy=f"use version {SERVER_VERSION_MIN} or later",
            )
        return str(version)

    def read_settings(self) -> ServerSettings:
        """Return the server's settings that durability depends on; no query of its own."""
        if not self.connections.has_pool:
            return self.wait_for_server(self.connections.read_settings)
        with self.read_connection() as connection:
            return get_settings(connection)

    def now(self) -> datetime:
        """Return the server's time."""
        moment: datetime = self.fetch_rows(_NOW)[0][0]
        return moment

    def close(self) -> None:
        """Close all connections and refuse new ones."""
        self.connections.close()


def _check_writable(connection: "Connection") -> None:
    try:
        get_settings(connection).check_writable()
    except DatabaseError:
        connection.invalidate()  # the next connection asks again: a replica may be promoted
        raise


def get_transaction_id(connection: "Connection") -> str | None:
    """Return the id of the current transaction; ``None`` if it has changed nothing."""
    xid: str | None = connection.exec_driver_sql(_TRANSACTION_ID).scalar_one()
    return xid


WITH_XID = "pg_current_xact_id()::text AS xid"
_TRANSACTION_ID = "SELECT pg_current_xact_id_if_assigned()::text"
_STATUS_OF = "SELECT pg_xact_status(CAST(%(xid)s AS xid8))"
_END_SESSION_OF = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE backend_xid = CAST(CAST(%(xid)s AS xid8) AS xid)"
)
_NOW = "SELECT clock_timestamp()"
_VERSION = (
    "SELECT current_setting('server_version_num')::integer AS number,"
    " current_setting('server_version') AS version"
)
