"""The connections of a process to a database: a pool, or one connection while it only reads."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from attrs import define, field
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import namedtuple_row

from tileferry.adapters.postgres.driver_errors import explain_driver_error
from tileferry.adapters.postgres.session import (
    Session,
    SessionLimits,
    check_alive,
    configure_session,
)
from tileferry.domain.errors import DatabaseError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.server_settings import ServerSettings

if TYPE_CHECKING:
    from sqlalchemy import Engine

with import_on_call(globals()):
    from tileferry.adapters.postgres.engine import close_engine, create_postgres_engine


def _refuse_closed(*_args: object) -> None:
    raise DatabaseError(problem="this connection was closed", remedy="open a new one")


def _is_plain(url: str) -> bool:
    """Return whether the driver reads a URL in the same way as SQLAlchemy."""
    try:
        found = conninfo_to_dict(url)
    except psycopg.Error:
        return False
    host, port = str(found.get("host", "")), str(found.get("port", "0"))
    return url.startswith(("postgresql://", "postgres://")) and "@" not in host and port.isdecimal()


@define(kw_only=True, eq=False)
class Connections:
    """Opens connections with our settings.

    The pool is SQLAlchemy's, and importing SQLAlchemy takes eight times as long as starting Python.
    So a process that only reads, such as a command that lists runs, uses a single connection of the
    driver until it needs the pool.
    """

    url: str = field(repr=False)
    limits: SessionLimits = field(factory=SessionLimits)
    on_first_connection: Callable[[ServerSettings], None] | None = None
    """Gets the server's settings, once."""
    is_plain: bool = field(init=False)
    """Whether the driver can be used without the pool."""
    _engine: "Engine | None" = field(default=None, init=False, repr=False)
    _reading: tuple[psycopg.Connection[Any], Session] | None = field(
        default=None, init=False, repr=False
    )
    _by_thread: "dict[int, Connections]" = field(factory=dict, init=False, repr=False)
    _is_closed: bool = field(default=False, init=False)
    _guard: threading.RLock = field(factory=threading.RLock, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.is_plain = _is_plain(self.url)
        if not self.is_plain:
            _ = self.engine  # raises for an invalid URL

    @property
    def has_pool(self) -> bool:
        """Whether the pool is in use."""
        return self._engine is not None

    @property
    def engine(self) -> "Engine":
        """The pool, from its first use on."""
        with self._guard:
            if self._engine is None:
                if self._is_closed:
                    _refuse_closed()
                self._engine = create_postgres_engine(self.url, self.limits, self._greet)
                self._hang_up()
            return self._engine

    def fetch_rows(self, query: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        """Return the rows of a query, without the pool."""
        with self._guard:
            connection, session = self._connect()
            try:
                if not session.settings.is_pooled:
                    return connection.execute(query.encode(), parameters).fetchall()
                # Behind a pooler, our timeouts apply only within a transaction.
                connection.execute(session.begin.encode())
                rows = connection.execute(query.encode(), parameters).fetchall()
                connection.execute("COMMIT")
            except psycopg.Error as error:
                is_lost = connection.broken
                self._hang_up()
                raise explain_driver_error(error, is_lost=is_lost) from error
            return rows

    def fetch_in_thread(self, query: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        """Return the rows of a query through a connection that only this thread uses.

        For the few threads that read constantly: it takes a fifth of the pool's processor time.
        """
        thread = threading.get_ident()
        own = self._by_thread.get(thread)
        if own is None:
            with self._guard:
                if self._is_closed:
                    _refuse_closed()
                own = self._by_thread[thread] = Connections(url=self.url, limits=self.limits)
        return own.fetch_rows(query, parameters)

    def read_settings(self) -> ServerSettings:
        """Return the server's settings, without the pool."""
        with self._guard:
            return self._connect()[1].settings

    def close(self) -> None:
        """Close all connections and refuse new ones."""
        with self._guard:
            self._is_closed = True
            self._hang_up()
            for own in self._by_thread.values():
                own.close()
            if self._engine is not None:
                close_engine(self._engine, _refuse_closed)

    def _connect(self) -> tuple[psycopg.Connection[Any], Session]:
        if self._is_closed:
            _refuse_closed()
        try:
            if self._reading is not None:
                check_alive(self._reading[0])
        except psycopg.OperationalError:
            self._hang_up()
        if self._reading is None:
            self._reading = self._open()
        return self._reading

    def _open(self) -> tuple[psycopg.Connection[Any], Session]:
        wanted = self.limits.connect_args
        arguments = {key: wanted[key] for key in wanted.keys() - conninfo_to_dict(self.url)}
        is_lost, connection = False, None
        try:
            connection = psycopg.connect(self.url, autocommit=True, **arguments)
            session = configure_session(connection, self.limits)
        except psycopg.Error as error:
            if connection is not None:
                is_lost = connection.broken
                connection.close()
            raise explain_driver_error(error, is_lost=is_lost) from error
        connection.row_factory = namedtuple_row
        self._greet(session.settings)
        return connection, session

    def _greet(self, settings: ServerSettings) -> None:
        greet, self.on_first_connection = self.on_first_connection, None
        if greet is not None:
            greet(settings)

    def _hang_up(self) -> None:
        if self._reading is not None:
            self._reading[0].close()
            self._reading = None
