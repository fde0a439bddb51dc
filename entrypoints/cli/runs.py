"""``tileferry runs``: list, explain, submit, cancel and retry runs."""

from typing import TYPE_CHECKING, Annotated

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import (
    AreaOption,
    BboxOption,
    BufferOption,
    CapturedOption,
    DetailOption,
    FarFlag,
    FlightOption,
    KindOption,
    RouteOption,
    RunArgument,
    RunStatusOption,
    RunTextOption,
    SectorOption,
    SourceOption,
    ZoomOption,
)
from tileferry.entrypoints.cli.run_changes import add_change_commands, build_filter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tileferry.application.control.queries import RunDetails
    from tileferry.domain.runs import Run, RunStatus
    from tileferry.entrypoints.installation import Installation

app = declare_group("List, explain, submit, cancel and retry runs.")
submit_app = declare_group("Queue work for the workers.")
app.add_typer(submit_app, name="submit")
LIST_SCHEMA = "tileferry.runs.list.v1"
SHOW_SCHEMA = "tileferry.runs.show.v1"
WHY_SCHEMA = "tileferry.runs.why.v1"
SUBMIT_SCHEMA = "tileferry.runs.submit.v1"


@app.command(
    "list",
    epilog=format_examples(
        "tileferry runs list",
        "tileferry runs list --status error --kind download_area --source satellite",
        "tileferry runs list --text timeout",
    ),
)
def list_command(
    *,
    status: RunStatusOption = None,
    kind: KindOption = None,
    source: SourceOption = None,
    text: RunTextOption = None,
    limit: Annotated[
        int,
        typer.Option("-n", "--limit", metavar="N", min=0, max=100_000, help="Show at most N."),
    ] = 20,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """List runs, newest first, and count all runs by status."""
    from tileferry.domain.runs import RunStatus
    from tileferry.entrypoints.cli.formatting import record_to_json
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout
    from tileferry.entrypoints.cli.work_lines import format_run, progress_to_json

    wanted = build_filter(status, kind, source, text)
    with open_installation(config) as installation:
        reader = installation.work_reader
        now, counts = reader.now(), reader.count_runs()
        found = reader.list_runs(wanted, limit=limit)
        progress = reader.get_progress([run.run_id for run in found])
    if json:
        known = {one.value: counts.get(one, 0) for one in RunStatus}
        listed = [
            {**record_to_json(run), "progress": progress_to_json(progress.get(run.run_id))}
            for run in found
        ]
        print_json(LIST_SCHEMA, {"counts": known, "runs": listed})
        return
    for run in found:
        stdout.print(format_run(run, now, progress.get(run.run_id)))
    there = [f"{counts[one]:,} {format_status(one)}" for one in RunStatus if counts.get(one)]
    if there and limit and not found:
        stdout.print("No run matches.")
    stdout.print(f"All runs: {', '.join(there)}." if there else "No runs yet.")


@app.command("show", epilog=format_examples("tileferry runs show 0193a2b4c5d6-0123456789abcdef"))
def show_command(*, run: RunArgument, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show a run and its attempts."""
    from tileferry.entrypoints.cli.formatting import record_to_json
    from tileferry.entrypoints.cli.output import (
        build_facts_table,
        open_installation,
        print_json,
        stdout,
    )
    from tileferry.entrypoints.cli.work_lines import format_attempts, progress_to_json

    with open_installation(config) as installation:
        found = find_run(installation, run)
    if json:
        attempts = [record_to_json(attempt) for attempt in found.attempts]
        body = {**record_to_json(found.run), "progress": progress_to_json(found.progress)}
        print_json(SHOW_SCHEMA, {**body, "attempts": attempts})
        return
    stdout.print(build_facts_table(f"Run {found.run.run_id}", build_run_facts(found)))
    stdout.print(format_attempts(found.attempts, found.now))


@app.command("why", epilog=format_examples("tileferry runs why 0193a2b4c5d6-0123456789abcdef"))
def why_command(*, run: RunArgument, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Explain why a run is waiting, running or finished.

    Shows its decisions from the audit log; each is recomputed from its recorded inputs.
    """
    from tileferry.entrypoints.cli.audit_entries import replay_to_json
    from tileferry.entrypoints.cli.explanations import explain_run
    from tileferry.entrypoints.cli.output import open_installation, print_json, stderr, stdout
    from tileferry.entrypoints.cli.work_lines import (
        format_sentences,
        progress_to_json,
        render_audit_entries,
    )

    with open_installation(config) as installation:
        found = find_run(installation, run)
        source = installation.inspector.get_source(found.run.source)
        story = explain_run(found, source, installation.work_policies)
        entries = list(installation.audit_reader.find_about(found.run.run_id))
    if json:
        body = {
            "run_id": found.run.run_id,
            "status": found.run.status,
            "why": story,
            "progress": progress_to_json(found.progress),
        }
        print_json(WHY_SCHEMA, {**body, "audit": replay_to_json(entries)})
        return
    stdout.print(f"Run {found.run.run_id}: {format_status(found.run.status)}")
    stdout.print(format_sentences(story))
    if entries:
        stdout.print("\nAudit log:")
        stdout.print(render_audit_entries(entries), soft_wrap=True)
    else:
        stderr.print("The audit log has no entries about it.")


add_change_commands(app)


@submit_app.command(
    "download",
    epilog=format_examples(
        "tileferry runs submit download --bbox 36.1,49.9,36.4,50.1 --zoom 13-15 --flight F7"
        " --sector stable_rear",
    ),
)
def submit_download_command(
    *,
    bbox: BboxOption = None,
    area: AreaOption = None,
    route: RouteOption = None,
    buffer: BufferOption = None,
    detail: DetailOption = None,
    zoom: ZoomOption = None,
    flight: FlightOption,
    sector: SectorOption,
    far: FarFlag = False,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Queue the download of areas for a flight, one run each. The same work is not queued twice."""
    from tileferry.domain.tiles import SectorClass
    from tileferry.entrypoints.cli.areas import (
        AreaInput,
        build_download_requests,
        confirm_distances,
        parse_coverages,
    )
    from tileferry.entrypoints.cli.output import open_installation
    from tileferry.entrypoints.cli.partition_options import get_operator_name

    with open_installation(config) as installation:
        settings = installation.config
        given = AreaInput(bboxes=bbox, areas=area, routes=route, buffer=buffer, detail=detail)
        coverages = parse_coverages(settings, given, zoom)
        requests = build_download_requests(settings, coverages, flight, SectorClass(sector))
        confirm_distances(installation, requests, far=far)
        submitted = [
            installation.queue_download(request.flight_id, request.area, by=get_operator_name())
            for request in requests
        ]
    _show_submitted(submitted, json=json)


@submit_app.command("upload", epilog=format_examples("tileferry runs submit upload --flight F7"))
def submit_upload_command(
    *, flight: CapturedOption, config: ConfigFile = None, json: JsonFlag = False
) -> None:
    """Queue the upload of a flight's tiles. The same work is never queued twice.

    The worker uploads once c11.flight_record_file says that the aircraft is on the ground.
    """
    from tileferry.entrypoints.cli.output import blame_option, open_installation, stderr
    from tileferry.entrypoints.cli.partition_options import get_operator_name

    with open_installation(config) as installation, blame_option("--flight"):
        submitted = installation.queue_upload(flight, by=get_operator_name())
    _show_submitted([submitted], json=json)
    if installation.config.c11.flight_record_file is None:
        stderr.print(
            "c11.flight_record_file is not set; the worker needs it to know that the aircraft"
            " has landed."
        )


def _show_submitted(submitted: "Sequence[tuple[Run, bool]]", *, json: bool) -> None:
    """Show the runs, and whether each is new; the JSON object is the first, with the others."""
    from tileferry.entrypoints.cli.formatting import record_to_json
    from tileferry.entrypoints.cli.output import print_json, stderr, stdout

    if json:
        first, *more = ({"new": is_new, **record_to_json(run)} for run, is_new in submitted)
        print_json(SUBMIT_SCHEMA, {**first, **({"more": more} if more else {})})
    for run, is_new in submitted:
        if not json:
            stdout.print(run.run_id)
        if not is_new:
            status = format_status(run.status)
            stderr.print(f"Already queued as run {run.run_id}, which is {status}.")
        stderr.print(f"To follow it: tileferry runs why {run.run_id}")


def find_run(installation: "Installation", run: str) -> "RunDetails":
    """Return the run with an id; raise if the id is not valid or unknown."""
    from tileferry.application.ports.raw_partitions import check_run_id
    from tileferry.domain.runs import RunId
    from tileferry.entrypoints.cli.output import blame_option

    with blame_option("RUN"):
        check_run_id(RunId(run))
        found: RunDetails = installation.inspector.run(RunId(run))
    return found


def build_run_facts(found: "RunDetails") -> dict[str, object]:
    """Return the facts about a run, by name."""
    from tileferry.domain.text import format_utc, printable
    from tileferry.entrypoints.cli.formatting import format_relative_time
    from tileferry.entrypoints.cli.work_lines import describe_progress, format_next_try

    run, now = found.run, found.now
    rows: dict[str, object] = {
        "kind": run.kind.value,
        "status": format_status(run.status),
        "submitted": format_utc(run.submitted_date),
        "priority": run.priority.name.lower(),
        "retries": run.retry_count,
        "rate limited": run.rate_limited_count or None,
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
        "progress": None
        if found.progress is None
        else "; ".join(describe_progress(found.progress)),
        "claims": run.lease_epoch,
        "dedupe key": None if run.dedupe_key is None else printable(run.dedupe_key, limit=1_000),
        **{name: printable(str(value), limit=1_000) for name, value in run.payload.items()},
    }
    return {name: value for name, value in rows.items() if value is not None}


def format_status(status: "RunStatus") -> str:
    """Return a status in words."""
    return status.value.replace("_", " ")
