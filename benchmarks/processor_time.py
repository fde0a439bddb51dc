"""Processor time, which says something even on a busy machine, where wall time does not.

This process is measured by ``getrusage``, a command by what ``wait4`` returns, and a server by
``/proc/<pid>/schedstat`` of all its processes.
"""

import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile

from attrs import frozen

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CHANCE = random.Random(20_480)  # noqa: S311  # the same order in every run


@frozen(kw_only=True)
class Spent:
    """What something cost."""

    wall_s: float
    own_s: float
    """Processor time of the process that did it."""
    servers_s: float = 0.0
    """Processor time of the servers that helped."""

    @property
    def processor_s(self) -> float:
        """All processor time."""
        return self.own_s + self.servers_s


def measure(work: Callable[[], object], servers: Sequence[int] = ()) -> Spent:
    """Do something in this process; ``servers`` are the process ids of those that help."""
    servers_s, own_s, wall_s = _sum_servers(servers), _own_s(), time.perf_counter()
    work()
    wall_s, own_s = time.perf_counter() - wall_s, _own_s() - own_s
    return Spent(wall_s=wall_s, own_s=own_s, servers_s=_sum_servers(servers) - servers_s)


def measure_command(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    servers: Sequence[int] = (),
) -> Spent:
    """Run a command to its end, start-up included; it must succeed.

    Run it once before: the first start compiles bytecode.
    """
    servers_s, wall_s = _sum_servers(servers), time.perf_counter()
    own = _with_bytecode(environment)
    with (
        TemporaryFile() as said,
        subprocess.Popen(command, env=own, stdout=subprocess.DEVNULL, stderr=said) as process,  # noqa: S603  # a benchmark's own
    ):
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.perf_counter() - wall_s
        said.seek(0)
        assert process.returncode == 0, f"{command}: {said.read().decode(errors='replace')}"
    own_s = usage.ru_utime + usage.ru_stime
    return Spent(wall_s=wall_s, own_s=own_s, servers_s=_sum_servers(servers) - servers_s)


def _with_bytecode(environment: Mapping[str, str] | None) -> dict[str, str]:
    given = os.environ if environment is None else environment
    return {name: value for name, value in given.items() if name != "PYTHONDONTWRITEBYTECODE"}


def compute_calibration_s() -> float:
    """Return the processor time of a fixed loop: how fast this machine is at the moment.

    Like our code, it calls functions, builds small objects, and hashes and formats them.
    """
    from hashlib import sha256  # noqa: PLC0415  # with the loop that uses it

    started_s = _own_s()
    content, found = bytes(20_480), {}
    for number in range(60_000):
        found[f"{number % 97}/{number}"] = (number, str(number), [number] * 4)
        if number % 120 == 0:
            sha256(content).hexdigest()
    assert len(sorted(found, key=len)) == len(found)
    return _own_s() - started_s


def _own_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _sum_servers(pids: Sequence[int]) -> float:
    return sum(_server_s(pid) for pid in pids)


def _server_s(pid: int) -> float:
    """Return the processor time of a server: its processes, and the children that have ended.

    The system adds a child's time to its parent when it ends, in ticks.
    """
    ended = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    living_s = sum(map(_read_schedstat, [pid, *_children(pid)]))
    return living_s + (int(ended[13]) + int(ended[14])) / _TICKS_PER_S


def _read_schedstat(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return 0.0


def _children(pid: int) -> Iterator[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return map(int, listed.split())


def compare(contenders: dict[str, Callable[[], Spent]], rounds: int = 5) -> dict[str, Spent]:
    """Let contenders take turns, in another order each time; return the medians."""
    spent: dict[str, list[Spent]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name in _CHANCE.sample(list(contenders), len(contenders)):
            spent[name].append(contenders[name]())
    return {
        name: Spent(
            wall_s=statistics.median(one.wall_s for one in runs),
            own_s=statistics.median(one.own_s for one in runs),
            servers_s=statistics.median(one.servers_s for one in runs),
        )
        for name, runs in spent.items()
    }


def rates(spent: dict[str, Spent], count: int) -> str:
    """Write what each contender needs for a tile for the details."""
    return ", ".join(
        f"{name} {count / one.wall_s:,.0f}/s with {one.own_s / count * 1e6:.0f} + "
        f"{one.servers_s / count * 1e6:.0f} µs"
        for name, one in spent.items()
    )


PYTHON = sys.executable
COMMAND = [PYTHON, "-m", "tileferry.entrypoints.cli"]
