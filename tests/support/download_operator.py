"""Somebody who downloads an area from a provider, with a shell."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field
from sqlalchemy import text

from support.download_env import DERKACHI, ZOOM
from support.forked_command import ForkedCommand
from support.operator import CommandResult, Operator, run_in_process
from support.scripted_provider import KEY
from tileferry.adapters.filesystem import SegmentTileStore
from tileferry.adapters.postgres import Database, PostgresBlobIndex
from tileferry.domain.tiles import TileCoverage, TileId, TileTemplate

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
class RunningCommand:
    """A command that goes on beside the test."""

    process: "ForkedCommand | subprocess.Popen[str]"

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def read_errors(self) -> str:
        """Return what it has printed to stderr so far."""
        assert isinstance(self.process, ForkedCommand)
        return self.process.read_errors()

    def wait(self, timeout_s: float = _PATIENCE_S) -> CommandResult:
        """Wait for its end."""
        out, err = self.process.communicate(timeout=timeout_s)
        assert "Traceback" not in err, err
        assert self.process.returncode is not None
        return CommandResult(self.process.returncode, out, err)


@define(eq=False)
class DownloadOperator:
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

    def run(self, *arguments: str) -> CommandResult:
        """Run a command to its end, as a process."""
        with self.start(*arguments) as command:
            return command.wait()

    def run_in_process(self, *arguments: str) -> CommandResult:
        """Run a command in this process, which is much faster."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.home)
            for name, value in self.environment.items():
                patch.setenv(name, value)
            return run_in_process(*arguments)

    @contextmanager
    def start(self, *arguments: str, as_new_program: bool = False) -> Iterator[RunningCommand]:
        """Start a command; it does not outlive the block."""
        process: ForkedCommand | subprocess.Popen[str]
        if as_new_program:
            process = subprocess.Popen(  # noqa: S603  # our own command
                self.command(*arguments),
                env=self.environment,
                cwd=self.home,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        else:
            process = ForkedCommand(arguments, self.environment, self.home)
        try:
            yield RunningCommand(process)
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def read_log(self) -> list[dict[str, Any]]:
        """Return what was logged."""
        if not self.log_file.exists():
            return []
        return [json.loads(line) for line in self.log_file.read_text("utf-8").splitlines()]

    def read_all_files(self) -> bytes:
        """Return everything that is below the home, names and contents."""
        found = b""
        for folder, _, names in os.walk(self.home):
            for name in names:
                path = Path(folder, name)
                found += str(path).encode() + b"\n" + path.read_bytes() + b"\n"
        return found

    def read_stored_tiles(self, tiles: Iterable[TileId]) -> list[bytes]:
        """Return what the cache has of these tiles."""
        with (
            closing(Database.from_url(self.database_url)) as database,
            SegmentTileStore(root=self.cache_root, index=PostgresBlobIndex(database)) as store,
        ):
            return [store.read_tile(tile) for tile in tiles if store.tile_exists(tile)]


XYZ_ZOOM = 13
XYZ_AREA = ("--bbox", str(DERKACHI), "--zoom", str(XYZ_ZOOM))
XYZ_DOWNLOAD = ("download", *XYZ_AREA, "--flight", "F1", "--sector", "active_conflict")
XYZ_TILES = list(TileCoverage(bbox=DERKACHI, zoom_levels=[XYZ_ZOOM]).tiles("satellite"))


def recent_imagery_date() -> str:
    """Return a date of pictures that are fresh everywhere."""
    return (datetime.now(UTC) - timedelta(days=30)).date().isoformat()


@define(eq=False)
class XyzOperator(DownloadOperator):
    """As ``AreaOperator``, but ``provider_url`` is a tile server that was acknowledged."""

    @property
    def environment(self) -> dict[str, str]:
        given = super().environment
        del given["TILEFERRY_C11_SATELLITE_PROVIDER_URL"]
        given = {
            **given,
            "TILEFERRY_XYZ_URL_TEMPLATE": f"{self.provider_url}/xyz/{{z}}/{{x}}/{{y}}.jpg",
            "TILEFERRY_XYZ_ATTRIBUTION": "© Example contributors",
            "TILEFERRY_XYZ_LICENCE": "CC-BY-4.0",
            "TILEFERRY_XYZ_IMAGERY_DATE": recent_imagery_date(),
            "TILEFERRY_XYZ_BULK_DOWNLOAD_ACKNOWLEDGED_FOR": self.provider_url.rpartition("/")[2],
            "TILEFERRY_XYZ_MAX_REQUESTS_PER_SECOND": "100",
            **self.settings,
        }
        return {name: value for name, value in given.items() if value}

    def read_stored_tiles(self, tiles: Iterable[TileId]) -> list[bytes]:
        source = TileTemplate(self.environment["TILEFERRY_XYZ_URL_TEMPLATE"]).source
        return super().read_stored_tiles([evolve(tile, source=source) for tile in tiles])


def list_tile_paths(tiles: list[TileId]) -> set[str]:
    """Return where a plain tile server has these tiles."""
    return {f"/xyz/{tile.zoom}/{tile.x}/{tile.y}.jpg" for tile in tiles}


def read_database_rows(database_url: str) -> str:
    with (
        closing(Database.from_url(database_url)) as database,
        database.read_connection() as connection,
    ):
        rows = connection.execute(text("SELECT * FROM audit_log")).all()
        others = connection.execute(text("SELECT * FROM tiles")).all()
    return repr([*map(tuple, rows), *map(tuple, others)])


def collect_traces(operator: DownloadOperator, *runs: CommandResult) -> str:
    """Return all that commands left: on their outputs, in every file, in the database."""
    printed = "".join(ran.out + ran.err for ran in runs)
    return (
        printed
        + operator.read_all_files().decode("utf-8", "replace")
        + read_database_rows(operator.database_url)
    )
