"""The demo's session: a folder, a terminal, a faulty provider, and commands as real processes."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from attrs import define, field
from rich.console import Console
from rich.rule import Rule

from tileferry.domain.errors import TileManagerError
from tileferry.entrypoints.demo.query_process import QueryProcess
from tileferry.entrypoints.demo.scenario import FAULTS, SEED

_PATIENCE_S = 120.0
_LOOK_EVERY_S = 0.02
_COMMAND_CHARS_MAX = 96
TILEFERRY = [sys.executable, "-m", "tileferry.entrypoints.cli"]
CHILD_COMMAND = [sys.executable, "-m", "tileferry.entrypoints.demo.child_command"]


class DemoError(TileManagerError):
    """The demo did not go as scripted."""


@define
class CommandRun:
    """A command of a chapter, and when it ran."""

    words: str
    began_at: datetime
    ended_at: datetime
    killed: bool = False


@define
class Chapter:
    """A part of the demo, with the commands that it ran."""

    title: str
    began_at: datetime
    commands: list[CommandRun] = field(factory=list)


@define(kw_only=True)
class DemoSession:
    """Prints text, runs commands and queries facts for the chapters."""

    home: Path
    console: Console
    out: IO[str]
    """Receives the stdout of the commands."""
    environment: Mapping[str, str]
    record: Path
    """The provider's record of every request."""
    clerk: QueryProcess
    chapters: list[Chapter] = field(factory=list)

    def begin_chapter(self, title: str) -> None:
        self.chapters.append(Chapter(title, _now()))
        self.console.print()
        number = len(self.chapters)
        self.console.print(Rule(f"[bold]{number}  {title}[/]", align="left", style="cyan"))

    def say(self, *lines: str) -> None:
        self.console.print()
        for line in lines:
            self.console.print(line, style="bold")

    def run(self, *arguments: str, ends_with: int = 0) -> None:
        """Show a command and run it; its output goes to the terminal unchanged."""
        with self._start_command(arguments) as (process, _played):
            code = process.wait()
        if code != ends_with:
            raise DemoError(f"tileferry {arguments[0]} exited with {code} instead of {ends_with}")

    def run_and_kill(self, *arguments: str, after_requests: int) -> None:
        """Run a command, and kill it after the provider received enough tile requests."""
        already = len(self.read_tile_requests())
        with self._start_command(arguments) as (process, played):
            deadline_s = time.monotonic() + _PATIENCE_S
            while len(self.read_tile_requests()) < already + after_requests:
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise DemoError("the download ended before it could be killed")
                time.sleep(_LOOK_EVERY_S)
            process.kill()
            process.wait()
            played.killed = True
        self.console.show_cursor()  # the killed process could not restore it
        self.console.print("\n[bold red]SIGKILL[/]: the power is gone.")

    def read_tile_requests(self) -> list[dict[str, Any]]:
        """Return every tile request in the provider's record."""
        return [line for line in self.read_record() if line.get("tile") is not None]

    def read_record(self) -> list[dict[str, Any]]:
        """Return the provider's record, without a line that is still being written."""
        text = ""
        with contextlib.suppress(FileNotFoundError):
            text = self.record.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    @contextmanager
    def _start_command(
        self, arguments: tuple[str, ...]
    ) -> Iterator[tuple[subprocess.Popen[bytes], CommandRun]]:
        words = " ".join(_quote_word(word) for word in arguments)
        shown = fold_command(f"$ tileferry {words}")
        self.console.print(shown, style="cyan", soft_wrap=True, markup=False)
        self.out.flush()
        began_at = _now()
        process = subprocess.Popen(  # noqa: S603  # our own command
            [*TILEFERRY, *arguments], env=self.environment, cwd=self.home, stdout=self.out
        )
        played = CommandRun(words, began_at, began_at)
        self.chapters[-1].commands.append(played)
        try:
            yield process, played
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            played.ended_at = _now()


def _now() -> datetime:
    return datetime.now(UTC)


def _quote_word(word: str) -> str:
    return f'"{word}"' if " " in word else word


def fold_command(command: str) -> str:
    """Break a long command before an option, so that a shell still accepts it."""
    rows = [""]
    for part in command.split(" --"):
        text = f" --{part}" if rows[-1] else part
        if len(rows[-1]) + len(text) > _COMMAND_CHARS_MAX:
            rows.append(f"   {text}")
        else:
            rows[-1] += text
    return " \\\n".join(rows)


@contextmanager
def run_faulty_provider(home: Path, record: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Run the reference provider for the duration of a block; yield its address."""
    faults = home / "faults.json"
    faults.write_text(json.dumps(FAULTS), encoding="utf-8")
    process = subprocess.Popen(  # noqa: S603  # our own command
        [*CHILD_COMMAND, "provider", "serve", "--demo", "--port", "0", "--json", "--seed", SEED,
         "--record", str(record), "--faults-file", str(faults)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise DemoError("the provider did not start")
        yield json.loads(line)["url"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=_PATIENCE_S)
