"""``runs cancel`` and ``runs retry``: one run, or all runs that options select."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tileferry.entrypoints.cli.command_group import ConfigFile, JsonFlag, format_examples
from tileferry.entrypoints.cli.option_types import (
    ConfirmOption,
    KindOption,
    OptionalRun,
    ReasonOption,
    RunStatusOption,
    RunTextOption,
    SourceOption,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from tileferry.application.control.bulk_runs import BulkResult, RunAction
    from tileferry.application.ports.work import RunFilter
    from tileferry.domain.runs import Run

CANCEL_SCHEMA = "tileferry.runs.cancel.v1"
RETRY_SCHEMA = "tileferry.runs.retry.v1"
BULK_SCHEMA = "tileferry.runs.bulk.v1"
_RUNS_MAX = 100_000
_SHOWN_MAX = 20
DryRunFlag = Annotated[
    bool, typer.Option("--dry-run", help="Only show the selected runs and the effect on each.")
]


def add_change_commands(app: typer.Typer) -> None:
    """Add both commands to the group."""
    app.command(
        "cancel",
        epilog=format_examples(
            "tileferry runs cancel 0193a2b4c5d6-0123456789abcdef --reason 'wrong area'",
            "tileferry runs cancel --source satellite --text F7 --reason 'a storm' --dry-run",
        ),
    )(cancel_command)
    app.command(
        "retry",
        epilog=format_examples(
            "tileferry runs retry 0193a2b4c5d6-0123456789abcdef --reason 'the link is back'",
            "tileferry runs retry --source satellite --reason 'the link is back'"
            " --confirm-count 27",
        ),
    )(retry_command)


def cancel_command(
    *,
    run: OptionalRun = None,
    status: RunStatusOption = None,
    kind: KindOption = None,
    source: SourceOption = None,
    text: RunTextOption = None,
    reason: ReasonOption,
    dry_run: DryRunFlag = False,
    confirm_count: ConfirmOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Cancel a run that has not ended, or many of them.

    Name a run, or select runs with options: queued, in progress or waiting for a retry. A worker
    that processes one stops within seconds and keeps the tiles that are stored. A partition fails
    with its run.

    Exit codes: 0 done, or no run is selected; 3 some runs have changed meanwhile and were left as
    they are; 4 the named run has ended, or the number is not confirmed.
    """
    from tileferry.application.control.bulk_runs import RunAction
    from tileferry.domain.text import printable
    from tileferry.entrypoints.cli.formatting import record_to_json
    from tileferry.entrypoints.cli.output import open_installation, print_json, stderr, stdout
    from tileferry.entrypoints.cli.partition_options import get_operator_name, parse_reason
    from tileferry.entrypoints.cli.runs import find_run

    why, wanted = parse_reason(reason), build_filter(status, kind, source, text)
    if _selects_many(run, wanted, dry_run=dry_run, confirm=confirm_count):
        _change_many(
            RunAction.CANCEL,
            wanted,
            why,
            config=config,
            dry_run=dry_run,
            confirm=confirm_count,
            json=json,
        )
        return
    with open_installation(config) as installation:
        found = find_run(installation, str(run)).run
        after = installation.run_control.cancel(found.run_id, reason=why, by=get_operator_name())
    if json:
        print_json(CANCEL_SCHEMA, record_to_json(after))
        return
    stdout.print(f"Run {found.run_id} cancelled: {printable(why)}")
    if found.lease_owner is not None:
        stderr.print(f"Worker {printable(found.lease_owner)} stops it within seconds.")


