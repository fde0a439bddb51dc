"""``tileferry backfill``: many dates at once, planned first, and done exactly as planned."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from attrs import frozen
from rich import box
from rich.console import Group
from rich.table import Table

from tileferry.adapters.filesystem import read_plan_file, write_file_atomically
from tileferry.domain.errors import InvalidValueError, PlanDriftedError
from tileferry.domain.partitions import (
    BackfillAction,
    BackfillPlan,
    BackfillRequest,
    Partition,
    parse_plan,
)
from tileferry.domain.text import format_utc, printable
from tileferry.domain.tiles import SectorClass
from tileferry.domain.tiles.area import Area
from tileferry.entrypoints.cli.area_options import parse_coverage
from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.exit_codes import get_exit_code
from tileferry.entrypoints.cli.failures import error_to_json
from tileferry.entrypoints.cli.option_types import (
    AreaOption,
    BboxOption,
    ConfirmOption,
    CustomerOption,
    FromOption,
    OwnSourceOption,
    QueryOption,
    ReasonOption,
    SectorOption,
    ToOption,
    ZoomOption,
)
from tileferry.entrypoints.cli.output import (
    blame_option,
    build_facts_table,
    open_checked,
    print_json,
    stderr,
    stdout,
)
from tileferry.entrypoints.cli.partition_options import build_override, check_name, parse_days
from tileferry.entrypoints.config import Config

app = declare_group("Many dates of a query at once: plan them, look at the plan, apply it.")


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

    The plan has a hash over every line: backfill apply does exactly what it says, or refuses.
    """
    from tileferry.entrypoints.cli import backfill

    backfill.plan_backfill(
        config,
        backfill.BackfillOptions(
            source=source,
            customer_id=customer_id,
            query=query,
            first=first,
            last=last,
            bbox=bbox,
            area=area,
            zoom=zoom,
            sector=sector,
            reprocess=reprocess,
            include_terminal=include_terminal,
        ),
        out=out,
        json=json,
    )


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
            metavar="FILE", help="What backfill plan wrote.", exists=True, dir_okay=False
        ),
    ],
    reason: ReasonOption,
    confirm_count: ConfirmOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Do exactly what a plan says, or refuse and name what has changed.

    Applied again, it starts nothing twice. Its runs go after all fresh work.

    Exit codes: 0 done, also when nothing was left to do; 2 the file is no plan, or was changed; 4
    refused.
    """
    from tileferry.entrypoints.cli import backfill

    backfill.apply_backfill(config, file, reason=reason, confirm=confirm_count, json=json)


_ACTIONS = {
    BackfillAction.ENQUEUE: "new: its first run",
    BackfillAction.REQUEUE: "failed: a new run",
    BackfillAction.REPROCESS: "success: a new run; what there is stays readable",
}


def render_backfill_plan(plan: BackfillPlan) -> Group:
    """Lay out how many days get what."""
    request = plan.request
    zooms = ",".join(map(str, request.area.zoom_levels))
    span = f"{request.first_date} to {request.last_date}"
    head = build_facts_table(
        f"Backfill of {request.source}/{request.customer_id}/{request.query_name}, {span}",
        {
            "made": format_utc(plan.made_at),
            "area": f"{request.area.bbox}, zoom {zooms}, {request.area.sector_class}",
            "hash": plan.hash,
        },
    )
    table = Table(box=box.SIMPLE)
    table.add_column("days", justify="right")
    table.add_column("what they get", overflow="fold")
    for action, words in _ACTIONS.items():
        if plan.counts[action]:
            table.add_row(f"{plan.counts[action]:,}", words)
    for why, count in _count_skipped(plan).items():
        table.add_row(f"{count:,}", f"nothing: {why.replace('_', ' ')}")
    summary = f"{plan.touched:,} of {len(plan.lines):,} days would get a run."
    return Group(head, table, summary)


def backfill_plan_to_json(plan: BackfillPlan) -> dict[str, Any]:
    """Count the same for scripts."""
    return {
        "hash": plan.hash,
        "days": len(plan.lines),
        "touched": plan.touched,
        "actions": {action.value: plan.counts[action] for action in BackfillAction},
        "skipped": _count_skipped(plan),
    }


def _count_skipped(plan: BackfillPlan) -> dict[str, int]:
    counts: dict[str, int] = {}
    for line in plan.lines:
        if line.why is not None:
            counts[line.why.value] = counts.get(line.why.value, 0) + 1
    return counts


PLAN_SCHEMA = "tileferry.backfill.plan.v1"
APPLY_SCHEMA = "tileferry.backfill.apply.v1"
_DRIFT_SHOWN_MAX = 20


@frozen(kw_only=True)
class BackfillOptions:
    """What the options say about a backfill."""

    source: str | None
    customer_id: str
    query: str
    first: str
    last: str
    bbox: str | None
    area: str | None
    zoom: str
    sector: str
    reprocess: bool
    include_terminal: bool

    def check(self) -> None:
        """Refuse what can be seen to be wrong without a database."""
        check_name(self.source, "--source")
        check_name(self.customer_id, "--customer-id")
        check_name(self.query, "--query")
        parse_days(self.first, self.last)

    def to_request(self, config: Config) -> BackfillRequest:
        """Return what is to be planned."""
        first, last = parse_days(self.first, self.last)
        coverage = parse_coverage(config, self.bbox, self.area, self.zoom)
        with blame_option("--zoom"):
            area = Area(
                bbox=coverage.bbox,
                zoom_levels=coverage.zoom_levels,
                sector_class=SectorClass(self.sector),
            )
        with blame_option("--from/--to"):
            return BackfillRequest(
                source=self.source or config.source,
                customer_id=self.customer_id,
                query_name=self.query,
                first_date=first,
                last_date=last,
                area=area,
                reprocess=self.reprocess,
                include_terminal=self.include_terminal,
            )


def plan_backfill(config: Path | None, wanted: BackfillOptions, *, out: Path, json: bool) -> None:
    """Make a plan, and write it to a new file."""
    wanted.check()
    _check_new(out)
    with open_checked(config) as container:
        plan = container.partition_control().plan(wanted.to_request(container.config()))
    write_file_atomically(out, plan.to_json())
    if json:
        print_json(PLAN_SCHEMA, {**backfill_plan_to_json(plan), "file": str(out)})
        return
    stdout.print(render_backfill_plan(plan))
    if plan.touched:
        stderr.print(f'To do it: tileferry backfill apply {out} --reason "…"')


def _check_new(out: Path) -> None:
    """Refuse a name that is taken: what is there may be a plan that somebody has looked at."""
    if os.path.lexists(out):
        raise InvalidValueError(
            field="--out",
            value=str(out),
            problem="is there already",
            remedy="name a new file, or remove this one",
        )


def apply_backfill(
    config: Path | None, file: Path, *, reason: str, confirm: int | None, json: bool
) -> None:
    """Do what a plan says; all of it, or nothing when something has changed since."""
    plan = parse_plan(read_plan_file(file))
    with open_checked(config) as container:
        override = build_override(
            plan.touched, what="start runs for", reason=reason, confirm=confirm
        )
        try:
            done = container.partition_control().apply(plan, override)
        except PlanDriftedError as error:
            _report_drift(error, plan, json=json)
            raise typer.Exit(get_exit_code(error)) from error
    if json:
        print_json(APPLY_SCHEMA, _build_apply_json(plan, done, plan.touched - len(done)))
        return
    _report_applied(plan, done)


def _build_apply_json(
    plan: BackfillPlan, done: Sequence[Partition], before: int, drifted: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        "hash": plan.hash,
        "started": len(done),
        "already_started": before,
        "partitions": [{"partition": str(one.key), "run_id": one.last_run_id} for one in done],
        "drifted": [*drifted],
    }


def _report_applied(plan: BackfillPlan, done: Sequence[Partition]) -> None:
    runs = "1 run" if len(done) == 1 else f"{len(done):,} runs"
    stdout.print(f"{runs} started by plan {plan.hash}", soft_wrap=True)
    if len(done) < plan.touched:
        before = plan.touched - len(done)
        stderr.print(f"This plan had started {before:,} before; they were left as they are.")
    if done:
        request = plan.request
        stderr.print(
            f"To watch: tileferry state inspect --source {request.source} --customer-id"
            f" {request.customer_id} --query {request.query_name} --from {request.first_date}"
            f" --to {request.last_date}"
        )


def _report_drift(error: PlanDriftedError, plan: BackfillPlan, *, json: bool) -> None:
    if json:
        body = _build_apply_json(plan, [], 0, error.drifted)
        print_json(APPLY_SCHEMA, {**body, "error": error_to_json(error, get_exit_code(error))})
    stderr.print(
        f"tileferry: {error.count} of the plan's partitions are not what they were when it was"
        " made, so nothing was done:"
    )
    for line in error.drifted[:_DRIFT_SHOWN_MAX]:
        stderr.print(f"  {printable(line)}")
    if error.count > _DRIFT_SHOWN_MAX:
        stderr.print(f"  … and {error.count - _DRIFT_SHOWN_MAX:,} more")
    stderr.print("Make a new plan.")
