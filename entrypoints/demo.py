"""``make demo``: an operator's morning, with a provider that misbehaves and a laptop that dies.

Everything is real: the commands are those that an operator types, the provider is a process on this
machine, the database is an embedded Postgres, and the kill is a SIGKILL. All of it lives in a
temporary folder that is gone at the end.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field
from rich.console import Console

AREA = ["--bbox", "36.20,49.90,36.42,50.04", "--zoom", "14-15"]
SMALL_AREA = ["--bbox", "36.20,49.90,36.42,50.04", "--zoom", "14"]
"""For whoever is in a hurry: ``--small``."""
FLIGHT = ["--flight", "derkachi-07", "--sector", "stable_rear"]
FAULTS = ["503=0.02", "429=0.004", "truncate=0.01", "wrong-digest=0.005", "reset=0.01"]
KILL_AFTER_TILES = 80
_PATIENCE_S = 60.0
_MODULE = [sys.executable, "-m", "tileferry.entrypoints.cli"]


@define
class Stage:
    """Where the demo plays: a folder, its environment, and what was said so far."""

    home: Path
    console: Console
    environment: dict[str, str] = field(factory=dict)

    def say(self, *lines: str) -> None:
        """Tell what comes next."""
        self.console.print()
        for line in lines:
            self.console.print(line, style="bold")

    def run(self, *arguments: str, may_end_with: tuple[int, ...] = (0,)) -> int:
        """Show a command and run it; its output goes to the terminal as it is."""
        self._show(arguments)
        code = subprocess.run([*_MODULE, *arguments], env=self.environment, check=False).returncode  # noqa: S603  # our own command
        if code not in may_end_with:
            raise SystemExit(f"demo: tileferry {arguments[0]} ended with {code}")
        return code

    def run_and_kill(self, *arguments: str, requests: Path) -> None:
        """Run a command, and take its power away once the provider was asked for enough tiles."""
        self._show(arguments)
        process = subprocess.Popen([*_MODULE, *arguments], env=self.environment)  # noqa: S603  # as above
        deadline_s = time.monotonic() + _PATIENCE_S
        while process.poll() is None and time.monotonic() < deadline_s:
            if _tiles_asked_for(requests) >= KILL_AFTER_TILES:
                break
            time.sleep(0.02)
        process.kill()
        process.wait()

    def _show(self, arguments: tuple[str, ...]) -> None:
        self.console.print(f"$ tileferry {' '.join(arguments)}", style="cyan", soft_wrap=True)


def _tiles_asked_for(requests: Path) -> int:
    with contextlib.suppress(OSError):
        lines = requests.read_text(encoding="utf-8").splitlines()
        return sum('"tile":' in line and '"tile":null' not in line for line in lines)
    return 0


@contextmanager
def provider(home: Path) -> Iterator[tuple[str, Path]]:
    """Run the reference provider for a while; yield its address and its record of requests."""
    record = home / "requests.jsonl"
    faults = [part for fault in FAULTS for part in ("--fault", fault)]
    process = subprocess.Popen(  # noqa: S603  # our own command
        [*_MODULE, "provider", "serve", "--demo", "--port", "0", "--json", "--seed", "7",
         "--record", str(record), *faults],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise SystemExit("demo: the provider did not start")
        yield json.loads(line)["url"], record
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=_PATIENCE_S)


def main() -> None:
    """Play it."""
    console = Console(highlight=False)
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tileferry-demo-") as folder:
        home = Path(folder)
        with provider(home) as (url, requests):
            stage = Stage(
                home,
                console,
                {
                    **os.environ,
                    "TILEFERRY_DATA_DIR": str(home / "postgres"),
                    "TILEFERRY_C11_CACHE_ROOT": str(home / "cache"),
                    "TILEFERRY_C11_SATELLITE_PROVIDER_URL": url,
                    "TILEFERRY_C11_SERVICE_API_KEY": "demo",
                    "TILEFERRY_LOG_FILE": str(home / "tileferry.log"),
                },
            )
            play(stage, requests, SMALL_AREA if "--small" in sys.argv[1:] else AREA)
    console.print(f"\nThat took {time.monotonic() - begun_s:.0f} seconds.", style="bold")


def play(stage: Stage, requests: Path, area: list[str]) -> None:
    """Download an area, lose power on the way, go on, and ask whether to fly."""
    download = ("download", *area, *FLIGHT)
    stage.say("A new laptop: the database is made.")
    stage.run("db", "upgrade")
    stage.say("What is there, what would it take?")
    stage.run("plan", *area, *FLIGHT)
    stage.say(
        "The provider fails and throttles now and then, and some of what it sends is damaged.",
        "In the middle of the download the laptop loses its power (SIGKILL).",
    )
    stage.run_and_kill(*download, requests=requests)
    stage.say("The same command goes on where it was; nothing that is safe is fetched again.")
    stage.run(*download, may_end_with=(0, 3))
    stage.say("Once more: there is nothing left to do.")
    stage.run(*download, may_end_with=(0, 3))
    stage.say("Is the area ready for the flight?")
    stage.run("cache", "verify", *area, "--sector", "stable_rear", may_end_with=(0, 3))
    stage.say("Every retry was decided in one place, and is in an audit log that can be verified.")
    stage.run("audit", "stats")
    stage.run("audit", "verify")


if __name__ == "__main__":
    main()