def retry_command(
    *,
    run: OptionalRun = None,
    status: RunStatusOption = None,
    kind: KindOption = None,
    source: SourceOption = None,
    text: RunTextOption = None,
    reason: ReasonOption,
    dry_run: DryRunFlag = False,
    confirm_count: ConfirmOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Retry a run in error now, or many of them.

    Name a run, or select runs with options. A run without retries left gets one more.

    Exit codes: 0 done, or no run is selected; 3 some runs have changed meanwhile and were left as
    they are; 4 the named run is in another state, or the number is not confirmed.
    """
    from tileferry.application.control.bulk_runs import RunAction
    from tileferry.entrypoints.cli.formatting import record_to_json
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout
    from tileferry.entrypoints.cli.partition_options import get_operator_name, parse_reason
    from tileferry.entrypoints.cli.runs import find_run

    why, wanted = parse_reason(reason), build_filter(status, kind, source, text)
    if _selects_many(run, wanted, dry_run=dry_run, confirm=confirm_count):
        _change_many(
            RunAction.RETRY,
            wanted,
            why,
            config=config,
            dry_run=dry_run,
            confirm=confirm_count,
            json=json,
        )
        return
    with open_installation(config) as installation:
        run_id = find_run(installation, str(run)).run.run_id
        after = installation.run_control.retry_now(run_id, reason=why, by=get_operator_name())
    if json:
        print_json(RETRY_SCHEMA, record_to_json(after))
    else:
        stdout.print(f"Run {run_id} is due now.")


def build_filter(
    status: Sequence[str] | None, kind: Sequence[str] | None, source: str | None, text: str | None
) -> "RunFilter":
    """Return what options select."""
    from tileferry.application.ports.work import RunFilter
    from tileferry.domain.runs import RunKind, RunStatus
    from tileferry.entrypoints.cli.parsing import check_name

    check_name(source, "--source")
    return RunFilter(
        statuses=[RunStatus(one) for one in status or ()],
        kinds=[RunKind(one) for one in kind or ()],
        source=source,
        text=text or None,
    )


def _selects_many(
    run: str | None, wanted: "RunFilter", *, dry_run: bool, confirm: int | None
) -> bool:
    is_filtered = bool(wanted.statuses or wanted.kinds or wanted.source or wanted.text)
    if run is None and not is_filtered:
        raise typer.BadParameter(
            "name a run, or select runs with --status, --kind, --source or --text"
        )
    if run is not None and (is_filtered or dry_run or confirm is not None):
        raise typer.BadParameter("a run id cannot be combined with options for several runs")
    return run is None


def _change_many(
    action: "RunAction",
    wanted: "RunFilter",
    reason: str,
    *,
    config: "Path | None",
    dry_run: bool,
    confirm: int | None,
    json: bool,
) -> None:
    """Show which runs an action affects, have the number confirmed, and apply it to these."""
    from tileferry.application.control.bulk_runs import BulkResult
    from tileferry.domain.partitions import check_confirmation
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.formatting import record_to_json
    from tileferry.entrypoints.cli.output import open_installation, print_json, stderr, stdout
    from tileferry.entrypoints.cli.partition_options import ask_confirmation, get_operator_name

    with open_installation(config) as installation:
        bulk = installation.bulk_runs
        selected = bulk.select(action, wanted, limit=_RUNS_MAX)
        if not json:
            _show_effects(action, selected, stdout if dry_run else stderr)
        result = BulkResult(done=[], refused=[])
        if not dry_run:
            confirmed = ask_confirmation(len(selected), action.value, "runs", confirm)
            check_confirmation(len(selected), confirmed, what="run")
            run_ids = [run.run_id for run in selected]
            result = bulk.apply(action, run_ids, reason=reason, by=get_operator_name())
    if json:
        body = {
            "action": action.value,
            "dry_run": dry_run,
            "selected": len(selected),
            "runs": [*map(record_to_json, selected if dry_run else result.done)],
            "refused": [error.summary for error in result.refused],
        }
        print_json(BULK_SCHEMA, body)
    elif not dry_run:
        stdout.print(describe_result(action, result), markup=False)
    if result.refused:
        raise typer.Exit(ExitCode.PARTIAL)


def _show_effects(action: "RunAction", runs: "Sequence[Run]", console: "Console") -> None:
    from tileferry.entrypoints.cli.work_lines import describe_work, name_run_state

    for run in runs[:_SHOWN_MAX]:
        line = f"{run.run_id}  {describe_work(run)}, {name_run_state(run)}"
        console.print(f"{line} → {describe_effect(action, run)}", markup=False, soft_wrap=True)
    if len(runs) > _SHOWN_MAX:
        console.print(f"… and {len(runs) - _SHOWN_MAX:,} more")
    if not runs:
        console.print("No run is affected.")


def describe_effect(action: "RunAction", run: "Run") -> str:
    """Return what an action does to a run."""
    from tileferry.application.control.bulk_runs import RunAction
    from tileferry.domain.runs import RunKind
    from tileferry.domain.text import printable

    if action is RunAction.RETRY:
        return "due now" if run.next_retry_at is not None else "due now, with one more attempt"
    partition = "; its partition fails" if run.kind is RunKind.ACQUIRE_PARTITION else ""
    if run.lease_owner is None:
        return f"given up{partition}"
    worker = printable(run.lease_owner)
    return f"given up; worker {worker} stops within seconds, stored tiles stay{partition}"


def describe_result(action: "RunAction", result: "BulkResult") -> str:
    """Return what an action on many runs did, in one or two sentences."""
    from tileferry.application.control.bulk_runs import RunAction

    done = "cancelled" if action is RunAction.CANCEL else "due now"
    text = f"{count_runs(len(result.done))} {done}."
    if result.refused:
        text += f" {len(result.refused):,} refused, such as: {result.refused[0].summary}"
    return text


def count_runs(count: int) -> str:
    return f"{count:,} run{'' if count == 1 else 's'}"
