"""``tileferry runs``: the queue's work, why it is where it is, and the operator's word on it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tileferry.application.control.queries import RunDetails
from tileferry.application.ports.raw_partitions import check_run_id
from tileferry.application.ports.work import RunFilter
from tileferry.domain.runs import Run, RunId, RunKind, RunStatus
from tileferry.domain.text import format_utc, printable
from tileferry.entrypoints.cli.audit_entries import replay_to_json
from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.explanations import explain_run
from tileferry.entrypoints.cli.formatting import format_relative_time, record_to_json
from tileferry.entrypoints.cli.option_types import (
    KindOption,
    ReasonOption,
    RunArgument,
    RunStatusOption,
    SourceOption,
)
from tileferry.entrypoints.cli.output import (
    blame_option,
    build_facts_table,
    open_checked,
    print_json,
    stderr,
    stdout,
)
from tileferry.entrypoints.cli.partition_options import check_name, get_operator_name, parse_reason
from tileferry.entrypoints.cli.runs_submit import app as submit_app
from tileferry.entrypoints.cli.work_lines import (
    format_attempts,
    format_next_try,
    format_run,
    format_sentences,
    render_audit_entries,
)
from tileferry.entrypoints.container import Container

app = declare_group("Runs: what is queued, under way and done, why, and what to do about it.")
app.add_typer(submit_app, name="submit")


@app.command(
    "list",
    epilog=format_examples(
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
    from tileferry.entrypoints.cli import runs

    runs.list_runs(
        config, statuses=status or (), kinds=kind or (), source=source, limit=limit, json=json
    )


@app.command("show", epilog=format_examples("tileferry runs show 0193a2b4c5d6-0123456789abcdef"))
def show_command(*, run: RunArgument, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show one run: its fields, and how each of its attempts went."""
    from tileferry.entrypoints.cli import runs

    runs.show_run(config, run, json=json)


