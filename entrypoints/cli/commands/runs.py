"""``tileferry runs``: the queue's work, why it is where it is, and the operator's word on it."""

from typing import Annotated

import typer

from tileferry.entrypoints.cli.commands.runs_submit import app as submit_app
from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, group
from tileferry.entrypoints.cli.options.declared import (
    KindOption,
    ReasonOption,
    RunArgument,
    RunStatusOption,
    SourceOption,
)

app = group("Runs: what is queued, under way and done, why, and what to do about it.")
app.add_typer(submit_app, name="submit")


@app.command(
    "list",
    epilog=examples(
        "tileferry runs list",
        "tileferry runs list --status error --kind download_area --source satellite",
    ),
)
def list_command(
    *,
    status: RunStatusOption = None,
    kind: KindOption = None,
    source: SourceOption = None,
    limit: Annotated[
        int,
        typer.Option("-n", "--limit", metavar="N", min=0, max=100_000, help="How many to show."),
    ] = 20,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """List runs, the newest first, and count all by their status."""
    from tileferry.entrypoints.cli.running import runs

    runs.listed(
        config, statuses=status or (), kinds=kind or (), source=source, limit=limit, json=json
    )


@app.command("show", epilog=examples("tileferry runs show 0193a2b4c5d6-0123456789abcdef"))
def show_command(*, run: RunArgument, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show one run: its fields, and how each of its attempts went."""
    from tileferry.entrypoints.cli.running import runs

    runs.shown(config, run, json=json)


@app.command("why", epilog=examples("tileferry runs why 0193a2b4c5d6-0123456789abcdef"))
def why_command(*, run: RunArgument, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Say in words why a run waits, goes on or has ended.

    The decisions behind it are shown from the audit log; each is made again from what was recorded
    with it.
    """
    from tileferry.entrypoints.cli.running import runs

    runs.explained(config, run, json=json)


@app.command(
    "cancel",
    epilog=examples(
        "tileferry runs cancel 0193a2b4c5d6-0123456789abcdef --reason 'wrong area'",
    ),
)
def cancel_command(
    *, run: RunArgument, reason: ReasonOption, config: ConfigFile = None, json: JsonFlag = False
) -> None:
    """Give up a run that is waiting; its partition fails with it. Exit code 4 if it is not."""
    from tileferry.entrypoints.cli.running import runs

    runs.cancelled(config, run, reason=reason, json=json)


@app.command(
    "retry",
    epilog=examples(
        "tileferry runs retry 0193a2b4c5d6-0123456789abcdef --reason 'the link is back'",
    ),
)
def retry_command(
    *, run: RunArgument, reason: ReasonOption, config: ConfigFile = None, json: JsonFlag = False
) -> None:
    """Make a run in error due at once; a spent one gets one more try. Exit code 4 if it cannot."""
    from tileferry.entrypoints.cli.running import runs

    runs.retried(config, run, reason=reason, json=json)
