"""Formats runs, attempts, verdicts and partitions for people, within 80 columns."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.partitions import Partition, PartitionGiveUpReason, PartitionStatus
from tileferry.domain.runs import (
    AttemptOutcome,
    Run,
    RunAttempt,
    RunProgress,
    RunStatus,
    is_permanent,
)
from tileferry.domain.text import format_utc, printable
from tileferry.entrypoints.cli.formatting import (
    format_clock_time,
    format_duration,
    format_rate,
    format_relative_time,
)
from tileferry.entrypoints.cli.output import build_facts_table, stdout

with import_on_call(globals()):
    from rich.console import Group, RenderableType
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

if TYPE_CHECKING:
    from tileferry.application.audit_reader import DecodedEntry
    from tileferry.application.control.queries import PartitionDetails
    from tileferry.application.ports.work import PartitionAttempt

_INDENT = 13
_AUDIT_SHOWN_MAX = 20
_UNJUDGED = {RunStatus.DISCOVERED, RunStatus.PROCESSING}
_RUN_STYLES = {
    "passed": "green",
    "needs_review": "yellow",
    "failed": "bold red",
    "error": "red",
    "lost": "red",
    "processing": "cyan",
    "under_way": "cyan",
}


def format_run(run: Run, now: datetime, progress: RunProgress | None = None) -> Group:
    """Format a run for a list: status and unwrapped id, then its work and progress."""
    head = build_heading(name_run_state(run), run.run_id, _RUN_STYLES.get(run.status.value, ""))
    below = [f"{describe_work(run)}, submitted {format_clock_time(run.submitted_date)}"]
    return build_block(head, [*below, *describe_run_state(run, now, progress)])


def describe_run_state(run: Run, now: datetime, progress: RunProgress | None) -> list[str]:
    """Return the wait, the progress and the last error of a run."""
    below = []
    if run.next_retry_at is not None:
        due = format_next_try(run.next_retry_at, now)
        below.append(due if run.next_retry_at <= now else f"retry {run.retry_count} at {due}")
    if run.status is RunStatus.PROCESSING:
        below.append(f"worker {printable(run.lease_owner or '')}")
        if progress is not None:
            below += describe_progress(progress)
    if run.error_message is not None:
        last = "last error: " if run.status in _UNJUDGED else ""
        below.append(f"{last}{printable(run.error_message)}")
    return below


def name_run_state(run: Run) -> str:
    """Return the status; a run in error that is not retried is given up."""
    return "given up" if is_permanent(run) else run.status.value


def split_progress(progress: RunProgress) -> tuple[str, str | None]:
    """Return how many tiles are done, and what the run waits for."""
    counted = "no tiles counted yet"
    if progress.tiles_total is not None:
        counted = f"{progress.tiles_done:,} of {progress.tiles_total:,} tiles"
    if progress.waiting is None:
        return counted, None
    reason = progress.waiting.partition(", at ")[0]  # the rest names one of many tiles
    return counted, printable(reason)


def describe_progress(progress: RunProgress) -> list[str]:
    """Return how far a run is, at what rate and for how long, and what it waits for."""
    counted, waiting = split_progress(progress)
    parts = [counted]
    if progress.tiles_total is not None:
        if progress.tiles_per_s is not None:
            parts.append(f"{format_rate(progress.tiles_per_s)} tiles/s")
        if progress.left_s is not None:
            parts.append(f"about {format_duration(round(progress.left_s))} left")
    lines = [", ".join(parts)]
    if waiting is not None:
        lines.append(f"waiting: {waiting}")
    return lines


def progress_to_json(progress: RunProgress | None) -> dict[str, Any] | None:
    """Return the progress with its rate and remaining time."""
    if progress is None:
        return None
    rates = {"tiles_per_s": progress.tiles_per_s, "left_s": progress.left_s}
    return {**progress.as_json(), **rates}


def format_next_try(at: datetime, now: datetime) -> str:
    """Return when a run is retried; a rescued or returned run is due immediately."""
    return format_relative_time(at, now) if at > now else "due now, waiting for a worker"


def format_attempts(attempts: Sequence[RunAttempt], now: datetime) -> Group:
    """Format a run's attempts, the first one first."""
    blocks = []
    for number, attempt in enumerate(attempts, start=1):
        head = Text(f"{f'attempt {number}':<{_INDENT}}")
        head.append(
            attempt.outcome.value.replace("_", " "), _RUN_STYLES.get(attempt.outcome.value, "")
        )
        if attempt.error_class is not None:
            head.append(f" ({attempt.error_class.replace('_', ' ')})")
        head.append(_describe_next_try(attempt))
        below = [f"{_format_span(attempt, now)}, worker {printable(attempt.worker)}"]
        if attempt.error_message is not None:
            below.append(printable(attempt.error_message))
        blocks.append(build_block(head, below))
    return Group(*blocks)


