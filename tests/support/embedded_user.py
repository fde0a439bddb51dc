"""A process that uses an embedded server: it says where, and goes on until its input ends."""

import sys
from pathlib import Path

from sqlalchemy import text

from tileferry.adapters.postgres import Database, start_embedded

if __name__ == "__main__":
    url = start_embedded(Path(sys.argv[1]))
    database = Database.from_url(url)
    with database.transaction() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(1)"))
        connection.execute(text("CREATE TABLE IF NOT EXISTS visits (pid integer)"))
        connection.execute(text("INSERT INTO visits VALUES (pg_backend_pid())"))
        visits = connection.execute(text("SELECT count(*) FROM visits")).scalar_one()
    print(url, visits, flush=True)  # noqa: T201  # the answer
    sys.stdin.read()
    database.close()
