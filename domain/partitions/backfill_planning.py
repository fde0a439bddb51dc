"""Plans a backfill from the current partitions, and detects later changes of them."""

from collections.abc import Iterable
from datetime import datetime

from attrs import fields, frozen

from tileferry.domain.partitions.backfill import (
    BackfillAction,
    BackfillLine,
    BackfillPlan,
    BackfillRequest,
    PartitionFingerprint,
    SkipReason,
)
from tileferry.domain.partitions.partition import Partition, PartitionKey, PartitionStatus
from tileferry.domain.partitions.retry_rules import TerminalityPolicy, find_terminal_reason

_ABSENT = "absent"


def plan_backfill(
    request: BackfillRequest,
    partitions: Iterable[Partition],
    *,
    now: datetime,
    terminality: TerminalityPolicy,
) -> BackfillPlan:
    """Return a plan with an action for each date of the request. Other partitions are ignored."""
    found = {partition.key: partition for partition in partitions}
    lines = []
    for logical_date in request.dates:
        partition = found.get(request.get_key(logical_date))
        action, why = _decide_action(partition, request, terminality, now)
        lines.append(
            BackfillLine(
                logical_date=logical_date,
                action=action,
                why=why,
                seen=None if partition is None else PartitionFingerprint.from_partition(partition),
            )
        )
    return BackfillPlan(made_at=now, request=request, lines=lines)


def _decide_action(
    partition: Partition | None,
    request: BackfillRequest,
    terminality: TerminalityPolicy,
    now: datetime,
) -> tuple[BackfillAction, SkipReason | None]:
    if partition is None:
        return BackfillAction.ENQUEUE, None
    if partition.active_run_id is not None:
        return BackfillAction.SKIP, SkipReason.RUN_ACTIVE
    if partition.status is PartitionStatus.SUCCESS:
        if request.reprocess:
            return BackfillAction.REPROCESS, None
        return BackfillAction.SKIP, SkipReason.SUCCESS
    terminal = find_terminal_reason(partition, terminality, now)
    if terminal is None or request.include_terminal:
        return BackfillAction.REQUEUE, None
    return BackfillAction.SKIP, SkipReason(terminal.value)


@frozen(kw_only=True)
class PartitionDrift:
    """A partition that has changed since the plan was made."""

    key: PartitionKey
    action: BackfillAction
    """The planned action."""
    planned: PartitionFingerprint | None
    found: PartitionFingerprint | None

    @property
    def blocks(self) -> bool:
        """Whether the drift prevents applying the plan: the plan would change the partition.

        The drift of a skipped date does not matter.
        """
        return self.action is not BackfillAction.SKIP

    @property
    def changes(self) -> tuple[tuple[str, str, str], ...]:
        """The changed fields, each with its old and new value."""
        if self.planned is None or self.found is None:
            return (("status", _format_status(self.planned), _format_status(self.found)),)
        pairs = (
            (item.name, getattr(self.planned, item.name), getattr(self.found, item.name))
            for item in fields(PartitionFingerprint)
        )
        return tuple(
            (name, _format_value(was), _format_value(now)) for name, was, now in pairs if was != now
        )

    def __str__(self) -> str:
        changes = "; ".join(f"{name} was {was}, is {now}" for name, was, now in self.changes)
        return f"partition {self.key} ({self.action}): {changes}"


def find_drift(plan: BackfillPlan, partitions: Iterable[Partition]) -> list[PartitionDrift]:
    """Return the partitions that have changed since the plan was made, in the plan's order.

    Changes made by the plan itself, if it was applied before, are not drift.
    """
    found = {partition.key: partition for partition in partitions}
    drifted = []
    for line in plan.lines:
        key = plan.get_key(line)
        partition = found.get(key)
        state = None if partition is None else PartitionFingerprint.from_partition(partition)
        if state != line.seen and not is_applied(plan, line, partition):
            drifted.append(
                PartitionDrift(key=key, action=line.action, planned=line.seen, found=state)
            )
    return drifted


def is_applied(plan: BackfillPlan, line: BackfillLine, partition: Partition | None) -> bool:
    """Return whether the partition's newest run is the one that this line starts."""
    return partition is not None and partition.last_run_id == plan.get_run_id(line)


def _format_status(state: PartitionFingerprint | None) -> str:
    return _ABSENT if state is None else state.status.value


def _format_value(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case _:
            return str(value)
