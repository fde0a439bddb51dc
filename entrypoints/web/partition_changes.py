"""Changes of partitions: retry and mark failed ones, and backfill a range of dates."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from functools import partial

from attrs import evolve, frozen

from tileferry.application.control.partition_control import OperatorOverride, PartitionControl
from tileferry.application.ports.work import PartitionFilter, PartitionRecords
from tileferry.domain.errors import InvalidValueError, NotFoundError, PlanDriftedError, Remedy
from tileferry.domain.partitions import (
    BackfillPlan,
    BackfillRequest,
    Partition,
    PartitionKey,
    PartitionStatus,
)
from tileferry.domain.tiles import BBox, SectorClass, Shape
from tileferry.domain.tiles.area import Area
from tileferry.entrypoints.cli.areas import parse_zooms
from tileferry.entrypoints.cli.backfill import count_actions
from tileferry.entrypoints.cli.parsing import parse_day
from tileferry.entrypoints.web.changes import Change, Confirmation, Preview
from tileferry.entrypoints.web.filters import read_choice, read_name
from tileferry.entrypoints.web.site import PageRequest, PageRoute

_PATH = "/partitions"
_PREVIEWED_MAX = 100
_DAYS_MAX = 366
"""Maximum days of one change; for longer ranges, the command line has plan files."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Select = Callable[[PartitionControl, PartitionRecords, PartitionFilter], Sequence[PartitionKey]]
Apply = Callable[[PartitionControl, Sequence[PartitionKey], OperatorOverride], Sequence[Partition]]


@frozen(kw_only=True)
class _Override:
    """A way to override failed partitions."""

    verb: str
    done: str
    select: Select
    apply: Apply


_RETRY = _Override(
    verb="Retry",
    done="retried",
    select=PartitionControl.list_retryable,
    apply=PartitionControl.retry,
)
_MARK = _Override(
    verb="Mark as terminal:",
    done="marked",
    select=PartitionControl.list_markable,
    apply=PartitionControl.mark_terminal,
)


def _select(override: _Override, request: PageRequest) -> Sequence[Partition]:
    """Return the named partition, or the failed ones of a range that the override affects."""
    reader = request.installation.work_reader
    named = request.form.get("partition")
    if named is None:
        among = _read_range(request)
        keys = set(override.select(request.installation.partition_control, reader, among))
        return [one for one in reader.find_partitions(among) if one.key in keys]
    found = reader.find_partition(PartitionKey.parse(named))
    if found is None:
        raise NotFoundError(what="partition", name=named, remedy=Remedy.LIST_PARTITIONS)
    return [found]


def _preview_override(override: _Override, request: PageRequest) -> Preview:
    found = _select(override, request)
    remarks = []
    if len(found) > _PREVIEWED_MAX:
        remarks.append(f"The table shows the first {_PREVIEWED_MAX}.")
    return Preview(
        title=f"{override.verb} {_count(len(found), 'partition')}",
        count=len(found),
        noun="partition",
        plan=[
            [str(one.key), one.status.value, one.last_run_id, one.terminal_marker is None]
            for one in found
        ],
        columns=("Partition", "State", "Attempts", "Effect"),
        rows=[
            (str(one.key), one.status.value, one.attempt_count, _describe_effect(override, one))
            for one in found[:_PREVIEWED_MAX]
        ],
        remarks=remarks,
    )


def _describe_effect(override: _Override, partition: Partition) -> str:
    if override is _MARK:
        return "not retried automatically any more"
    if partition.status is PartitionStatus.SUCCESS:
        return "a new run; its data stays readable"
    return "a new run, now"


def _apply_override(override: _Override, request: PageRequest, confirmation: Confirmation) -> str:
    keys = [one.key for one in _select(override, request)]
    control = request.installation.partition_control
    done = override.apply(control, keys, _to_override(confirmation))
    return f"{_count(len(done), 'partition')} {override.done}."


# backfills


