"""How long commands take that do little: against an interpreter that does nothing.

Each command is run once before: only the first start after an installation compiles bytecode.
"""

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

import psycopg

from benchmarks.cache_site import Site, fill_rows
from benchmarks.harness import Ratio, seconds_per_call
from benchmarks.processor_time import (
    COMMAND,
    PYTHON,
    Spent,
    measure_command,
)
from benchmarks.queue import FILL, GATE, PAYLOAD
from tileferry.entrypoints.cli.tree import iter_commands

HELP_GOAL = 6.0
READ_ONLY_GOAL = 9.0
NOTHING = [PYTHON, "-c", "pass"]
READ_ONLY = (
    "runs list",
    "runs list --json",
    "runs show bench-00000001",
    "state inspect",
    "queue gates",
    "flight list",
    "cache stats",
    "cache stats --json",
    "giveups list",
    "audit tail",
    "audit stats",
    "policy show",
    "db status",
    "config show",
)


def run() -> Iterator[Ratio]:
    """Measure the help of the whole, of the slowest command, and commands that only read."""
    whole = {"nothing": _started(NOTHING), "help": _started([*COMMAND, "--help"])}
    took_s = seconds_per_call(whole, calls=1, rounds=9)
    yield Ratio(
        name="tileferry --help / python -c pass",
        ratio=took_s["help"] / took_s["nothing"],
        goal=HELP_GOAL,
        detail=f"{took_s['help'] * 1000:.0f} ms against {took_s['nothing'] * 1000:.0f} ms",
    )
    commands = {
        " ".join(words): _started([*COMMAND, *words, "--help"])
        for words, _command in iter_commands()
    }
    helps_s = seconds_per_call({"": _started(NOTHING), **commands}, calls=1, rounds=3)
    nothing_s = helps_s.pop("")
    slowest = max(helps_s, key=lambda name: helps_s[name])
    yield Ratio(
        name="slowest command's --help / python -c pass",
        ratio=helps_s[slowest] / nothing_s,
        goal=HELP_GOAL,
        detail=f"{slowest}: {helps_s[slowest] * 1000:.0f} ms",
    )
    yield read_only_commands(Site.prepared("startup"))


def read_only_commands(site: Site) -> Ratio:
    """Measure the processor time of commands that only read: 20 runs, 100 tiles, a server."""
    with site.place() as (folder, url):
        fill_rows(url, 100, [])
        with psycopg.connect(url) as connection:
            connection.execute(GATE)
            connection.execute(FILL, {"name": "bench", "payload": PAYLOAD, "count": 20})
        environment = {
            **os.environ,
            "TILEFERRY_DATABASE_URL": url,
            "TILEFERRY_C11_CACHE_ROOT": str(folder / "cache"),
        }
        spent = compare_commands(
            {name: [*COMMAND, *name.split()] for name in READ_ONLY}, environment, rounds=7
        )
    nothing_s = spent.pop("")
    slowest = max(spent, key=lambda name: spent[name])
    each = ", ".join(f"{name} {seconds / nothing_s:.1f}" for name, seconds in spent.items())
    return Ratio(
        name="slowest read-only command / python -c pass, processor time",
        ratio=spent[slowest] / nothing_s,
        goal=READ_ONLY_GOAL,
        detail=f"{each}; {nothing_s * 1000:.1f} ms for nothing",
    )


def compare_commands(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], *, rounds: int
) -> dict[str, float]:
    """Run commands in turns, with one that does nothing (``""``); return median processor times."""
    spent: dict[str, list[Spent]] = {name: [] for name in ("", *commands)}
    for command in commands.values():
        measure_command(command, environment)  # compiles the bytecode
    for _ in range(rounds):
        for name, runs in spent.items():
            runs.append(measure_command(commands[name] if name else NOTHING, environment))
    return {name: statistics.median(one.own_s for one in runs) for name, runs in spent.items()}


def _started(command: Sequence[str]) -> Callable[[int], object]:
    measure_command(command)  # compiles the bytecode

    def start(calls: int) -> None:
        for _ in range(calls):
            measure_command(command)

    return start
