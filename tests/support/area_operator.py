"""Somebody who downloads an area from a provider, with a shell."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from support.download_site import DERKACHI, ZOOM
from support.operator import Operator, Ran, run_here
from support.scripted_provider import KEY
from tileferry.adapters.filesystem import SegmentTileStore
from tileferry.adapters.postgres import Database, PostgresBlobIndex
from tileferry.domain.tiles import TileId

AREA = ("--bbox", str(DERKACHI), "--zoom", str(ZOOM))
FLIGHT = ("--flight", "F1", "--sector", "stable_rear")
DOWNLOAD = ("download", *AREA, *FLIGHT)
_PATIENCE_S = 90.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that happens elsewhere."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} did not happen"
        time.sleep(0.01)


@define(eq=False)
class Started:
    """A command that goes on beside the test."""

    process: "subprocess.Popen[str]"
    ran: Ran | None = field(default=None, init=False)

    def signalled(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, timeout_s: float = _PATIENCE_S) -> Ran:
        """Wait for its end."""
        out, err = self.process.communicate(timeout=timeout_s)
        assert "Traceback" not in err, err
        return Ran(self.process.returncode, out, err)


@define(eq=False)
class AreaOperator:
    """An operator whose settings lead to one provider, one cache and one log."""

    home: Path
    database_url: str
    provider_url: str
    settings: dict[str, str] = field(factory=dict)

    @property
    def cache_root(self) -> Path:
        return self.home / "cache"

    @property
    def log_file(self) -> Path:
        return self.home / "log" / "tileferry.jsonl"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **self._operator.environment(),
            "TILEFERRY_C11_SATELLITE_PROVIDER_URL": self.provider_url,
            "TILEFERRY_C11_SERVICE_API_KEY": KEY,
            "TILEFERRY_C11_CACHE_ROOT": str(self.cache_root),
            "TILEFERRY_LOG_FILE": str(self.log_file),
            **self.settings,
        }

    @property
    def _operator(self) -> Operator:
        return Operator(self.home, self.database_url)

    def command(self, *arguments: str) -> list[str]:
        """Return how a command is started."""
        return [*self._operator.command, *arguments]

    def runs(self, *arguments: str) -> Ran:
        """Run a command to its end, as a process."""
        with self.started(*arguments) as command:
            return command.ended()

    def runs_here(self, *arguments: str) -> Ran:
        """Run a command in this process, which is much faster."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.home)
            for name, value in self.environment.items():
                patch.setenv(name, value)
            return run_here(*arguments)

    @contextmanager
    def started(self, *arguments: str) -> Iterator[Started]:
        """Start a command; it does not outlive the block."""
        process = subprocess.Popen(  # noqa: S603  # our own command
            self.command(*arguments),
            env=self.environment,
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Started(process)
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def records(self) -> list[dict[str, Any]]:
        """Return what was logged."""
        if not self.log_file.exists():
            return []
        return [json.loads(line) for line in self.log_file.read_text("utf-8").splitlines()]

    def written(self) -> bytes:
        """Return everything that is below the home, names and contents."""
        found = b""
        for folder, _, names in os.walk(self.home):
            for name in names:
                path = Path(folder, name)
                found += str(path).encode() + b"\n" + path.read_bytes() + b"\n"
        return found

    def stored(self, tiles: Iterable[TileId]) -> list[bytes]:
        """Return what the cache has of these tiles."""
        with (
            closing(Database.at(self.database_url)) as database,
            SegmentTileStore(root=self.cache_root, index=PostgresBlobIndex(database)) as store,
        ):
            return [store.read_tile(tile) for tile in tiles if store.tile_exists(tile)]
