"""Partitions for people: one with its history, or many in a table."""

from collections.abc import Sequence

from rich.console import Group, RenderableType

from tileferry.application.control.inspection import InspectedPartition
from tileferry.domain.partitions import GivenUp, Partition, PartitionStatus
from tileferry.domain.text import in_utc, printable
from tileferry.entrypoints.cli.output import facts, people
from tileferry.entrypoints.cli.views.times import when
from tileferry.entrypoints.cli.views.work import attempt_lines, block, headed, verdict_lines

_TOUCHED_SHOWN_MAX = 20
_STYLES = {
    PartitionStatus.PENDING: "cyan",
    PartitionStatus.SUCCESS: "green",
    PartitionStatus.FAILED: "red",
}
_REASONS = {
    GivenUp.MARKED: "marked",
    GivenUp.ATTEMPTS_USED_UP: "attempts used up",
    GivenUp.TOO_OLD: "too old",
    GivenUp.ABANDONED: "abandoned: its run was given up",
}


def inspected_view(found: InspectedPartition) -> RenderableType:
    """Lay out all that is known of a partition."""
    partition, planned = found.partition, found.planned
    rows: dict[str, object] = {
        "status": partition.status + (", to be reviewed" if partition.needs_review else ""),
        "attempts": partition.attempt_count,
        "current run": partition.current_run_id,
        "active run": partition.active_run_id,
        "newest run": f"{partition.last_run_id}, {_newest(found)}",
        "error": None if partition.error_message is None else printable(partition.error_message),
        "terminal": None if found.terminal is None else _REASONS[found.terminal],
        "marked": None
        if partition.terminal_marker is None
        else printable(partition.terminal_marker),
        "next retry": "none planned"
        if planned is None
        else f"{when(planned.next_run_at, found.now)}: {planned.backoff_strategy}",
        "created": in_utc(partition.created_at),
        "updated": in_utc(partition.updated_at),
    }
    if partition.status is not PartitionStatus.FAILED:
        del rows["next retry"]
    parts: list[RenderableType] = [
        facts(
            f"Partition {partition.key}",
            {name: value for name, value in rows.items() if value is not None},
        )
    ]
    if found.verdicts:
        parts += [verdict_lines(found.verdicts), ""]
    if found.newest.attempts:
        parts += [f"Run {partition.last_run_id}:", attempt_lines(found.newest.attempts), ""]
    return Group(*parts)


def _newest(found: InspectedPartition) -> str:
    raw = "with" if found.has_raw else "without"
    return f"{found.newest.run.status.value.replace('_', ' ')}, {raw} a raw partition"


def partition_lines(one: Partition) -> Group:
    """Lay a partition of a list out: its status and its key in one piece, and how it went."""
    below = []
    if one.active_run_id is not None:
        below.append(f"{_what_of(one)} run {one.active_run_id}")
    if one.attempt_count or one.error_message is not None:
        below.append(_went(one))
    return block(headed(one.status, str(one.key), _STYLES[one.status]), below)


def terminal_lines(one: Partition, reason: GivenUp) -> Group:
    """Lay out a failure that nothing tries again by itself, and why."""
    why = _REASONS[reason]
    if one.terminal_marker is not None:
        why += f": {printable(one.terminal_marker)}"
    return block(headed(one.status, str(one.key), _STYLES[one.status]), [why, _went(one)])


def print_touched(touched: Sequence[Partition], done: str) -> None:
    """Say what was done to partitions, and show the first few."""
    if not touched:
        people.print("No failed partition is in that range; nothing was changed.")
        return
    count = f"{len(touched):,} partition{'' if len(touched) == 1 else 's'}"
    people.print(f"{count} {done}.")
    for one in touched[:_TOUCHED_SHOWN_MAX]:
        head = headed(one.status, str(one.key), _STYLES[one.status])
        people.print(block(head, [f"{_what_of(one)} run {one.last_run_id}"]))
    if len(touched) > _TOUCHED_SHOWN_MAX:
        people.print(f"… and {len(touched) - _TOUCHED_SHOWN_MAX:,} more; --json has them all.")


def _what_of(one: Partition) -> str:
    if one.active_run_id is None:
        return "newest"
    return "reprocessed by" if one.status is PartitionStatus.SUCCESS else "waits for"


def _went(one: Partition) -> str:
    count = f"{one.attempt_count} attempt{'' if one.attempt_count == 1 else 's'}"
    return count if one.error_message is None else f"{count}: {printable(one.error_message)}"
