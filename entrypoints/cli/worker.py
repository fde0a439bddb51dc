"""``tileferry worker``: takes runs from the queue until it is told to stop."""

import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from attrs import define, field

from tileferry.adapters.postgres import get_schema_status
from tileferry.application.control.worker import Worker
from tileferry.application.ports.work import ALL_KINDS
from tileferry.domain.errors import InvalidValueError, StorageError
from tileferry.domain.runs import RunKind, RunStatus, WorkerId
from tileferry.domain.validation import is_name
from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_command,
    format_examples,
)
from tileferry.entrypoints.cli.exit_codes import ExitCode
from tileferry.entrypoints.cli.option_types import KindOption
from tileferry.entrypoints.cli.output import open_container, print_json, stderr, stdout
from tileferry.entrypoints.cli.signals import StopSignals
from tileferry.entrypoints.worker_factory import build_queue_worker

app = declare_command()


@app.command(
    "worker",
    epilog=format_examples(
        "tileferry worker",
        "tileferry worker --kind acquire_partition --ready-file /run/tileferry/ready",
        "tileferry worker --until-idle",
    ),
)
def worker_command(
    *,
    kind: KindOption = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="What the queue calls it; by default host and pid."
        ),
    ] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            "--ready-file", metavar="FILE", help="A file that is there while it takes runs."
        ),
    ] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when no run is due, instead of waiting.")
    ] = False,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Take runs from the queue and carry them out. Start as many as you like.

    A first signal has it finish the run under way (up to worker.drain_s, then it is given back); a
    second one ends it at once, and another worker takes its run when the lease is over.

    Exit codes: 0 idle or drained; 4 it lost its lease, and should be started again; 7 it could not
    start; 130 its run was given back, or it was stopped at once.
    """
    from tileferry.entrypoints.cli import worker

    worker.run_worker(
        config,
        kinds=kind or (),
        name=name,
        ready_file=ready_file,
        until_idle=until_idle,
        json=json,
    )


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


def run_worker(
    config: Path | None,
    *,
    kinds: Sequence[str],
    name: str | None,
    ready_file: Path | None,
    until_idle: bool,
    json: bool,
) -> None:
    """Take runs until there are none, or a signal comes; of all kinds unless some are given."""
    with StopSignals() as stop, open_container(config) as container:
        settings = container.config().worker
        get_schema_status(container.database()).check()
        drain = Drain(stop=stop, drain_s=settings.drain_s)
        worker = build_queue_worker(
            container,
            _build_worker_id(name),
            until_idle=until_idle,
            is_stopping=drain.is_stopping,
            check_stop=drain.check,
            kinds=[*map(RunKind, kinds)] or ALL_KINDS,
        )
        with _keep_ready_file(ready_file or settings.readiness_file):
            stderr.print(f"Worker {worker.name} takes runs; Ctrl-C to drain.")
            stopped = _run_until_stopped(worker)
    if json:
        ended = {str(status): worker.ended[status] for status in _ENDS}
        print_json(SCHEMA, {"worker": worker.name, "processed": worker.processed, "ended": ended})
    else:
        stdout.print(f"Worker {worker.name} did {_format_summary(worker)}.")
    if stopped:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _format_summary(worker: Worker) -> str:
    """Say how many runs there were, and how they ended."""
    runs = "1 run" if worker.processed == 1 else f"{worker.processed:,} runs"
    ends = [f"{worker.ended[status]:,} {word}" for status, word in _ENDS.items()]
    told = ", ".join(end for end in ends if not end.startswith("0 "))
    return f"{runs}: {told}" if told else runs


def _build_worker_id(wanted: str | None) -> WorkerId:
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


def _run_until_stopped(worker: Worker) -> bool:
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
            stderr.print(f"Draining: the run under way has {self.drain_s:g} s; Ctrl-C to stop.")
        return self.stop.asked

    def check(self) -> None:
        """Interrupt the run under way, once its time is over."""
        if self.is_stopping() and time.monotonic() - (self._since_s or 0.0) >= self.drain_s:
            raise KeyboardInterrupt


@contextmanager
def _keep_ready_file(path: Path | None) -> Iterator[None]:
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
