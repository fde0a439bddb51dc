"""``tileferry backfill``: many dates at once, planned first, and done exactly as planned."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from tileferry.adapters.filesystem import read_plan_file, write_plan_file
from tileferry.domain.errors import InvalidValueError, PlanDriftedError
from tileferry.domain.partitions import (
    BackfillAction,
    BackfillPlan,
    BackfillRequest,
    Partition,
    plan_from_json,
)
from tileferry.domain.text import printable
from tileferry.domain.tiles.area import Area
from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag
from tileferry.entrypoints.cli.exits import exit_code_of
from tileferry.entrypoints.cli.options.area import (
    AreaOption,
    BboxOption,
    SectorOption,
    ZoomOption,
    coverage_of,
)
from tileferry.entrypoints.cli.options.overriding import ConfirmOption, ReasonOption, override_of
from tileferry.entrypoints.cli.options.partitions import SourceOption, check_name, days_of
from tileferry.entrypoints.cli.options.times import in_utc
from tileferry.entrypoints.cli.output import facts, notes, opened_books, option, people, print_json

PLAN_SCHEMA = "tileferry.backfill.plan.v1"
APPLY_SCHEMA = "tileferry.backfill.apply.v1"
_DRIFT_SHOWN_MAX = 20
app = typer.Typer(
    help="Many dates of a query at once: plan them, look at the plan, apply it.",
    no_args_is_help=True,
)
_ACTIONS = {
    BackfillAction.ENQUEUE: "new: its first run",
    BackfillAction.REQUEUE: "failed: a new run",
    BackfillAction.REPROCESS: "success: a new run; what there is stays readable",
}


@app.command(
    "plan",
    epilog="Example: tileferry backfill plan --customer-id acme --query roads --from 2024-01-01 "
    "--to 2024-01-31 --bbox 36.1,49.9,36.4,50.1 --zoom 15,16 --sector stable_rear --out jan.plan",
)
def plan_command(
    *,
    source: SourceOption = None,
    customer_id: Annotated[str, typer.Option("--customer-id", help="The customer.")],
    query: Annotated[str, typer.Option("--query", help="The name of the query.")],
    first: Annotated[str, typer.Option("--from", metavar="DATE", help="The first day.")],
    last: Annotated[str, typer.Option("--to", metavar="DATE", help="The last day, included.")],
    bbox: BboxOption = None,
    area: AreaOption = None,
    zoom: ZoomOption,
    sector: SectorOption,
    reprocess: Annotated[
        bool, typer.Option("--reprocess", help="Take successes, too; they stay readable.")
    ] = False,
    include_terminal: Annotated[
        bool, typer.Option("--include-terminal", help="Take failures that were given up, too.")
    ] = False,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", help="Where to write the plan; a new file.", dir_okay=False
        ),
    ],
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Write down what each day of a range would get; nothing is changed.

    The source is c11.source unless --source says another. The plan has a hash over every line:
    backfill apply does exactly what it says, or refuses.
    """
    for value, name in ((source, "--source"), (customer_id, "--customer-id"), (query, "--query")):
        check_name(value, name)
    days = days_of(first, last)
    _check_new(out)
    with opened_books(config) as container:
        coverage = coverage_of(container.config(), bbox, area, zoom)
        with option("--zoom"):
            wanted = Area(bbox=coverage.bbox, zoom_levels=coverage.zoom_levels, sector_class=sector)
        with option("--from/--to"):
            request = BackfillRequest(
                source=source or container.config().c11.source,
                customer_id=customer_id,
                query_name=query,
                first_date=days[0],
                last_date=days[1],
                area=wanted,
                reprocess=reprocess,
                include_terminal=include_terminal,
            )
        plan = container.partition_control().plan(request)
    write_plan_file(out, plan.to_json())
    if json:
        print_json(PLAN_SCHEMA, {**_json_of(plan), "file": str(out)})
        return
    _show(plan)
    if plan.touched:
        notes.print(f'To do it: tileferry backfill apply {out} --reason "…"')


def _check_new(out: Path) -> None:
    """Refuse a name that is taken: what is there may be a plan that somebody has looked at."""
    if os.path.lexists(out):
        raise InvalidValueError(
            field="--out",
            value=str(out),
            problem="is there already",
            remedy="name a new file, or remove this one",
        )


