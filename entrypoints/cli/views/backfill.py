"""How a backfill's plan is shown."""

from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table

from tileferry.domain.partitions import BackfillAction, BackfillPlan
from tileferry.domain.text import in_utc
from tileferry.entrypoints.cli.output import facts

_ACTIONS = {
    BackfillAction.ENQUEUE: "new: its first run",
    BackfillAction.REQUEUE: "failed: a new run",
    BackfillAction.REPROCESS: "success: a new run; what there is stays readable",
}


def plan_view(plan: BackfillPlan) -> Group:
    """Lay out how many days get what."""
    request = plan.request
    zooms = ",".join(map(str, request.area.zoom_levels))
    span = f"{request.first_date} to {request.last_date}"
    head = facts(
        f"Backfill of {request.source}/{request.customer_id}/{request.query_name}, {span}",
        {
            "made": in_utc(plan.made_at),
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
    for why, count in _skipped(plan).items():
        table.add_row(f"{count:,}", f"nothing: {why.replace('_', ' ')}")
    summary = f"{plan.touched:,} of {len(plan.lines):,} days would get a run."
    return Group(head, table, summary)


def plan_json(plan: BackfillPlan) -> dict[str, Any]:
    """Count the same for scripts."""
    return {
        "hash": plan.hash,
        "days": len(plan.lines),
        "touched": plan.touched,
        "actions": {action.value: plan.counts[action] for action in BackfillAction},
        "skipped": _skipped(plan),
    }


def _skipped(plan: BackfillPlan) -> dict[str, int]:
    counts: dict[str, int] = {}
    for line in plan.lines:
        if line.why is not None:
            counts[line.why.value] = counts.get(line.why.value, 0) + 1
    return counts