@app.command("why", epilog=format_examples("tileferry runs why 0193a2b4c5d6-0123456789abcdef"))
def why_command(*, run: RunArgument, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Say in words why a run waits, goes on or has ended.

    The decisions behind it are shown from the audit log; each is made again from what was recorded
    with it.
    """
    from tileferry.entrypoints.cli import runs

    runs.show_explanation(config, run, json=json)


@app.command(
    "cancel",
    epilog=format_examples(
        "tileferry runs cancel 0193a2b4c5d6-0123456789abcdef --reason 'wrong area'",
    ),
)
def cancel_command(
    *, run: RunArgument, reason: ReasonOption, config: ConfigFile = None, json: JsonFlag = False
) -> None:
    """Give up a run that is waiting; its partition fails with it. Exit code 4 if it is not."""
    from tileferry.entrypoints.cli import runs

    runs.cancel_run(config, run, reason=reason, json=json)


@app.command(
    "retry",
    epilog=format_examples(
        "tileferry runs retry 0193a2b4c5d6-0123456789abcdef --reason 'the link is back'",
    ),
)
def retry_command(
    *, run: RunArgument, reason: ReasonOption, config: ConfigFile = None, json: JsonFlag = False
) -> None:
    """Make a run in error due at once; a spent one gets one more try. Exit code 4 if it cannot."""
    from tileferry.entrypoints.cli import runs

    runs.retry_run(config, run, reason=reason, json=json)


LIST_SCHEMA = "tileferry.runs.list.v1"
SHOW_SCHEMA = "tileferry.runs.show.v1"
WHY_SCHEMA = "tileferry.runs.why.v1"
CANCEL_SCHEMA = "tileferry.runs.cancel.v1"
RETRY_SCHEMA = "tileferry.runs.retry.v1"


def list_runs(
    config: Path | None,
    *,
    statuses: Sequence[str],
    kinds: Sequence[str],
    source: str | None,
    limit: int,
    json: bool,
) -> None:
    """List those that are wanted, and count all."""
    check_name(source, "--source")
    wanted = RunFilter(
        statuses=[*map(RunStatus, statuses)], kinds=[*map(RunKind, kinds)], source=source
    )
    with open_checked(config) as container:
        reader = container.work_reader()
        now, counts = reader.now(), reader.count_runs()
        found = reader.list_runs(wanted, limit=limit)
    if json:
        known = {one.value: counts.get(one, 0) for one in RunStatus}
        print_json(LIST_SCHEMA, {"counts": known, "runs": [record_to_json(run) for run in found]})
        return
    for run in found:
        stdout.print(format_run(run, now))
    there = [f"{counts[one]:,} {_format_status(one)}" for one in RunStatus if counts.get(one)]
    if there and limit and not found:
        stdout.print("No run matches.")
    stdout.print(f"Of all runs: {', '.join(there)}." if there else "No run was ever submitted.")


def show_run(config: Path | None, run: str, *, json: bool) -> None:
    """Show one, with its attempts."""
    with open_checked(config) as container:
        found = _find_run(container, run)
    if json:
        print_json(SHOW_SCHEMA, _run_to_json(found))
        return
    stdout.print(build_facts_table(f"Run {found.run.run_id}", _build_rows(found)))
    stdout.print(format_attempts(found.attempts))


def show_explanation(config: Path | None, run: str, *, json: bool) -> None:
    """Tell the story of one, with what the audit log has of it."""
    with open_checked(config) as container:
        found = _find_run(container, run)
        source = container.inspection().get_source(found.run.source)
        story = explain_run(found, source, container.work_policies())
        entries = list(container.audit_reader().find_about(found.run.run_id))
    if json:
        body = {"run_id": found.run.run_id, "status": found.run.status, "why": story}
        print_json(WHY_SCHEMA, {**body, "audit": replay_to_json(entries)})
        return
    stdout.print(f"Run {found.run.run_id}: {_format_status(found.run.status)}")
    stdout.print(format_sentences(story))
    if entries:
        stdout.print("\nThe audit log:")
        stdout.print(render_audit_entries(entries), soft_wrap=True)
    else:
        stderr.print("The audit log of this database has nothing of it.")


def cancel_run(config: Path | None, run: str, *, reason: str, json: bool) -> None:
    """Give up one that waits."""
    why = parse_reason(reason)
    with open_checked(config) as container:
        known = _find_run(container, run).run
        after = container.run_control().cancel(known.run_id, reason=why, by=get_operator_name())
    _report_change(after, CANCEL_SCHEMA, "is given up", json=json)


def retry_run(config: Path | None, run: str, *, reason: str, json: bool) -> None:
    """Make one due at once."""
    why = parse_reason(reason)
    with open_checked(config) as container:
        known = _find_run(container, run).run
        after = container.run_control().retry_now(known.run_id, reason=why, by=get_operator_name())
    _report_change(after, RETRY_SCHEMA, "is due now", json=json)


def _report_change(run: Run, schema: str, what: str, *, json: bool) -> None:
    if json:
        print_json(schema, record_to_json(run))
    else:
        stdout.print(f"Run {run.run_id} {what}.")


def _find_run(container: Container, run: str) -> RunDetails:
    with blame_option("RUN"):
        check_run_id(RunId(run))
        found: RunDetails = container.inspection().run(RunId(run))
    return found


def _run_to_json(found: RunDetails) -> dict[str, object]:
    attempts = [record_to_json(attempt) for attempt in found.attempts]
    return {**record_to_json(found.run), "attempts": attempts}


def _build_rows(found: RunDetails) -> dict[str, object]:
    run, now = found.run, found.now
    rows: dict[str, object] = {
        "kind": run.kind.value,
        "status": _format_status(run.status),
        "submitted": format_utc(run.submitted_date),
        "priority": run.priority.name.lower(),
        "retries": run.retry_count,
        "asked to wait": run.rate_limited_count or None,
        "workers lost": run.rescues or None,
        "next retry": None
        if run.next_retry_at is None
        else format_next_try(run.next_retry_at, now),
        "error class": run.error_class,
        "error": None if run.error_message is None else printable(run.error_message, limit=1_000),
        "worker": None if run.lease_owner is None else printable(run.lease_owner),
        "lease": None
        if run.lease_expires_at is None
        else format_relative_time(run.lease_expires_at, now),
        "claims": run.lease_epoch,
        "dedupe key": None if run.dedupe_key is None else printable(run.dedupe_key, limit=1_000),
        **{name: printable(str(value), limit=1_000) for name, value in run.payload.items()},
    }
    return {name: value for name, value in rows.items() if value is not None}


def _format_status(status: RunStatus) -> str:
    return status.value.replace("_", " ")
