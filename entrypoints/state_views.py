"""Partitions for people: one with its history, or many in a table."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tileferry.application.inspection import InspectedPartition
from tileferry.domain.partitions import Partition, PartitionStatus, TerminalReason
from tileferry.domain.text import printable
from tileferry.entrypoints.output import facts, people
from tileferry.entrypoints.times import in_utc, when
from tileferry.entrypoints.work_views import attempt_lines, verdict_lines

_TOUCHED_SHOWN_MAX = 20
_KEY_CHARS_MAX = 44
_STYLES = {
    PartitionStatus.PENDING: "cyan",
    PartitionStatus.SUCCESS: "green",
    PartitionStatus.FAILED: "red",
}
_REASONS = {
    TerminalReason.MARKED: "marked",
    TerminalReason.ATTEMPTS_USED_UP: "attempts used up",
    TerminalReason.TOO_OLD: "too old",
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
        "created": f"{in_utc(partition.created_at)} UTC",
        "updated": f"{in_utc(partition.updated_at)} UTC",
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


def partitions_table(partitions: Sequence[Partition]) -> Table:
    """Lay out many partitions, a line each."""
    table = _table("partition", "status", "tries", "error", keys=partitions)
    for one in partitions:
        table.add_row(
            Text(str(one.key)),
            Text(_status(one), _STYLES[one.status]),
            str(one.attempt_count),
            Text(printable(one.error_message or "", limit=80)),
        )
    return table


def terminal_table(partitions: Sequence[tuple[Partition, TerminalReason]]) -> Table:
    """Lay out terminal failures."""
    table = _table("partition", "why", "tries", "said", keys=[one for one, _ in partitions])
    for one, reason in partitions:
        table.add_row(
            Text(str(one.key)),
            _REASONS[reason],
            str(one.attempt_count),
            Text(printable(one.terminal_marker or one.error_message or "", limit=80)),
        )
    return table


def print_touched(touched: Sequence[Partition], done: str) -> None:
    """Say what was done to partitions, and show the first few."""
    if not touched:
        people.print("No failed partition is in that range; nothing was changed.")
        return
    count = f"{len(touched):,} partition{'' if len(touched) == 1 else 's'}"
    people.print(f"{count} {done}.")
    table = _table("partition", "status", "newest run", keys=touched[:_TOUCHED_SHOWN_MAX])
    for one in touched[:_TOUCHED_SHOWN_MAX]:
        table.add_row(Text(str(one.key)), _status(one), one.last_run_id)
    people.print(table)
    if len(touched) > _TOUCHED_SHOWN_MAX:
        people.print(f"… and {len(touched) - _TOUCHED_SHOWN_MAX:,} more; --json has them all.")


def _status(one: Partition) -> str:
    reprocessing = one.status is PartitionStatus.SUCCESS and one.active_run_id is not None
    return "success, reprocessing" if reprocessing else one.status.value


def _table(*titles: str, keys: Sequence[Partition]) -> Table:
    """Make a table whose first column has room for the keys, if they are not very long."""
    longest = max((len(str(one.key)) for one in keys), default=0)
    table = Table(box=box.SIMPLE)
    for number, title in enumerate(titles):
        width = min(longest, _KEY_CHARS_MAX) if number == 0 else None
        table.add_column(title, overflow="fold", min_width=width)
    return table
