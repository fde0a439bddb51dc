"""Commands as processes of their own, forked from one that has imported the product.

Most of the time of a short command is spent on imports. What the process does is the same: its
environment, its folder, its output, its signals and its end are its own. Its arguments are not
visible to others, so a test of that starts a new program.
"""

import atexit
import gc
import os
import shutil
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import mkdtemp

from attrs import define, field

from support.crash_processes import processes
from tileferry.entrypoints.cli.main import main

_STREAMS = {1: "out", 2: "err"}


def run_command(
    arguments: Sequence[str], environment: Mapping[str, str], home: Path, folder: Path
) -> None:
    """Be a command: what it prints goes to files."""
    for number, name in _STREAMS.items():
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    gc.freeze()  # what is imported is shared with the server
    os.chdir(home)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["tileferry", *arguments]
    try:
        main(arguments)
    finally:
        atexit._run_exitfuncs()  # as at the end of any other program


@define(eq=False)
class ForkedCommand:
    """A running command, with the methods of ``subprocess.Popen`` that tests need."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    home: Path
    _folder: Path = field(factory=lambda: Path(mkdtemp()), init=False)
    _process: ForkServerProcess = field(init=False)

    def __attrs_post_init__(self) -> None:
        weakref.finalize(self, shutil.rmtree, self._folder)
        self._process = processes.Process(
            target=run_command, args=(self.arguments, self.environment, self.home, self._folder)
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return its exit code, if it has ended."""
        return self._process.exitcode

    def read_output(self) -> str:
        """Return all that it has printed so far."""
        return self._read("out") + self._read("err")

    def read_errors(self) -> str:
        """Return what it has printed to stderr so far."""
        return self._read("err")

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return its exit code."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(list(self.arguments), timeout or 0.0)
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end, and return what it printed."""
        self.wait(timeout)
        return self._read("out"), self._read("err")

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read(self, name: str) -> str:
        path = self._folder / name
        return path.read_text("utf-8") if path.exists() else ""
