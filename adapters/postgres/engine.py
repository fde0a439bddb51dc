"""SQLAlchemy engines for Postgres: the URL, the pool, and the beginning of transactions."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from tileferry.adapters.postgres.encoding import register_arrays
from tileferry.adapters.postgres.session import (
    SessionLimits,
    check_alive,
    configure_session,
)
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.server_settings import ServerSettings

POOL_SIZE = 8
PREPARE_THRESHOLD = 5
"""Executions before a connection prepares a statement: the default of the driver."""
_AUTOCOMMIT = "AUTOCOMMIT"
_THRESHOLD = "prepare_threshold"
_BEGINS_ITSELF = "begins_itself"


def create_postgres_engine(
    url: str, limits: SessionLimits, on_connect: Callable[[ServerSettings], None]
) -> Engine:
    """Return an engine for a ``postgresql://`` URL, without connecting.

    ``on_connect`` gets the server's settings with every connection.
    """
    parsed, prepare_threshold = _take_prepare_threshold(_parse_url(url))
    arguments = limits.connect_args
    engine = create_engine(
        parsed.set(drivername="postgresql+psycopg"),
        pool_size=POOL_SIZE,
        # The driver would send BEGIN by itself, in a round trip without our settings.
        isolation_level=_AUTOCOMMIT,
        use_native_hstore=False,  # looking for it costs three round trips
        connect_args={
            **{key: arguments[key] for key in arguments.keys() - parsed.query},
            "prepare_threshold": prepare_threshold,
        },
    )
    prepare = partial(_prepare_connection, limits=limits, on_connect=on_connect)
    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", _begin)
    event.listen(engine, "checkout", _refuse_dead)
    return engine


def close_engine(engine: Engine, refuse: Callable[..., None]) -> None:
    """Close all pooled connections, and call ``refuse`` instead of opening new ones."""
    # A late thread must not open a connection after this: nothing would close it.
    event.listen(engine, "do_connect", refuse)
    engine.dispose()


def get_settings(connection: Connection | PoolProxiedConnection) -> ServerSettings:
    """Return the server's settings, as they were when the connection was made."""
    settings: ServerSettings = connection.info["session"].settings
    return settings


def disable_transactions(connection: Connection) -> Connection:
    """Make each statement a transaction of its own, which saves two round trips.

    Behind a pooler the statements stay in one transaction: only there our timeouts apply, and it
    needs a commit.
    """
    if get_settings(connection).is_pooled:
        return connection
    return connection.execution_options(isolation_level=_AUTOCOMMIT)


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


def _take_prepare_threshold(url: URL) -> tuple[URL, int | None]:
    """Return the URL without its ``prepare_threshold``, and the number.

    It is a setting of the driver, which takes a number only. 0 turns prepared statements off.
    """
    given = url.query.get(_THRESHOLD, str(PREPARE_THRESHOLD))
    try:
        number = int(str(given))
    except ValueError:
        number = -1
    if number < 0:
        raise InvalidValueError(
            field="TILEFERRY_DATABASE_URL",
            value=f"{_THRESHOLD}={given}",
            problem="is not a number of executions",
            remedy="use 0 to turn prepared statements off, or leave it out",
        )
    return url.difference_update_query([_THRESHOLD]), number or None


def _prepare_connection(
    connection: psycopg.Connection[Any],
    record: ConnectionPoolEntry,
    *,
    limits: SessionLimits,
    on_connect: Callable[[ServerSettings], None],
) -> None:
    """Configure the session; close a connection that is lost meanwhile, as the pool does not."""
    try:
        register_arrays(connection.adapters)
        session = configure_session(connection, limits)
    except BaseException:
        connection.close()
        raise
    record.info["session"] = session
    on_connect(session.settings)


def leave_begin_to_block(connection: Connection) -> Connection:
    """Let the block of a transaction send BEGIN itself: ``begin_in_pipeline``."""
    return connection.execution_options(**{_BEGINS_ITSELF: True})


@contextmanager
def begin_in_pipeline(connection: Connection) -> Iterator[psycopg.Connection[Any]]:
    """Send BEGIN and the statements of a block in one round trip; the block gets the driver.

    The results are there when the block has ended.
    """
    driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
    with driver.pipeline():
        for statement in connection.info["session"].begin.split("; "):
            driver.execute(statement)
        yield driver


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    if options.get("isolation_level") != _AUTOCOMMIT and not options.get(_BEGINS_ITSELF):
        connection.exec_driver_sql(connection.info["session"].begin)


def _refuse_dead(connection: psycopg.Connection[Any], _record: object, _proxy: object) -> None:
    """Make the pool replace a connection that the server closed since its last use."""
    try:
        check_alive(connection)
    except psycopg.OperationalError as error:
        raise DisconnectionError(str(error)) from error
