"""SQLAlchemy engines for Postgres: the URL, and the settings of a session and of a transaction.

A promise such as "committed means on disk" rests on settings of the transaction itself. A pooler
may hand each transaction to another server session, which has other settings (ADR 0019).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from tileferry.adapters.postgres.encoding import register_arrays
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.health import ServerSettings

POOL_SIZE = 8
PREPARE_THRESHOLD = 5
"""Executions before a connection prepares a statement: the default of the driver."""
LOCK_TIMEOUT_S = 30.0
"""How long a statement waits for a lock held by another transaction."""
STATEMENT_TIMEOUT_S = 120.0
"""Maximum duration of a statement."""
IDLE_TIMEOUT_S = 60.0
"""How long a transaction may be idle before the server ends it: its process may be dead."""
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
_AUTOCOMMIT = "AUTOCOMMIT"
_THRESHOLD = "prepare_threshold"

# Raises "off" only: each other level waits for the server's disk, and an operator may have chosen
# one that waits for replicas as well.
_BEGIN_DURABLE = (
    "BEGIN; SELECT set_config('synchronous_commit', 'on', true)"
    " WHERE current_setting('synchronous_commit') = 'off'"
)
DURABLE = (
    "set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'),"
    " true) AS durable"
)
"""A column that makes the commit of the statement that selects it durable."""
# One statement reads all, because every command waits for it. "session": set by another client of
# the pooler.
_READ_SESSION = """
    SELECT pg_backend_pid(),
        array_agg(name) FILTER (WHERE name = ANY(%(names)s) AND source IN ('default', 'session')),
        bool_or(setting = 'on') FILTER (WHERE name = 'fsync'),
        bool_or(setting = 'on') FILTER (WHERE name = 'full_page_writes'),
        bool_or(reset_val <> 'off') FILTER (WHERE name = 'synchronous_commit'),
        bool_or(setting = 'on') FILTER (WHERE name = 'default_transaction_read_only'),
        pg_is_in_recovery()
    FROM pg_settings
"""


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
    parsed, prepare_threshold = _take_prepare_threshold(_parse_url(url))
    limits = {
        "lock_timeout": f"{lock_timeout_s * 1_000:.0f}",
        "statement_timeout": f"{statement_timeout_s * 1_000:.0f}",
        "idle_in_transaction_session_timeout": f"{idle_timeout_s * 1_000:.0f}",
    }
    engine = create_engine(
        parsed.set(drivername="postgresql+psycopg"),
        pool_size=POOL_SIZE,
        # The driver would send BEGIN by itself, in a round trip without our settings.
        isolation_level=_AUTOCOMMIT,
        use_native_hstore=False,  # looking for it costs three round trips
        connect_args={
            **{key: _CONNECT_ARGS[key] for key in _CONNECT_ARGS.keys() - parsed.query},
            "prepare_threshold": prepare_threshold,
        },
    )
    event.listen(engine, "connect", partial(_prepare_connection, limits=limits))
    event.listen(engine, "begin", _begin)
    event.listen(engine, "checkout", _refuse_dead)
    return engine


def get_settings(connection: Connection | PoolProxiedConnection) -> ServerSettings:
    """Return the server's settings, as they were when the connection was made."""
    settings: ServerSettings = connection.info["settings"]
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
    limits: Mapping[str, str],
) -> None:
    """Configure the session; close a connection that is lost meanwhile, as the pool does not."""
    try:
        _configure_session(connection, record, limits=limits)
    except BaseException:
        connection.close()
        raise


def _configure_session(
    connection: psycopg.Connection[Any],
    record: ConnectionPoolEntry,
    *,
    limits: Mapping[str, str],
) -> None:
    """Set the timeouts, read the server's settings, and find out whether the session is ours alone.

    A timeout is set only if it still has the server's built-in default. Behind a pooler it is set
    in each transaction: other clients use the same session.
    """
    register_arrays(connection.adapters)
    ((backend_pid, names, fsync, full_page_writes, synchronous_commit, read_only, replica),) = (
        connection.execute(_READ_SESSION, {"names": [*limits]}).fetchall()
    )
    # A pooler makes up the process id that it sends to its clients.
    pooled = backend_pid != connection.info.backend_pid
    unset = {name: limits[name] for name in names or ()}
    begin = [_BEGIN_DURABLE]
    if pooled:
        # The next execution may be in another session, where nothing was prepared.
        connection.prepare_threshold = None
        begin += [f"SET LOCAL {name} = {value}" for name, value in unset.items()]
    elif unset:
        connection.execute("; ".join(f"SET {name} = {value}" for name, value in unset.items()))
    record.info["settings"] = ServerSettings(
        fsync=fsync,
        full_page_writes=full_page_writes,
        synchronous_commit=synchronous_commit,
        is_replica=replica,
        is_read_only=read_only,
        is_pooled=pooled,
    )
    record.info["begin"] = "; ".join(begin)


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get("isolation_level") != _AUTOCOMMIT:
        connection.exec_driver_sql(connection.info["begin"])


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