def _plan_backfill(request: PageRequest) -> BackfillPlan:
    first, last = _read_days(request)
    form = request.form
    sectors = read_choice(SectorClass, form, "sector")
    if not sectors:
        raise InvalidValueError(field="sector", value="", problem="is missing")
    area = Area(
        bbox=BBox.parse(form.get("bbox", "").strip()),
        zoom_levels=parse_zooms(form.get("zoom", "").strip()),
        sector_class=sectors[0],
        shape=Shape.parse(form["shape"]) if form.get("shape") else None,
    )
    wanted = BackfillRequest(
        source=_require_name(request, "source"),
        customer_id=_require_name(request, "customer"),
        query_name=_require_name(request, "query"),
        first_date=first,
        last_date=last,
        area=area,
        reprocess="reprocess" in form,
        include_terminal="include_terminal" in form,
    )
    return request.installation.partition_control.plan(wanted)


def _describe_plan(plan: BackfillPlan) -> Preview:
    wanted = plan.request
    return Preview(
        title=f"Backfill {_count(plan.touched, 'partition')}",
        count=plan.touched,
        noun="partition",
        plan=evolve(plan, made_at=_EPOCH).hash,  # equal plans differ only in their time
        columns=("Days", "What happens"),
        rows=[(f"{count:,}", words) for words, count in count_actions(plan).items()],
        note=f"{wanted.source}/{wanted.customer_id}/{wanted.query_name},"
        f" {wanted.first_date} to {wanted.last_date}: {wanted.area.bbox},"
        f"{'' if wanted.area.shape is None else ' its shape only,'}"
        f" zoom {','.join(map(str, wanted.area.zoom_levels))}, {wanted.area.sector_class}",
        remarks=[f"{plan.touched:,} of {len(plan.lines):,} days would get a run."],
    )


def _preview_backfill(request: PageRequest) -> Preview:
    return _describe_plan(_plan_backfill(request))


def _apply_backfill(request: PageRequest, confirmation: Confirmation) -> str:
    plan = _plan_backfill(request)
    if _describe_plan(plan).plan_hash != request.form.get("plan_hash"):
        raise PlanDriftedError(count=plan.touched, drifted=[])
    done = request.installation.partition_control.apply(plan, _to_override(confirmation))
    return f"{_count(len(done), 'run')} started by plan {plan.hash[:12]}."


# fields


def _to_override(confirmation: Confirmation) -> OperatorOverride:
    return OperatorOverride(
        by=confirmation.by, reason=confirmation.reason, confirmed=confirmation.confirmed
    )


def _read_range(request: PageRequest) -> PartitionFilter:
    first, last = _read_days(request)
    return PartitionFilter(
        source=_require_name(request, "source"),
        customer_id=_require_name(request, "customer"),
        query_name=_require_name(request, "query"),
        first=first,
        last=last,
    )


def _read_days(request: PageRequest) -> tuple[date, date]:
    first = parse_day(request.form.get("first", ""), option="first")
    last = parse_day(request.form.get("last", ""), option="last")
    if not 0 <= (last - first).days < _DAYS_MAX:
        problem = f"must be 0 to {_DAYS_MAX - 1} days after {first}"
        raise InvalidValueError(field="last", value=str(last), problem=problem)
    return first, last


def _require_name(request: PageRequest, field: str) -> str:
    value = read_name(request.form, field)
    if value is None:
        raise InvalidValueError(field=field, value="", problem="is missing")
    return value


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


RETRY, MARK = (
    Change(
        path=f"{_PATH}/{name}",
        back=_PATH,
        preview=partial(_preview_override, override),
        apply=partial(_apply_override, override),
    )
    for name, override in (("retry", _RETRY), ("mark-terminal", _MARK))
)
BACKFILL = Change(
    path=f"{_PATH}/backfill", back=_PATH, preview=_preview_backfill, apply=_apply_backfill
)
ROUTES: Sequence[PageRoute] = (*RETRY.routes, *MARK.routes, *BACKFILL.routes)
