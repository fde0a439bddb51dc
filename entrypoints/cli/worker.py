"""``tileferry worker``: process queued runs until a signal stops it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_command,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import KindOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tileferry.domain.runs import RunStatus, WorkerId

app = declare_command()
SCHEMA = "tileferry.worker.v1"
_COUNT_MAX = 256


@app.command(
    "worker",
    epilog=format_examples(
        "tileferry worker",
        "tileferry worker --kind acquire_partition --ready-file /run/tileferry/ready",
        "tileferry worker --listen 127.0.0.1:9464",
        "tileferry worker --until-idle",
        "tileferry worker --count 4 --kind acquire_partition",
    ),
)
def worker_command(
    *,
    kind: KindOption = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Name shown in the queue (default: host name and process id).",
        ),
    ] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            "--ready-file", metavar="FILE", help="File that exists while the worker accepts runs."
        ),
    ] = None,
    until_idle: Annotated[
        bool,
        typer.Option(
            "--until-idle",
            help="Exit when no run is due or becomes due within worker.idle_patience_s.",
        ),
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Serve /metrics, /healthz and /readyz to this machine (default:"
            " telemetry.prometheus_listen).",
        ),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            "--count",
            metavar="N",
            min=1,
            max=_COUNT_MAX,
            help="Number of worker processes (default: 1).",
        ),
    ] = 1,
    supervised: Annotated[
        bool, typer.Option("--supervised", hidden=True, help="Drain when stdin is closed.")
    ] = False,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Process queued runs. Start as many workers as you like.

    Prints a line when a run starts and ends. The first signal drains: the current run may finish
    within worker.drain_s, or it returns to the queue. The second signal exits immediately;
    another worker takes the run when its lease expires.

    With --until-idle the worker also waits for runs that are due but need a retry token.

    With --count, worker n is NAME-n, listens on PORT + n - 1 and has the readiness file FILE.n. A
    worker that crashes is started again, later after each crash in a row; after eight the others
    drain. Downloads and uploads use the cache one at a time; partitions are processed in parallel.

    Exit codes: 0 idle or drained; 3 with --until-idle, a run failed or waits for a later retry; 4
    lease lost, start it again; 7 could not start; 130 the run was returned to the queue, or a
    second signal stopped the worker.
    """
    from tileferry.domain.runs import RunKind, RunStatus
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import open_installation, print_json, stderr, stdout
    from tileferry.entrypoints.cli.readiness_file import ReadinessFile
    from tileferry.entrypoints.cli.signals import Drain, StopSignals
    from tileferry.entrypoints.cli.worker_lines import (
        RunLinePrinter,
        describe_unfinished,
        unfinished_to_json,
    )

    if count > 1:
        from tileferry.entrypoints.cli.worker_processes import run_fleet

        run_fleet(
            _build_worker_id(name),
            count,
            kinds=kind or (),
            until_idle=until_idle,
            config=config,
            ready_file=ready_file,
            listen=listen,
            as_json=json,
        )
        return
    if supervised:
        from tileferry.entrypoints.cli.worker_processes import stop_with_parent

        stop_with_parent()
    interrupted = False
    readiness = ReadinessFile(listener=RunLinePrinter(stderr))
    with StopSignals() as stop, open_installation(config, readiness) as installation:
        settings = installation.config.worker
        readiness.path = ready_file or settings.readiness_file

        def announce_drain() -> None:
            stderr.print(
                f"Draining: the current run has {settings.drain_s:g} s to finish; Ctrl-C to stop."
            )

        drain = Drain(stop=stop, drain_s=settings.drain_s, on_drain=announce_drain)
        with (
            installation.open_worker(
                _build_worker_id(name),
                until_idle=until_idle,
                is_stopping=drain.is_stopping,
                check_stop=drain.check,
                kinds=[RunKind(one) for one in kind or ()],
                listen=listen,
            ) as worker,
            readiness,
        ):
            stderr.print(f"Worker {worker.name} started; Ctrl-C to drain.")
            try:
                worker.run()
            except KeyboardInterrupt:  # the current run was not finished
                interrupted = True
    if json:
        unended = {RunStatus.DISCOVERED, RunStatus.PROCESSING}
        ended = {one.value: worker.ended[one] for one in RunStatus if one not in unended}
        body = {
            "worker": worker.name,
            "processed": worker.processed,
            "ended": ended,
            "unfinished": [unfinished_to_json(end) for end in worker.unfinished.values()],
        }
        print_json(SCHEMA, body)
    else:
        summary = format_summary(worker.processed, worker.ended, worker.cancelled)
        stdout.print(f"Worker {worker.name} processed {summary}.")
    if interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if until_idle and worker.unfinished:
        for line in describe_unfinished(list(worker.unfinished.values())):
            stderr.print(line)
        raise typer.Exit(ExitCode.PARTIAL)


def format_summary(processed: int, ended: "Mapping[RunStatus, int]", cancelled: int = 0) -> str:
    """Return the number of runs by outcome."""
    from tileferry.domain.runs import RunStatus

    runs = "1 run" if processed == 1 else f"{processed:,} runs"
    words = {
        RunStatus.PASSED: "passed",
        RunStatus.NEEDS_REVIEW: "to be reviewed",
        RunStatus.FAILED: "failed",
        RunStatus.ERROR: "in error",
    }
    counts = {**ended, RunStatus.ERROR: ended.get(RunStatus.ERROR, 0) - cancelled}
    ends = [f"{counts[one]:,} {word}" for one, word in words.items() if counts.get(one)]
    if cancelled:
        ends.append(f"{cancelled:,} cancelled")
    return f"{runs}: {', '.join(ends)}" if ends else runs


def _build_worker_id(wanted: str | None) -> "WorkerId":
    """Return the worker's id in the queue."""
    from tileferry.adapters.system import name_process
    from tileferry.domain.errors import InvalidValueError
    from tileferry.domain.runs import WorkerId
    from tileferry.domain.validation import is_name

    if wanted is None:
        return WorkerId(name_process())
    if not is_name(wanted):
        raise InvalidValueError(
            field="--name",
            value=wanted,
            problem="must be at most 64 letters, digits, dots, dashes and underscores",
        )
    return WorkerId(wanted)
