"""Commands whose n-th file call fails: EIO, ENOSPC, EINTR, short reads and writes, lost syncs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from json import dumps
from pathlib import Path
from shutil import which
from typing import Self

from attrs import define, frozen

from support.operator import CommandResult

SOURCE = Path(__file__).with_name("call_faults.c")
NO_COMPILER = "no C compiler (cc): file calls cannot be made to fail"
_TESTS = Path(__file__).parent.parent


class FaultKind(IntEnum):
    """What happens to the call; the order is that of ``call_faults.c``."""

    EIO = 0
    ENOSPC = 1
    EINTR = 2
    SHORT = 3
    """A read or a write ends after half of its bytes."""
    LOST = 4
    """A sync fails with EIO, and what was appended since the last one is gone."""


@frozen(kw_only=True)
class CallFault:
    """A fault of the n-th call (from 0) that this kind can hit; or of that and all later ones."""

    kind: FaultKind = FaultKind.EIO
    fail_at: int = -1
    permanently: bool = False

    def __str__(self) -> str:
        return f"{self.kind.name}{' for good' if self.permanently else ''} at call {self.fail_at}"


NO_FAULT = CallFault()


@frozen
class Call:
    """A call that a command made below its home."""

    name: str
    descriptor: int
    has_failed: bool
    path: str

    @classmethod
    def parse(cls, line: str) -> Self:
        _, name, descriptor, failed, path = line.split(" ", 4)
        return cls(name, int(descriptor), failed == "1", path)


@frozen
class FaultyRun:
    """How a command ended, and the calls it made."""

    result: CommandResult
    calls: list[Call]

    @property
    def failures(self) -> list[Call]:
        return [call for call in self.calls if call.has_failed]

    def find_resynced(self) -> list[Call]:
        """Return the syncs of a descriptor that failed to sync before: invariant 4 forbids them."""
        failed: set[int] = set()
        found = []
        for call in self.calls:
            if call.name in {"fsync", "fdatasync"}:
                if call.descriptor in failed:
                    found.append(call)
                elif call.has_failed:
                    failed.add(call.descriptor)
            elif call.name == "close":
                failed.discard(call.descriptor)
        return found


@define(eq=False)
class FaultServer:
    """Runs commands one after the other, each in a fork of one process."""

    process: "subprocess.Popen[str]"
    folder: Path

    def run(
        self, *arguments: str, home: Path, environment: dict[str, str], fault: CallFault = NO_FAULT
    ) -> FaultyRun:
        """Run a command to its end."""
        files = {name: self.folder / name for name in ("out", "err", "log")}
        request = {
            "arguments": arguments,
            "home": str(home),
            "environment": environment,
            "kind": fault.kind.value,
            "fail_at": fault.fail_at,
            "permanently": fault.permanently,
            **{name: str(path) for name, path in files.items()},
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the server of faulty commands has ended"
        out, err, log = (path.read_text("utf-8", "replace") for path in files.values())
        code = os.waitstatus_to_exitcode(int(answer))
        return FaultyRun(CommandResult(code, out, err), [*map(Call.parse, log.splitlines())])


def compile_call_faults(folder: Path) -> Path | None:
    """Compile the library; return None where there is no compiler."""
    compiler = which("cc")
    if compiler is None:
        return None
    library = folder / "call_faults.so"
    command: list[str | Path] = [
        compiler,
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Werror",
        "-o",
        library,
        SOURCE,
    ]
    subprocess.run(command, check=True)  # noqa: S603  # our own source
    return library


@contextmanager
def start_fault_server(library: Path, folder: Path) -> Iterator[FaultServer]:
    """Start a server; its folder must not be below the home of any command."""
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(_TESTS)}
    process = subprocess.Popen(  # our own command
        [sys.executable, "-m", "support.fault_server"],
        env={**environment, "NO_COLOR": "1", "COLUMNS": "80"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield FaultServer(process, folder)
    finally:
        process.communicate()
