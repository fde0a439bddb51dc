"""``tileferry worker --count N``: N worker processes, as one command."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

import typer
from attrs import define, field, frozen

from tileferry.adapters.system import SystemClock
from tileferry.application.control.worker_fleet import FleetRestart, WorkerFleet
from tileferry.domain.runs import RunId, RunStatus
from tileferry.entrypoints.cli.exit_codes import ExitCode
from tileferry.entrypoints.cli.formatting import format_duration
from tileferry.entrypoints.cli.output import open_installation, print_json, stderr, stdout
from tileferry.entrypoints.cli.worker import SCHEMA, format_summary
from tileferry.entrypoints.config.audit import ListenAddress
from tileferry.entrypoints.installation import Installation

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ENDED = frozenset({ExitCode.DONE, ExitCode.PARTIAL})
_FINISHED = frozenset({RunStatus.PASSED, RunStatus.NEEDS_REVIEW})


@frozen(kw_only=True)
class WorkerOptions:
    """The options of the command that its workers get."""

    kinds: Sequence[str]
    until_idle: bool
    config: Path | None
    ready_file: Path | None
    listen: str | None

    def build_command(self, name: str, number: int) -> list[str]:
        """Return how worker ``number`` is started: it has a file and a port of its own."""
        command = [sys.executable, "-m", "tileferry.entrypoints.cli", "worker", "--supervised"]
        command += ["--json", "--name", f"{name}-{number}"]
        command += [part for kind in self.kinds for part in ("--kind", kind)]
        if self.until_idle:
            command.append("--until-idle")
        if self.config is not None:
            command += ["--config", str(self.config)]
        if self.ready_file is not None:
            command += ["--ready-file", f"{self.ready_file}.{number}"]
        if self.listen is not None:
            address = ListenAddress.parse(self.listen, field="--listen")
            port = address.port + number - 1 if address.port else 0
            command += ["--listen", f"{self.listen.rpartition(':')[0]}:{port}"]
        return command


@define(eq=False)
class _WorkerProcess:
    """One worker process; its report is read when it has ended."""

    process: "subprocess.Popen[bytes]"
    report: IO[bytes]

    def poll(self) -> int | None:
        return self.process.poll()

    def read_report(self) -> dict[str, Any]:
        """Return what it printed; nothing if it was killed."""
        self.report.seek(0)
        with contextlib.suppress(json.JSONDecodeError), self.report:
            return dict(json.load(self.report))
        return {}


@define(kw_only=True, eq=False)
class WorkerProcesses:
    """Starts worker processes, passes signals on to them, and adds up their reports."""

    name: str
    count: int
    options: WorkerOptions
    _signals: int = field(default=0, init=False)
    _passed_on: int = field(default=0, init=False)
    _started: list[_WorkerProcess] = field(factory=list, init=False)

    def run(self) -> ExitCode:
        """Run the workers until all have ended; return the exit code, without unfinished runs.

        The first signal drains all workers; the second stops them immediately.
        """
        before = {number: signal.signal(number, self._handle_signal) for number in _SIGNALS}
        fleet = WorkerFleet(
            name=self.name,
            count=self.count,
            start=self._start,
            stop_all=self._send_signals,
            clock=SystemClock(),
            is_stopping=self._pass_signals_on,
            ended_codes=_ENDED,
            final_codes={ExitCode.USAGE},
            on_restart=self._report_restart,
        )
        try:
            codes = fleet.run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if fleet.lost:
            lost = fleet.lost[0]
            return ExitCode(lost) if lost in list(ExitCode) else ExitCode.FATAL
        # A worker that SIGTERM kills has not started to work.
        was_stopped = any(code not in {*_ENDED, -signal.SIGTERM} for code in codes)
        return ExitCode.INTERRUPTED if was_stopped else ExitCode.DONE

    def build_report(self, installation: Installation) -> dict[str, Any]:
        """Return the report of all workers as that of one.

        A run that one worker could not finish and another one has finished is left out.
        """
        reports = [one.read_report() for one in self._started]
        ended: Counter[str] = Counter()
        for report in reports:
            ended.update(report.get("ended", {}))
        unfinished = {one["run_id"]: one for each in reports for one in each.get("unfinished", ())}
        for run_id in list(unfinished):
            run = installation.work_reader.find_run(RunId(run_id))
            if run is not None and run.status in _FINISHED:
                del unfinished[run_id]
        return {
            "worker": self.name,
            "processed": sum(report.get("processed", 0) for report in reports),
            "ended": dict(ended),
            "unfinished": list(unfinished.values()),
        }

    def _start(self, number: int) -> _WorkerProcess:
        report = tempfile.TemporaryFile()  # noqa: SIM115  # closed when it is read
        process = subprocess.Popen(  # noqa: S603  # our own command
            self.options.build_command(self.name, number),
            stdin=subprocess.PIPE,  # it ends with this process, whatever ends it
            stdout=report,
            start_new_session=True,  # Ctrl-C in a terminal reaches it once: through this process
        )
        started = _WorkerProcess(process, report)
        self._started.append(started)
        return started

    def _handle_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1

    def _pass_signals_on(self) -> bool:
        """Send each signal to all workers, once; return whether there was any.

        Not in the handler: a worker that is being started would miss it, or get it twice.
        """
        while self._passed_on < self._signals:
            self._passed_on += 1
            self._send_signals()
        return self._signals > 0

    def _send_signals(self) -> None:
        for one in self._started:
            if one.process.returncode is None:
                one.process.send_signal(signal.SIGTERM)

    @staticmethod
    def _report_restart(restart: FleetRestart) -> None:
        code = restart.exit_code
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        after = format_duration(restart.delay_s)
        stderr.print(f"Worker {restart.number} {how}; starting it again in {after}.")


def run_fleet(
    name: str,
    count: int,
    *,
    kinds: Sequence[str],
    until_idle: bool,
    config: Path | None,
    ready_file: Path | None,
    listen: str | None,
    as_json: bool,
) -> None:
    """Run the command with several workers: its output and exit code are those of one."""
    with open_installation(config) as installation:
        settings = installation.config
        options = WorkerOptions(
            kinds=kinds,
            until_idle=until_idle,
            config=config,
            ready_file=ready_file or settings.worker.readiness_file,
            listen=listen or settings.telemetry.prometheus_listen,
        )
        stderr.print(f"Starting {count} workers {name}-1 to {name}-{count}; Ctrl-C to drain.")
        workers = WorkerProcesses(name=name, count=count, options=options)
        code = workers.run()
        report = workers.build_report(installation)
    if as_json:
        print_json(SCHEMA, report)
    else:
        ended = {RunStatus(status): number for status, number in report["ended"].items()}
        stdout.print(f"Workers {name} processed {format_summary(report['processed'], ended)}.")
    if code is ExitCode.DONE and until_idle and report["unfinished"]:
        code = ExitCode.PARTIAL
        stderr.print(f"Not finished: {len(report['unfinished'])}; see tileferry runs list.")
    if code is not ExitCode.DONE:
        raise typer.Exit(code)


def stop_with_parent() -> None:
    """Drain this worker when the process that started it has ended: its end closes our stdin."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()
