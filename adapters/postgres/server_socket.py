"""The socket of the embedded server: who listens on it, and connections to it."""

import os
import socket
import struct
import sys
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg
from attrs import frozen
from psycopg import pq
from psycopg.conninfo import make_conninfo

DATABASE = "tileferry"
SUPERUSER = "postgres"
PORT = 5432
SOCKET = f".s.PGSQL.{PORT}"
_PATH_BYTES_MAX = 107
_CONNECT_TIMEOUT_S = 10
# Folders that libpq cannot be given by their path, opened for as long as this process lives.
_OPENED: dict[Path, int] = {}


@frozen
class ServerSocket:
    """The socket in the folder of a server's data."""

    pgdata: Path

    @property
    def url(self) -> str:
        """The URL of our database, valid in this process."""
        query = urlencode({"host": self._find_folder(), "port": PORT}, quote_via=quote)
        return f"postgresql://{SUPERUSER}@/{DATABASE}?{query}"

    def find_listener(self) -> int | None:
        """Return the id of the process that listens; 0 if it cannot be seen, ``None`` without one.

        The kernel knows it. The server's own file with its id may be stale or damaged.
        """
        if not self._exists:
            return None
        folder = os.open(self.pgdata, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(1)
                if sys.platform != "linux":
                    client.connect(str(self.pgdata / SOCKET))
                    return 0
                client.connect(f"/proc/self/fd/{folder}/{SOCKET}")  # its path may be too long
                size = struct.calcsize("3i")
                peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
                pid: int = struct.unpack("3i", peer)[0]
                return pid
        except OSError:
            return None
        finally:
            os.close(folder)

    def ping(self) -> pq.Ping:
        """Return whether the server accepts connections, rejects them, or does not answer."""
        if not self._exists:
            return pq.Ping.NO_RESPONSE
        return pq.Ping(pq.PGconn.ping(self._build_conninfo(SUPERUSER).encode()))

    def serves_database(self) -> bool:
        """Return whether the server accepts connections to our database."""
        if not self._exists:
            return False
        try:
            psycopg.connect(self._build_conninfo(DATABASE)).close()
        except psycopg.OperationalError:
            return False
        return True

    def ensure_database(self) -> bool:
        """Create our database if it is missing; return ``False`` if the server is incomplete."""
        try:
            connection = psycopg.connect(self._build_conninfo(SUPERUSER), autocommit=True)
        except psycopg.OperationalError as error:
            # This is the last thing that is created with a server.
            if f'database "{SUPERUSER}" does not exist' in str(error):
                return False
            raise
        with connection:
            query = "SELECT 1 FROM pg_database WHERE datname = %s"
            if connection.execute(query, (DATABASE,)).fetchone() is None:
                connection.execute(f"CREATE DATABASE {DATABASE}".encode())
        return True

    @property
    def _exists(self) -> bool:
        return (self.pgdata / SOCKET).exists()

    def _build_conninfo(self, database: str) -> str:
        return make_conninfo(
            host=self._find_folder(),
            port=PORT,
            user=SUPERUSER,
            dbname=database,
            connect_timeout=_CONNECT_TIMEOUT_S,
        )

    def _find_folder(self) -> str:
        """Return a path of the folder that libpq can use in this process.

        libpq splits a path at commas, and the system limits its length.
        """
        path, plain = self.pgdata, str(self.pgdata)
        short = len(os.fsencode(path / SOCKET)) <= _PATH_BYTES_MAX
        if short and "," not in plain and plain.isprintable():
            return plain
        opened = _OPENED.get(path)
        if opened is None or not os.path.samestat(os.fstat(opened), path.stat()):
            opened = _OPENED[path] = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/{os.getpid()}/fd/{opened}"  # a child of ours, such as psql, can use it too