@app.command("apply", epilog="Example: tileferry backfill apply jan.plan --reason 'new customer'")
def apply_command(
    *,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="What backfill plan wrote.", exists=True, dir_okay=False
        ),
    ],
    reason: ReasonOption,
    confirm_count: ConfirmOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Do exactly what a plan says, or refuse and name what has changed since it was made.

    Applied again, it starts nothing twice. Its runs go after all fresh work. Exit codes: 0 done,
    also when nothing was left to do; 2 the file is no plan, or was changed; 4 refused.
    """
    plan = plan_from_json(read_plan_file(file))
    with opened_books(config) as container:
        override = override_of(
            plan.touched, what="start runs for", reason=reason, confirm=confirm_count
        )
        try:
            done = container.partition_control().apply(plan, override)
        except PlanDriftedError as error:
            _tell_drift(error, plan, json=json)
            raise typer.Exit(exit_code_of(error)) from error
    if json:
        started = [{"partition": str(one.key), "run_id": one.last_run_id} for one in done]
        body = {"hash": plan.hash, "started": len(done), "partitions": started}
        print_json(APPLY_SCHEMA, {**body, "already_started": plan.touched - len(done)})
        return
    _tell_done(plan, done)


def _tell_done(plan: BackfillPlan, done: Sequence[Partition]) -> None:
    runs = "1 run" if len(done) == 1 else f"{len(done):,} runs"
    people.print(f"{runs} started by plan {plan.hash}", soft_wrap=True)
    if len(done) < plan.touched:
        before = plan.touched - len(done)
        notes.print(f"This plan had started {before:,} before; they were left as they are.")
    if done:
        request = plan.request
        notes.print(
            f"To watch: tileferry state inspect --source {request.source} --customer-id"
            f" {request.customer_id} --query {request.query_name} --from {request.first_date}"
            f" --to {request.last_date}"
        )


def _tell_drift(error: PlanDriftedError, plan: BackfillPlan, *, json: bool) -> None:
    if json:
        told = {"type": type(error).__name__, "message": str(error)}
        body = {"hash": plan.hash, "started": 0, "drifted": [*error.drifted]}
        print_json(APPLY_SCHEMA, {**body, "error": told})
    notes.print(
        f"tileferry: {error.count} of the plan's partitions are not what they were when it was"
        " made, so nothing was done:"
    )
    for line in error.drifted[:_DRIFT_SHOWN_MAX]:
        notes.print(f"  {printable(line)}")
    if error.count > _DRIFT_SHOWN_MAX:
        notes.print(f"  … and {error.count - _DRIFT_SHOWN_MAX:,} more")
    notes.print("Make a new plan.")


def _show(plan: BackfillPlan) -> None:
    request = plan.request
    span = f"{request.first_date} to {request.last_date}"
    people.print(
        facts(
            f"Backfill of {request.source}/{request.customer_id}/{request.query_name}, {span}",
            {
                "made": f"{in_utc(plan.made_at)} UTC",
                "area": f"{request.area.bbox}, zoom {_zooms(plan)}, {request.area.sector_class}",
                "hash": plan.hash,
            },
        )
    )
    table = Table(box=box.SIMPLE)
    table.add_column("days", justify="right")
    table.add_column("what they get", overflow="fold")
    for action, words in _ACTIONS.items():
        if plan.counts[action]:
            table.add_row(f"{plan.counts[action]:,}", words)
    for why, count in _skipped(plan).items():
        table.add_row(f"{count:,}", f"nothing: {why.replace('_', ' ')}")
    people.print(table)
    people.print(f"{plan.touched:,} of {len(plan.lines):,} days would get a run.")


def _skipped(plan: BackfillPlan) -> dict[str, int]:
    counts: dict[str, int] = {}
    for line in plan.lines:
        if line.why is not None:
            counts[line.why.value] = counts.get(line.why.value, 0) + 1
    return counts


def _zooms(plan: BackfillPlan) -> str:
    return ",".join(map(str, plan.request.area.zoom_levels))


def _json_of(plan: BackfillPlan) -> dict[str, Any]:
    return {
        "hash": plan.hash,
        "days": len(plan.lines),
        "touched": plan.touched,
        "actions": {action.value: plan.counts[action] for action in BackfillAction},
        "skipped": _skipped(plan),
    }
