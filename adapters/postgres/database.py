"""Postgres transactions: error translation and commit verification."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from attrs import define, evolve, field

from tileferry.adapters.postgres.commits import CommitMark
from tileferry.adapters.postgres.connections import Connections
from tileferry.adapters.postgres.patience import Patience, Result
from tileferry.adapters.postgres.session import SessionLimits
from tileferry.domain.errors import DatabaseError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.server_settings import ServerSettings

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Row, RowMapping, Select
    from sqlalchemy.exc import DBAPIError

    FindEffect = Callable[[Connection], bool]
    """Returns whether a transaction took effect."""

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
    before_close: list[Callable[[], None]] = field(factory=list, init=False)
    """Called when the database is closed, while it still can be used."""

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
    def transaction(
        self, *, begins_itself: bool = False, find_effect: "FindEffect | None" = None
    ) -> Iterator["Connection"]:
        """Run a block in a transaction; commit when the block succeeds.

        With ``begins_itself`` the block sends BEGIN: ``begin_in_pipeline``.

        If the connection is lost during the commit, its outcome is unknown. The database is then
        queried for the transaction's mark, and the error is raised unless it is there.
        ``find_effect`` queries for something else: for migrations, which change the table of marks.
        """
        with translate_database_errors():
            lost = None
            with self.wait_for_server(lambda: self._begin(begins_itself)) as connection:
                transaction = connection.get_transaction()
                assert transaction is not None  # noqa: S101  # it was begun
                mark = CommitMark.create(connection)
                leaves_mark = find_effect is None and connection.info["session"].has_marks
                try:
                    yield connection
                except BaseException:
                    transaction.rollback()
                    raise
                try:
                    if leaves_mark:
                        mark.commit(connection)
                    transaction.commit()
                except Exception as error:  # noqa: BLE001  # raised below unless it committed
                    lost = error
            # Resolve only after the connection is back in the pool: resolving needs a connection,
            # and the pool may have no other.
            if lost is not None:
                look = mark.is_there if leaves_mark else find_effect
                if not self._has_committed(mark, look, lost=lost):
                    raise lost

    def change(self, statement: str, parameters: Mapping[str, object]) -> "Row[Any] | None":
        """Run one statement as a transaction; return its row, or ``None`` if it has none."""

        def change_once() -> "Row[Any] | None":
            with self.transaction() as connection:
                return connection.exec_driver_sql(statement, dict(parameters)).first()

        return self.wait_for_server(change_once)

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

    def fetch_in_thread(self, query: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        """Return the rows of a query through a connection that only this thread uses, if possible.

        For the few threads that read all the time, such as those of a map server.
        """
        fetch = self.connections.fetch_in_thread if self.connections.is_plain else self._fetch_once
        return self.wait_for_server(lambda: fetch(query, parameters))

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

    def _has_committed(
        self, mark: CommitMark, find_effect: "FindEffect | None", *, lost: Exception
    ) -> bool:
        """Return whether a transaction committed; poll the server for up to ``resolve_s``."""
        started_s, limit_s = time.monotonic(), self.get_resolve_limit_s()
        while find_effect and (waited_s := time.monotonic() - started_s) < limit_s:
            try:
                with evolve(self, patience=None).read_connection() as connection:
                    if mark.has_ended(connection):
                        return find_effect(connection)
                    if waited_s > _GRACE_S:
                        # The server has not noticed the disconnect and still holds the session's
                        # row locks.
                        mark.end(connection)
            except DatabaseError:  # the server is not back yet
                pass
            time.sleep(_RESOLVE_PAUSE_S)
        raise DatabaseError(
            problem="the connection was lost while committing; it is unknown whether it took"
            f" effect: {database_error(cast('DBAPIError', lost)).problem}",
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
        while self.before_close:
            self.before_close.pop()()
        self.connections.close()


def _check_writable(connection: "Connection") -> None:
    try:
        get_settings(connection).check_writable()
    except DatabaseError:
        connection.invalidate()  # the next connection asks again: a replica may be promoted
        raise


_NOW = "SELECT clock_timestamp()"
_VERSION = (
    "SELECT current_setting('server_version_num')::integer AS number,"
    " current_setting('server_version') AS version"
)
