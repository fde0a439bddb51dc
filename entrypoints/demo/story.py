"""``make demo``: an operator's day, with a provider that misbehaves and a laptop that dies.

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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import define, field
from rich.console import Console

from tileferry.entrypoints.provider.imagery import draw_tile

AREA = ["--bbox", "36.20,49.90,36.42,50.04", "--zoom", "14-15"]
SMALL_AREA = ["--bbox", "36.20,49.90,36.42,50.04", "--zoom", "14"]
"""For whoever is in a hurry: ``--small``."""
FLIGHT = ["--flight", "derkachi-07"]
SECTOR = ["--sector", "stable_rear"]
CARD = "card"
"""The folder of what the aircraft captured."""
CAPTURED = [(39_370 + column, 22_230 + row) for column in range(8) for row in range(6)]
FAULTS: list[dict[str, Any]] = [
    {"fault": "503", "call": "tile", "rate": 0.02},
    {"fault": "429", "call": "tile", "rate": 0.004},
    {"fault": "truncate", "call": "tile", "rate": 0.01},
    {"fault": "wrong-digest", "rate": 0.005},
    {"fault": "reset", "call": "tile", "rate": 0.01},
    # Of the first upload the answer is lost, the second meets an outage.
    {"fault": "lost-answer", "attempts": [1], "times": 1},
    {"fault": "503", "call": "upload", "attempts": [1], "times": 1},
    {"fault": "poison", "tile": "16/39371/22233", "reason": "clouds: 93 % of the picture"},
    {"fault": "poison", "tile": "16/39374/22231", "reason": "blurred: sharpness 0.11"},
    {"fault": "poison", "tile": "16/39376/22234", "reason": "blurred: sharpness 0.09"},
]
GIVEN_UP = "flight-derkachi-07/16/39371/22233"
SETTINGS = {
    "TILEFERRY_C11_SERVICE_API_KEY": "demo",
    "TILEFERRY_C11_UPLOAD_BATCH_TILES": "12",
    # Nobody who looks at a demo wants to wait for 2, 4 and 8 seconds.
    "TILEFERRY_C11_BACKOFF_BASE_S": "1",
    "TILEFERRY_C11_BACKOFF_CAP_S": "5",
}
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
        code = subprocess.run(  # noqa: S603  # our own command
            [*_MODULE, *arguments], env=self.environment, cwd=self.home, check=False
        ).returncode
        if code not in may_end_with:
            raise SystemExit(f"demo: tileferry {arguments[0]} ended with {code}")
        return code

    def run_and_kill(self, *arguments: str, requests: Path) -> None:
        """Run a command, and take its power away once the provider was asked for enough tiles."""
        self._show(arguments)
        process = subprocess.Popen(  # noqa: S603  # as above
            [*_MODULE, *arguments], env=self.environment, cwd=self.home
        )
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
    record, faults = home / "requests.jsonl", home / "faults.json"
    faults.write_text(json.dumps(FAULTS), encoding="utf-8")
    process = subprocess.Popen(  # noqa: S603  # our own command
        [*_MODULE, "provider", "serve", "--demo", "--port", "0", "--json", "--seed", "7",
         "--record", str(record), "--faults-file", str(faults)],
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
                    **SETTINGS,
                    "TILEFERRY_DATA_DIR": str(home / "postgres"),
                    "TILEFERRY_C11_CACHE_ROOT": str(home / "cache"),
                    "TILEFERRY_C11_SATELLITE_PROVIDER_URL": url,
                    "TILEFERRY_LOG_FILE": str(home / "tileferry.log"),
                },
            )
            prepare(stage, requests, SMALL_AREA if "--small" in sys.argv[1:] else AREA)
            deliver(stage)
            account(stage)
    console.print(f"\nThat took {time.monotonic() - begun_s:.0f} seconds.", style="bold")


def prepare(stage: Stage, requests: Path, area: list[str]) -> None:
    """Download an area, lose power on the way, go on, and ask whether to fly."""
    download = ("download", *area, *FLIGHT, *SECTOR)
    stage.say("A new laptop: the database is made.")
    stage.run("db", "upgrade")
    stage.say("What is there, what would it take?")
    stage.run("plan", *area, *FLIGHT, *SECTOR)
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
    stage.run("cache", "verify", *area, *SECTOR, may_end_with=(0, 3))


def deliver(stage: Stage) -> None:
    """Take in what the aircraft captured, and upload it; what nobody wants is for a human."""
    capture(stage.home / CARD)
    stage.say("The aircraft is back, with a card full of pictures.")
    stage.run("ingest", *FLIGHT, CARD)
    upload = ("upload", *FLIGHT, "--on-ground")
    stage.say(
        "They are signed and uploaded. One answer is lost on the way, one upload meets a 503:",
        "both are repeated to the byte. Three pictures are rejected, however often they are tried.",
    )
    stage.run(*upload, may_end_with=(3,))
    stage.say("Later again: only those three are sent, and now their budget is spent.")
    stage.run(*upload, may_end_with=(3,))
    stage.say("A human decides what becomes of them.")
    stage.run("giveups", "list")
    stage.run("giveups", "show", GIVEN_UP)


def account(stage: Stage) -> None:
    """Show what was decided on the way."""
    stage.say("Every retry was decided in one place, and is in an audit log that can be verified.")
    stage.run("audit", "stats")
    stage.run("audit", "verify")


def capture(card: Path) -> None:
    """Write the pictures that an aircraft brings home."""
    for x, y in CAPTURED:
        picture = card / "16" / str(x) / f"{y}.jpg"
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_bytes(draw_tile(16, x, y))
    facts = {"captured_at": datetime.now(UTC).isoformat(), "resolution_m_per_px": 0.6}
    (card / "metadata.json").write_text(json.dumps(facts), encoding="utf-8")
