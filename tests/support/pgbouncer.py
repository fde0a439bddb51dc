"""A real PgBouncer in transaction mode, in front of the server of a test."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from support.proxies import create_postgres_proxy

PGBOUNCER = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
needs_pgbouncer = pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed")
_START_S_MAX = 20.0

# Fails a transaction that would be lost in a crash; it fires when the transaction commits.
_REFUSE_WEAK_COMMITS = """
CREATE FUNCTION refuse_weak_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    RAISE EXCEPTION 'a commit of % is not durable', TG_TABLE_NAME;
  END IF;
  RETURN NULL;
END $$;
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public'
  LOOP EXECUTE format('CREATE CONSTRAINT TRIGGER refuse_weak_commit'
    ' AFTER INSERT OR UPDATE OR DELETE ON %I DEFERRABLE INITIALLY DEFERRED'
    ' FOR EACH ROW EXECUTE FUNCTION refuse_weak_commit()', name); END LOOP;
END $$;
"""


def weaken_commits(database_url: str) -> None:
    """Let the database default to weak commits, and refuse each one that is not strengthened."""
    name = make_url(database_url).database
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(_REFUSE_WEAK_COMMITS)
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off".encode())


@contextmanager
def run_pgbouncer(
    database_url: str, folder: Path, *, sessions: int = 8, resets: bool = False
) -> Iterator[str]:
    """Yield the URL of the database through a pooler with this many sessions.

    One that ``resets`` clears a session after each transaction: nothing survives by chance.
    """
    assert PGBOUNCER
    server = make_url(database_url)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # It may not run as root, and only root can reach the server's socket: hence the proxy.
    account = ["-u", "nobody"] if os.geteuid() == 0 else []
    settings, log = folder / "pgbouncer.ini", folder / "pgbouncer.log"
    with create_postgres_proxy(database_url) as proxy, log.open("wb") as output:
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={proxy.port} user={server.username}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = transaction\ndefault_pool_size = {sessions}\n"
            f"server_reset_query_always = {int(resets)}\n"
        )
        process = subprocess.Popen(  # noqa: S603  # as written here
            [PGBOUNCER, *account, settings], stderr=output
        )
        url = server.set(host="127.0.0.1", port=port, query={"sslmode": "disable"})
        try:
            _wait_for_port(port)
            yield url.render_as_string(hide_password=False)
        finally:
            process.kill()
            process.wait()


def _wait_for_port(port: int) -> None:
    deadline_s = time.monotonic() + _START_S_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline_s, "PgBouncer did not start"
            time.sleep(0.02)
        else:
            return
