"""``tileferry backfill``: runs for a range of dates, planned first, applied exactly as planned."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    ConfirmOption,
    CustomerOption,
    DetailOption,
    FromOption,
    OwnSourceOption,
    QueryOption,
    ReasonOption,
    RouteOption,
    SectorOption,
    ToOption,
    ZoomOption,
)

if TYPE_CHECKING:
    from rich.console import Group

    from tileferry.domain.errors import PlanDriftedError
    from tileferry.domain.partitions import BackfillPlan, Partition

app = declare_group("Plan and apply runs for a range of dates.")
PLAN_SCHEMA = "tileferry.backfill.plan.v1"
APPLY_SCHEMA = "tileferry.backfill.apply.v1"
_DRIFT_SHOWN_MAX = 20


# plan


@app.command(
    "plan",
    epilog=format_examples(
        "tileferry backfill plan --customer-id acme --query roads --from 2026-01-01 --to 2026-01-31"
        " --bbox 36.1,49.9,36.4,50.1 --zoom 13-15 --sector stable_rear --out january.plan",
    ),
)
def plan_command(
    *,
    source: OwnSourceOption = None,
    customer_id: CustomerOption,
    query: QueryOption,
    first: FromOption,
    last: ToOption,
    bbox: BboxOption = None,
    area: AreaOption = None,
    route: RouteOption = None,
    buffer: BufferOption = None,
    detail: DetailOption = None,
    zoom: ZoomOption = None,
    sector: SectorOption,
    reprocess: Annotated[
        bool, typer.Option("--reprocess", help="Include successful partitions; they stay readable.")
    ] = False,
    include_terminal: Annotated[
        bool, typer.Option("--include-terminal", help="Include terminal failures.")
    ] = False,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FILE",
            help="File to write the plan to; must not exist.",
            dir_okay=False,
        ),
    ],
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Write a plan: which dates of the range would get a run. Changes nothing else.

    The plan carries a hash of its content: `backfill apply` does exactly what the plan says, or
    refuses.
    """
    from tileferry.adapters.filesystem import write_file_atomically
    from tileferry.domain.errors import InvalidValueError
    from tileferry.domain.partitions import BackfillAction, BackfillRequest
    from tileferry.domain.tiles import SectorClass
    from tileferry.domain.tiles.area import Area
    from tileferry.entrypoints.cli.areas import AreaInput, parse_one_coverage
    from tileferry.entrypoints.cli.output import (
        blame_option,
        open_installation,
        print_json,
        stderr,
        stdout,
    )
    from tileferry.entrypoints.cli.parsing import check_name
    from tileferry.entrypoints.cli.partition_options import parse_days

    check_name(source, "--source")
    check_name(customer_id, "--customer-id")
    check_name(query, "--query")
    first_date, last_date = parse_days(first, last)
    if os.path.lexists(out):  # an existing plan may have been reviewed
        raise InvalidValueError(
            field="--out",
            value=str(out),
            problem="already exists",
            remedy="choose another name, or remove the file",
        )
    with open_installation(config) as installation:
        settings = installation.config
        given = AreaInput(bboxes=bbox, areas=area, routes=route, buffer=buffer, detail=detail)
        coverage = parse_one_coverage(settings, given, zoom)
        with blame_option("--zoom"):
            target = Area.from_coverage(coverage, SectorClass(sector))
        with blame_option("--from/--to"):
            request = BackfillRequest(
                source=source or settings.source,
                customer_id=customer_id,
                query_name=query,
                first_date=first_date,
                last_date=last_date,
                area=target,
                reprocess=reprocess,
                include_terminal=include_terminal,
            )
        plan = installation.partition_control.plan(request)
    write_file_atomically(out, plan.to_json())
    if json:
        body = {
            "hash": plan.hash,
            "days": len(plan.lines),
            "touched": plan.touched,
            "actions": {action.value: plan.counts[action] for action in BackfillAction},
            "skipped": _count_skipped(plan),
            "file": str(out),
        }
        print_json(PLAN_SCHEMA, body)
        return
    stdout.print(_render_plan(plan))
    if plan.touched:
        stderr.print(f'To apply it: tileferry backfill apply {out} --reason "…"')


def _render_plan(plan: "BackfillPlan") -> "Group":
    """Render the number of days by planned action."""
    from rich import box
    from rich.console import Group

    from tileferry.domain.text import format_utc
    from tileferry.entrypoints.cli.output import build_facts_table
    from tileferry.entrypoints.cli.tables import FittingTable

    request = plan.request
    zooms = ",".join(map(str, request.area.zoom_levels))
    span = f"{request.first_date} to {request.last_date}"
    head = build_facts_table(
        f"Backfill of {request.source}/{request.customer_id}/{request.query_name}, {span}",
        {
            "created": format_utc(plan.made_at),
            "area": f"{request.area.place_key}, zoom {zooms}, {request.area.sector_class}",
            "hash": plan.hash,
        },
    )
    table = FittingTable(box=box.SIMPLE)
    table.add_column("days", justify="right", no_wrap=True)
    table.add_column("action", overflow="fold")
    for action, count in count_actions(plan).items():
        table.add_row(f"{count:,}", action)
    summary = f"{plan.touched:,} of {len(plan.lines):,} days would get a run."
    return Group(head, table, summary)