def format_verdicts(verdicts: "Sequence[PartitionAttempt]") -> Group:
    """Format the validator's verdicts, the first one first."""
    blocks = []
    for verdict in verdicts:
        head = Text(f"{f'verdict {verdict.attempt}':<{_INDENT}}")
        head.append(
            verdict.outcome.value.replace("_", " "), _RUN_STYLES.get(verdict.outcome.value, "")
        )
        head.append(f", {format_utc(verdict.judged_at)}")
        below = [f"run {verdict.run_id}"]
        if verdict.explanation is not None:
            below.append(printable(verdict.explanation))
        blocks.append(build_block(head, below))
    return Group(*blocks)


def format_sentences(story: Sequence[str]) -> Table:
    """Format sentences, one below the other."""
    lines = Table.grid(padding=(0, 1))
    lines.add_column()
    lines.add_column(overflow="fold")
    for sentence in story:
        lines.add_row("-", Text(sentence))
    return lines


def render_audit_entries(entries: "Sequence[DecodedEntry]") -> RenderableType:
    """Render entries of the audit log; decisions are recomputed.

    A retry of a run or partition is in the log twice: as a state change, and as a retry of its
    category. The state change says more, so the other is left out.
    """
    from tileferry.entrypoints.cli.audit_entries import format_entry, render_replay

    told = {
        id(read)
        for before, read in pairwise(entries)
        if read.record is not None and read.record == before.record
    }
    shown = [read for read in entries if id(read) not in told][-_AUDIT_SHOWN_MAX:]
    if any(read.record is not None for read in shown):
        return render_replay(shown)
    return Group(*map(format_entry, shown))


def describe_work(run: Run) -> str:
    """Return what a run does, from the names in its payload; only its worker validates them."""
    names = ("customer_id", "query_name", "logical_date", "flight_id")
    parts = [str(run.payload[name]) for name in names if name in run.payload]
    what, _, _ = run.kind.value.partition("_")
    return printable(f"{what} {'/'.join([run.source, *parts])}")


def _describe_next_try(attempt: RunAttempt) -> str:
    if attempt.outcome not in {AttemptOutcome.ERROR, AttemptOutcome.LOST, AttemptOutcome.RELEASED}:
        return ""
    if attempt.outcome is AttemptOutcome.RELEASED:
        return ", queued again"
    if attempt.delay_s is None:
        return ", given up"
    return (
        f", next retry after {format_duration(attempt.delay_s)}" if attempt.delay_s else ", due now"
    )


def _format_span(attempt: RunAttempt, now: datetime) -> str:
    began = format_utc(attempt.began_at)
    if attempt.ended_at is None:
        return f"{began}, running for {format_duration((now - attempt.began_at).total_seconds())}"
    return f"{began}, {format_duration((attempt.ended_at - attempt.began_at).total_seconds())}"


def build_heading(first: str, name: str, style: str = "") -> Text:
    """Return the head of a block: a word and an unwrapped name."""
    head = Text(f"{first:<{_INDENT - 1}} ", style)
    head.append(name, "bold")
    return head


def build_block(head: Text, below: Sequence[str]) -> Group:
    """Format lines below their head; long lines wrap, and nothing is cut off."""
    head.overflow = "fold"
    return Group(head, *(Padding(Text(line), (0, 0, 0, _INDENT), expand=False) for line in below))


