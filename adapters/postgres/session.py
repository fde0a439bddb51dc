"""The settings of a session with the server, and of its transactions.

A promise such as "committed means on disk" rests on settings of the transaction itself. A pooler
may hand each transaction to another server session, which has other settings (ADR 0019).
"""

import os
from collections.abc import Mapping
from typing import Any

import psycopg
from attrs import frozen

from tileferry.domain.server_settings import ServerSettings

LOCK_TIMEOUT_S = 30.0
"""How long a statement waits for a lock held by another transaction."""
STATEMENT_TIMEOUT_S = 120.0
"""Maximum duration of a statement."""
CONNECT_TIMEOUT_S = 10
"""How long to wait for a connection."""
IDLE_TIMEOUT_S = 60.0
"""How long a transaction may be idle before the server ends it: its process may be dead."""
_CONNECT_ARGS: Mapping[str, Any] = {
    "client_encoding": "utf8",
    "fallback_application_name": "tileferry",
    # Detect a dead network within a minute; the TCP default is two hours.
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 50_000,
}
# Raises "off" only: each other level waits for the server's disk, and an operator may have chosen
# one that waits for replicas as well.
_BEGIN_DURABLE = (
    "BEGIN; SELECT pg_advisory_xact_lock({session_id});"
    " SELECT set_config('synchronous_commit', 'on', true)"
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
        pg_is_in_recovery(), to_regclass('session_commits') IS NOT NULL
    FROM pg_settings
"""


@frozen(kw_only=True)
class SessionLimits:
    """Time limits, which apply unless the URL, the server or the database user sets its own."""

    lock_timeout_s: float = LOCK_TIMEOUT_S
    statement_timeout_s: float = STATEMENT_TIMEOUT_S
    idle_timeout_s: float = IDLE_TIMEOUT_S
    connect_timeout_s: int = CONNECT_TIMEOUT_S

    @property
    def connect_args(self) -> Mapping[str, Any]:
        """The arguments of a new connection, unless the URL has them."""
        return {"connect_timeout": self.connect_timeout_s, **_CONNECT_ARGS}

    @property
    def settings(self) -> dict[str, str]:
        """The limits in milliseconds, by the names of the server's settings."""
        return {
            "lock_timeout": f"{self.lock_timeout_s * 1_000:.0f}",
            "statement_timeout": f"{self.statement_timeout_s * 1_000:.0f}",
            "idle_in_transaction_session_timeout": f"{self.idle_timeout_s * 1_000:.0f}",
        }


@frozen(kw_only=True)
class Session:
    """A configured session."""

    settings: ServerSettings
    session_id: int
    """Of this session alone."""
    has_marks: bool
    """Whether its transactions can leave marks: the database has our schema."""
    begin: str
    """Begins a transaction with its lock and the settings that it needs."""


def configure_session(connection: psycopg.Connection[Any], limits: SessionLimits) -> Session:
    """Set the timeouts, read the server's settings, and find out whether the session is ours alone.

    A timeout is set only if it still has the server's built-in default. Behind a pooler it is set
    in each transaction: other clients use the same session.
    """
    wanted = limits.settings
    ((backend_pid, names, *switches),) = connection.execute(
        _READ_SESSION, {"names": [*wanted]}
    ).fetchall()
    fsync, full_page_writes, synchronous_commit, read_only, replica, has_marks = switches
    # A pooler makes up the process id that it sends to its clients.
    pooled = backend_pid != connection.info.backend_pid
    unset = {name: wanted[name] for name in names or ()}
    session_id = int.from_bytes(os.urandom(8)) >> 2
    begin = [_BEGIN_DURABLE.format(session_id=session_id)]
    if pooled:
        # The next execution may be in another session, where nothing was prepared.
        connection.prepare_threshold = None
        begin += [f"SET LOCAL {name} = {value}" for name, value in unset.items()]
    elif unset:
        connection.execute("; ".join(f"SET {name} = {value}" for name, value in unset.items()))
    settings = ServerSettings(
        fsync=fsync,
        full_page_writes=full_page_writes,
        synchronous_commit=synchronous_commit,
        is_replica=replica,
        is_read_only=read_only,
        is_pooled=pooled,
    )
    return Session(
        settings=settings, session_id=session_id, has_marks=has_marks, begin="; ".join(begin)
    )


def check_alive(connection: psycopg.Connection[Any]) -> None:
    """Raise ``OperationalError`` if the server has closed a connection since its last use.

    Reads pending input without waiting, which is a thousand times cheaper than a query. Reads
    twice, because the server may send a final message before it closes the connection.
    """
    connection.pgconn.consume_input()
    connection.pgconn.consume_input()