def count_actions(plan: "BackfillPlan") -> dict[str, int]:
    """Return the number of days of a plan by what would happen, in words."""
    from tileferry.domain.partitions import BackfillAction

    actions = {
        BackfillAction.ENQUEUE: "new: its first run",
        BackfillAction.REQUEUE: "failed: a new run",
        BackfillAction.REPROCESS: "success: a new run; its data stays readable",
    }
    skipped = _count_skipped(plan).items()
    return {
        **{words: plan.counts[action] for action, words in actions.items() if plan.counts[action]},
        **{f"nothing: {why.replace('_', ' ')}": count for why, count in skipped},
    }


def _count_skipped(plan: "BackfillPlan") -> dict[str, int]:
    counts: dict[str, int] = {}
    for line in plan.lines:
        if line.why is not None:
            counts[line.why.value] = counts.get(line.why.value, 0) + 1
    return counts


# apply


@app.command(
    "apply",
    epilog=format_examples(
        "tileferry backfill apply january.plan --reason 'a new customer' --confirm-count 31",
    ),
)
def apply_command(
    *,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Plan written by `backfill plan`.", exists=True, dir_okay=False
        ),
    ],
    reason: ReasonOption,
    confirm_count: ConfirmOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Apply a plan exactly, or refuse and list what has changed since.

    Applying it again starts nothing twice. Backfill runs have the lowest priority.

    Exit codes: 0 done, or nothing to do; 2 the file is not a plan, or was modified; 4 refused.
    """
    from tileferry.adapters.filesystem import read_plan_file
    from tileferry.domain.errors import PlanDriftedError
    from tileferry.domain.partitions import parse_plan
    from tileferry.entrypoints.cli.exit_codes import get_exit_code
    from tileferry.entrypoints.cli.output import open_installation, print_json, stderr, stdout
    from tileferry.entrypoints.cli.partition_options import build_override

    plan = parse_plan(read_plan_file(file))
    with open_installation(config) as installation:
        override = build_override(
            plan.touched, what="start runs for", reason=reason, confirm=confirm_count
        )
        try:
            done = installation.partition_control.apply(plan, override)
        except PlanDriftedError as error:
            _report_drift(error, plan, json=json)
            raise typer.Exit(get_exit_code(error)) from error
    before = plan.touched - len(done)
    if json:
        print_json(APPLY_SCHEMA, _applied_to_json(plan, done, before))
        return
    runs = "1 run" if len(done) == 1 else f"{len(done):,} runs"
    stdout.print(f"{runs} started by plan {plan.hash}", soft_wrap=True)
    if before:
        stderr.print(f"{before:,} runs of this plan were already started; they are unchanged.")
    if done:
        request = plan.request
        stderr.print(
            f"To watch: tileferry state inspect --source {request.source} --customer-id"
            f" {request.customer_id} --query {request.query_name} --from {request.first_date}"
            f" --to {request.last_date}"
        )


def _applied_to_json(
    plan: "BackfillPlan", done: "Sequence[Partition]", before: int, drifted: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        "hash": plan.hash,
        "started": len(done),
        "already_started": before,
        "partitions": [{"partition": str(one.key), "run_id": one.last_run_id} for one in done],
        "drifted": [*drifted],
    }


def _report_drift(error: "PlanDriftedError", plan: "BackfillPlan", *, json: bool) -> None:
    from tileferry.domain.text import printable
    from tileferry.entrypoints.cli.exit_codes import get_exit_code
    from tileferry.entrypoints.cli.failures import error_to_json
    from tileferry.entrypoints.cli.output import print_json, stderr

    if json:
        body = _applied_to_json(plan, [], 0, error.drifted)
        print_json(APPLY_SCHEMA, {**body, "error": error_to_json(error, get_exit_code(error))})
    stderr.print(
        f"tileferry: {error.count} of the plan's partitions have changed since it was made;"
        " nothing was done:"
    )
    for line in error.drifted[:_DRIFT_SHOWN_MAX]:
        stderr.print(f"  {printable(line)}")
    if error.count > _DRIFT_SHOWN_MAX:
        stderr.print(f"  … and {error.count - _DRIFT_SHOWN_MAX:,} more")
    stderr.print("Create a new plan.")
