"""Runs, attempts and verdicts as lines for people; each fits a terminal of 80 columns."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tileferry.application.audit_reading import ReadEntry
from tileferry.application.ports.work import PartitionAttempt
from tileferry.domain.runs import AttemptOutcome, Run, RunAttempt, RunStatus, is_permanent
from tileferry.domain.text import in_utc, printable
from tileferry.entrypoints.cli.views.audit_lines import line_of
from tileferry.entrypoints.cli.views.audit_replay import replay_view
from tileferry.entrypoints.cli.views.times import clock_time, in_seconds, when

_INDENT = 13
_AUDIT_SHOWN_MAX = 20
_STYLES = {
    "passed": "green",
    "needs_review": "yellow",
    "failed": "bold red",
    "error": "red",
    "lost": "red",
    "processing": "cyan",
    "under_way": "cyan",
}


def run_lines(run: Run, now: datetime) -> Group:
    """Lay a run of a list out: its status and its name in one piece, what it does, and how."""
    status = "given up" if is_permanent(run) else run.status.value
    head = headed(status, run.run_id, _STYLES.get(run.status.value, ""))
    below = [f"{work_of(run)}, submitted {clock_time(run.submitted_date)}"]
    if run.next_retry_at is not None:
        due = next_try(run.next_retry_at, now)
        below.append(due if run.next_retry_at <= now else f"retry {run.retry_count} at {due}")
    if run.status is RunStatus.PROCESSING:
        below.append(f"worker {printable(run.lease_owner or '')}")
    if run.error_message is not None:
        below.append(printable(run.error_message))
    return block(head, below)


def next_try(at: datetime, now: datetime) -> str:
    """Say when a run is tried again; one that was rescued or given back is due at once."""
    return when(at, now) if at > now else "due now, waits for a worker"


def attempt_lines(attempts: Sequence[RunAttempt]) -> Group:
    """Lay out a run's attempts, the first one first."""
    blocks = []
    for number, attempt in enumerate(attempts, start=1):
        head = Text(f"{f'attempt {number}':<{_INDENT}}")
        head.append(attempt.outcome.value.replace("_", " "), _STYLES.get(attempt.outcome.value, ""))
        if attempt.error_class is not None:
            head.append(f" ({attempt.error_class.replace('_', ' ')})")
        head.append(_next_try(attempt))
        below = [f"{_span(attempt)}, worker {printable(attempt.worker)}"]
        if attempt.error_message is not None:
            below.append(printable(attempt.error_message))
        blocks.append(block(head, below))
    return Group(*blocks)


def verdict_lines(verdicts: Sequence[PartitionAttempt]) -> Group:
    """Lay out the validator's verdicts, the first one first."""
    blocks = []
    for verdict in verdicts:
        head = Text(f"{f'verdict {verdict.attempt}':<{_INDENT}}")
        head.append(verdict.outcome.value.replace("_", " "), _STYLES.get(verdict.outcome.value, ""))
        head.append(f", {in_utc(verdict.judged_at)}")
        below = [f"run {verdict.run_id}"]
        if verdict.explanation is not None:
            below.append(printable(verdict.explanation))
        blocks.append(block(head, below))
    return Group(*blocks)


def story_lines(story: Sequence[str]) -> Table:
    """Lay out sentences, one below the other."""
    lines = Table.grid(padding=(0, 1))
    lines.add_column()
    lines.add_column(overflow="fold")
    for sentence in story:
        lines.add_row("-", Text(sentence))
    return lines


def audit_lines(entries: Sequence[ReadEntry]) -> RenderableType:
    """Lay out what the audit log tells; decisions are made again."""
    shown = entries[-_AUDIT_SHOWN_MAX:]
    if any(read.record is not None for read in shown):
        return replay_view(shown)
    return Group(*map(line_of, shown))


def work_of(run: Run) -> str:
    """Say what a run does, from the names in its payload; its worker looks more closely."""
    names = ("customer_id", "query_name", "logical_date", "flight_id")
    parts = [str(run.payload[name]) for name in names if name in run.payload]
    what, _, _ = run.kind.value.partition("_")
    return printable(f"{what} {'/'.join([run.source, *parts])}")


def _next_try(attempt: RunAttempt) -> str:
    if attempt.outcome not in {AttemptOutcome.ERROR, AttemptOutcome.LOST, AttemptOutcome.RELEASED}:
        return ""
    if attempt.delay_s is None:
        return ", given up"
    return f", next try after {in_seconds(attempt.delay_s)}" if attempt.delay_s else ", due at once"


def _span(attempt: RunAttempt) -> str:
    began = in_utc(attempt.began_at)
    if attempt.ended_at is None:
        return f"{began}, still at it"
    return f"{began}, {in_seconds((attempt.ended_at - attempt.began_at).total_seconds())}"


def headed(first: str, name: str, style: str = "") -> Text:
    """Begin a block: a word, and the name of what it is about in one piece."""
    head = Text(f"{first:<{_INDENT - 1}} ", style)
    head.append(name, "bold")
    return head


def block(head: Text, below: Sequence[str]) -> Group:
    """Lay lines out below their head; what is too long is folded, and nothing is cut off."""
    head.overflow = "fold"
    return Group(head, *(Padding(Text(line), (0, 0, 0, _INDENT), expand=False) for line in below))
