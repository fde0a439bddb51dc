"""How long somebody waits who only asks for help: against an interpreter that does nothing."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

from benchmarks.harness import Ratio, seconds_per_call
from tileferry.entrypoints.cli.tree import iter_commands

HELP_GOAL = 6.0

_NOTHING = [sys.executable, "-c", "pass"]
_COMMAND = [sys.executable, "-m", "tileferry.entrypoints.cli"]


def run() -> Iterator[Ratio]:
    """Measure the help of the whole, and of the slowest command."""
    whole = {"nothing": _started(_NOTHING), "help": _started([*_COMMAND, "--help"])}
    took_s = seconds_per_call(whole, calls=1, rounds=9)
    yield Ratio(
        name="tileferry --help / python -c pass",
        ratio=took_s["help"] / took_s["nothing"],
        goal=HELP_GOAL,
        detail=f"{took_s['help'] * 1000:.0f} ms against {took_s['nothing'] * 1000:.0f} ms",
    )
    commands = {
        " ".join(words): _started([*_COMMAND, *words, "--help"])
        for words, _command in iter_commands()
    }
    helps_s = seconds_per_call({"": _started(_NOTHING), **commands}, calls=1, rounds=3)
    nothing_s = helps_s.pop("")
    slowest = max(helps_s, key=lambda name: helps_s[name])
    yield Ratio(
        name="slowest command's --help / python -c pass",
        ratio=helps_s[slowest] / nothing_s,
        goal=HELP_GOAL,
        detail=f"{slowest}: {helps_s[slowest] * 1000:.0f} ms",
    )


def _started(command: Sequence[str]) -> Callable[[int], object]:
    def start(calls: int) -> None:
        for _ in range(calls):
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)  # noqa: S603  # ours

    return start
