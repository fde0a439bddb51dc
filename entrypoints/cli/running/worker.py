"""A worker: takes runs from the queue until it is told to stop."""

import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer
from attrs import define, field

from tileferry.adapters.postgres import schema_status
from tileferry.application.control.worker import Worker
from tileferry.application.ports.work import ALL_KINDS
from tileferry.domain.checks import is_name
from tileferry.domain.errors import InvalidValueError, StorageError
from tileferry.domain.runs import RunKind, RunStatus, WorkerId
from tileferry.entrypoints.cli.exits import ExitCode
from tileferry.entrypoints.cli.output import notes, opened, people, print_json
from tileferry.entrypoints.cli.signals import StopSignals
from tileferry.entrypoints.working import queue_worker

SCHEMA = "tileferry.worker.v1"
_HOST_CHARS_MAX = 50
_ENDS = {
    RunStatus.PASSED: "passed",
    RunStatus.NEEDS_REVIEW: "for a human to look at",
    RunStatus.FAILED: "failed",
    RunStatus.ERROR: "ended in an error",
}
_LAST_RESORT_S = 10.0
"""After the time to drain, how long giving the run back may take."""


def worked(
    config: Path | None,
    *,
    kinds: Sequence[str],
    name: str | None,
    ready_file: Path | None,
    until_idle: bool,
    json: bool,
) -> None:
    """Take runs until there are none, or a signal comes; of all kinds unless some are given."""
    with StopSignals() as stop, opened(config) as container:
        settings = container.config().worker
        schema_status(container.database()).check()
        drain = Drain(stop=stop, drain_s=settings.drain_s)
        worker = queue_worker(
            container,
            _named(name),
            until_idle=until_idle,
            is_stopping=drain.is_stopping,
            check_stop=drain.check,
            kinds=[*map(RunKind, kinds)] or ALL_KINDS,
        )
        with _readiness(ready_file or settings.readiness_file):
            notes.print(f"Worker {worker.name} takes runs; Ctrl-C to drain.")
            stopped = _ran(worker)
    if json:
        ended = {str(status): worker.ended[status] for status in _ENDS}
        print_json(SCHEMA, {"worker": worker.name, "processed": worker.processed, "ended": ended})
    else:
        people.print(f"Worker {worker.name} did {_told(worker)}.")
    if stopped:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _told(worker: Worker) -> str:
    """Say how many runs there were, and how they ended."""
    runs = "1 run" if worker.processed == 1 else f"{worker.processed:,} runs"
    ends = [f"{worker.ended[status]:,} {word}" for status, word in _ENDS.items()]
    told = ", ".join(end for end in ends if not end.startswith("0 "))
    return f"{runs}: {told}" if told else runs


def _named(wanted: str | None) -> WorkerId:
    """Return what the queue calls the worker."""
    if wanted is None:
        host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:_HOST_CHARS_MAX]
        return WorkerId(f"{host}-{os.getpid()}")
    if not is_name(wanted):
        raise InvalidValueError(
            field="--name",
            value=wanted,
            problem="must be letters, digits, dots, dashes and underscores, 64 at most",
        )
    return WorkerId(wanted)


def _ran(worker: Worker) -> bool:
    """Have it work, and tell whether it was kept from finishing a run."""
    try:
        worker.run()
    except KeyboardInterrupt:
        return True
    return False


@define
class Drain:
    """What a signal means to a worker: first to take no more runs, and in the end to stop."""

    stop: StopSignals
    drain_s: float
    _since_s: float | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.stop.grace_s = self.drain_s + _LAST_RESORT_S
        self.stop.defer()

    def is_stopping(self) -> bool:
        """Tell whether to take no more runs."""
        if self.stop.asked and self._since_s is None:
            self._since_s = time.monotonic()
            notes.print(f"Draining: the run under way has {self.drain_s:g} s; Ctrl-C to stop.")
        return self.stop.asked

    def check(self) -> None:
        """Interrupt the run under way, once its time is over."""
        if self.is_stopping() and time.monotonic() - (self._since_s or 0.0) >= self.drain_s:
            raise KeyboardInterrupt


@contextmanager
def _readiness(path: Path | None) -> Iterator[None]:
    """Have a file there while the worker takes runs."""
    if path is None:
        yield
        return
    try:
        path.write_text(f"{os.getpid()}\n")
    except OSError as error:
        raise StorageError(
            action="write the readiness file",
            path=str(path),
            problem=error.strerror or type(error).__name__,
            remedy="give --ready-file a path in a folder that can be written",
        ) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
