"""``tileferry worker``: takes runs from the queue until it is told to stop."""

from pathlib import Path
from typing import Annotated

import typer

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, single
from tileferry.entrypoints.cli.options.declared import KindOption

app = single()


@app.command(
    "worker",
    epilog=examples(
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
    from tileferry.entrypoints.cli.running import worker

    worker.worked(
        config,
        kinds=kind or (),
        name=name,
        ready_file=ready_file,
        until_idle=until_idle,
        json=json,
    )