_TOUCHED_SHOWN_MAX = 20
_PARTITION_STYLES = {
    PartitionStatus.PENDING: "cyan",
    PartitionStatus.SUCCESS: "green",
    PartitionStatus.FAILED: "red",
}
TERMINAL_REASONS = {
    PartitionGiveUpReason.MARKED: "marked",
    PartitionGiveUpReason.ATTEMPTS_USED_UP: "attempts used up",
    PartitionGiveUpReason.TOO_OLD: "too old",
    PartitionGiveUpReason.ABANDONED: "abandoned: its run was given up",
}


def build_partition_facts(found: "PartitionDetails") -> dict[str, object]:
    """Return the facts about a partition, by name."""
    partition, planned = found.partition, found.planned
    rows: dict[str, object] = {
        "status": partition.status + (", needs review" if partition.needs_review else ""),
        "attempts": partition.attempt_count,
        "current run": partition.current_run_id,
        "active run": partition.active_run_id,
        "newest run": f"{partition.last_run_id}, {_describe_newest_run(found)}",
        "error": None if partition.error_message is None else printable(partition.error_message),
        "terminal": None if found.terminal is None else TERMINAL_REASONS[found.terminal],
        "marked": None
        if partition.terminal_marker is None
        else printable(partition.terminal_marker),
        "next retry": "none planned"
        if planned is None
        else f"{format_relative_time(planned.next_run_at, found.now)}: {planned.backoff_strategy}",
        "created": format_utc(partition.created_at),
        "updated": format_utc(partition.updated_at),
    }
    if partition.status is not PartitionStatus.FAILED:
        del rows["next retry"]
    return {name: value for name, value in rows.items() if value is not None}


def render_partition(found: "PartitionDetails") -> RenderableType:
    partition = found.partition
    parts: list[RenderableType] = [
        build_facts_table(f"Partition {partition.key}", build_partition_facts(found))
    ]
    if found.verdicts:
        parts += [format_verdicts(found.verdicts), ""]
    if found.newest.attempts:
        parts += [
            f"Run {partition.last_run_id}:",
            format_attempts(found.newest.attempts, found.now),
            "",
        ]
    return Group(*parts)


def _describe_newest_run(found: "PartitionDetails") -> str:
    raw = "" if found.has_raw else "; the raw sink has no raw partition for it"
    return f"{found.newest.run.status.value.replace('_', ' ')}{raw}"


def format_partition(one: Partition) -> Group:
    """Format a partition for a list: status and unwrapped key, then its outcome."""
    below = []
    if one.active_run_id is not None:
        below.append(f"{_describe_run_role(one)} run {one.active_run_id}")
    if one.attempt_count or one.error_message is not None:
        below.append(_describe_attempts(one))
    return build_block(
        build_heading(one.status, str(one.key), _PARTITION_STYLES[one.status]), below
    )


def format_terminal(one: Partition, reason: PartitionGiveUpReason) -> Group:
    """Format a partition that is not retried automatically, with the reason."""
    why = TERMINAL_REASONS[reason]
    if one.terminal_marker is not None:
        why += f": {printable(one.terminal_marker)}"
    return build_block(
        build_heading(one.status, str(one.key), _PARTITION_STYLES[one.status]),
        [why, _describe_attempts(one)],
    )


def print_changed(touched: Sequence[Partition], done: str) -> None:
    """Print what was done to how many partitions, and the first few of them."""
    if not touched:
        stdout.print("No failed partitions in that range; nothing was changed.")
        return
    count = f"{len(touched):,} partition{'' if len(touched) == 1 else 's'}"
    stdout.print(f"{count} {done}.")
    for one in touched[:_TOUCHED_SHOWN_MAX]:
        head = build_heading(one.status, str(one.key), _PARTITION_STYLES[one.status])
        stdout.print(build_block(head, [f"{_describe_run_role(one)} run {one.last_run_id}"]))
    if len(touched) > _TOUCHED_SHOWN_MAX:
        stdout.print(f"… and {len(touched) - _TOUCHED_SHOWN_MAX:,} more; --json has them all.")


def _describe_run_role(one: Partition) -> str:
    if one.active_run_id is None:
        return "newest"
    return "reprocessed by" if one.status is PartitionStatus.SUCCESS else "waiting for"


def _describe_attempts(one: Partition) -> str:
    count = f"{one.attempt_count} attempt{'' if one.attempt_count == 1 else 's'}"
    return count if one.error_message is None else f"{count}: {printable(one.error_message)}"
