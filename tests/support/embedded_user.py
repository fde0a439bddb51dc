"""A process that uses an embedded server: it says where, and goes on until its input ends."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import text

from tileferry.adapters.postgres import Database, start_embedded

ANSWER_S_MAX = 60


def visit_server(data_dir: Path) -> tuple[str, int]:
    """Use the server until this process ends; return its address, and the visits so far."""
    url = start_embedded(data_dir)
    database = Database.from_url(url)
    with database.transaction() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(1)"))
        connection.execute(text("CREATE TABLE IF NOT EXISTS visits (pid integer)"))
        connection.execute(text("INSERT INTO visits VALUES (pg_backend_pid())"))
        visits: int = connection.execute(text("SELECT count(*) FROM visits")).scalar_one()
    database.close()
    return url, visits


class ServerUser:
    """Another process that uses the server in a directory."""

    def __init__(
        self, data_dir: Path, *, umask: int = -1, environment: Mapping[str, str] | None = None
    ) -> None:
        command = [sys.executable, __file__, str(data_dir)]
        self._process = subprocess.Popen(  # noqa: S603  # as written here
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            umask=umask,
            env={**os.environ, **(environment or {})},
        )

    def answer(self) -> tuple[str, int]:
        """Wait until it is there; return the address, and how many have been there so far."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._process.communicate(timeout=ANSWER_S_MAX)[1]
        url, visits = line.split()
        return url, int(visits)

    def leave(self) -> None:
        _, said = self._process.communicate(timeout=ANSWER_S_MAX)
        assert self._process.returncode == 0, said

    def die(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=ANSWER_S_MAX)


if __name__ == "__main__":
    print(*visit_server(Path(sys.argv[1])), flush=True)  # noqa: T201  # the answer
    sys.stdin.read()
