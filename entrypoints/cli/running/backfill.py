"""A backfill, planned and applied."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from attrs import frozen

from tileferry.adapters.filesystem import read_plan_file, write_whole_file
from tileferry.domain.errors import InvalidValueError, PlanDriftedError
from tileferry.domain.partitions import (
    BackfillPlan,
    BackfillRequest,
    Partition,
    plan_from_json,
)
from tileferry.domain.text import printable
from tileferry.domain.tiles import SectorClass
from tileferry.domain.tiles.area import Area
from tileferry.entrypoints.cli.exits import exit_code_of
from tileferry.entrypoints.cli.failures import error_json
from tileferry.entrypoints.cli.options.area import coverage_of
from tileferry.entrypoints.cli.options.overriding import override_of
from tileferry.entrypoints.cli.options.partitions import check_name, days_of
from tileferry.entrypoints.cli.output import notes, opened_books, option, people, print_json
from tileferry.entrypoints.cli.views.backfill import plan_json, plan_view
from tileferry.entrypoints.config import Config

PLAN_SCHEMA = "tileferry.backfill.plan.v1"
APPLY_SCHEMA = "tileferry.backfill.apply.v1"
_DRIFT_SHOWN_MAX = 20


@frozen(kw_only=True)
class Wanted:
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
        days_of(self.first, self.last)

    def request(self, config: Config) -> BackfillRequest:
        """Return what is to be planned."""
        first, last = days_of(self.first, self.last)
        coverage = coverage_of(config, self.bbox, self.area, self.zoom)
        with option("--zoom"):
            area = Area(
                bbox=coverage.bbox,
                zoom_levels=coverage.zoom_levels,
                sector_class=SectorClass(self.sector),
            )
        with option("--from/--to"):
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


def planned(config: Path | None, wanted: Wanted, *, out: Path, json: bool) -> None:
    """Make a plan, and write it to a new file."""
    wanted.check()
    _check_new(out)
    with opened_books(config) as container:
        plan = container.partition_control().plan(wanted.request(container.config()))
    write_whole_file(out, plan.to_json())
    if json:
        print_json(PLAN_SCHEMA, {**plan_json(plan), "file": str(out)})
        return
    people.print(plan_view(plan))
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


def applied(
    config: Path | None, file: Path, *, reason: str, confirm: int | None, json: bool
) -> None:
    """Do what a plan says; all of it, or nothing when something has changed since."""
    plan = plan_from_json(read_plan_file(file))
    with opened_books(config) as container:
        override = override_of(plan.touched, what="start runs for", reason=reason, confirm=confirm)
        try:
            done = container.partition_control().apply(plan, override)
        except PlanDriftedError as error:
            _tell_drift(error, plan, json=json)
            raise typer.Exit(exit_code_of(error)) from error
    if json:
        print_json(APPLY_SCHEMA, _applied_json(plan, done, plan.touched - len(done)))
        return
    _tell_done(plan, done)


def _applied_json(
    plan: BackfillPlan, done: Sequence[Partition], before: int, drifted: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        "hash": plan.hash,
        "started": len(done),
        "already_started": before,
        "partitions": [{"partition": str(one.key), "run_id": one.last_run_id} for one in done],
        "drifted": [*drifted],
    }


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
        body = _applied_json(plan, [], 0, error.drifted)
        print_json(APPLY_SCHEMA, {**body, "error": error_json(error, exit_code_of(error))})
    notes.print(
        f"tileferry: {error.count} of the plan's partitions are not what they were when it was"
        " made, so nothing was done:"
    )
    for line in error.drifted[:_DRIFT_SHOWN_MAX]:
        notes.print(f"  {printable(line)}")
    if error.count > _DRIFT_SHOWN_MAX:
        notes.print(f"  … and {error.count - _DRIFT_SHOWN_MAX:,} more")
    notes.print("Make a new plan.")
