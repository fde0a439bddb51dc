"""What a worker prints: a line when a run starts and ends, and the runs that did not finish."""

from collections.abc import Sequence
from typing import Any

from attrs import frozen
from rich.console import Console

from tileferry.application.ports.progress import (
    ProgressEvent,
    RunFinished,
    RunStarted,
    WorkerIdle,
)
from tileferry.domain.runs import RunStatus
from tileferry.domain.text import format_utc, printable
from tileferry.entrypoints.cli.formatting import format_duration, time_to_json

UNFINISHED_SHOWN_MAX = 20
_END_WORDS = {
    RunStatus.DISCOVERED: "returned to the queue",
    RunStatus.PASSED: "passed",
    RunStatus.NEEDS_REVIEW: "needs review",
    RunStatus.FAILED: "was rejected",
    RunStatus.ERROR: "was given up",
}


@frozen
class RunLinePrinter:
    """A listener that prints one line when a run starts, and one when it ends."""

    console: Console

    def __call__(self, event: ProgressEvent, /) -> None:
        match event:
            case RunStarted():
                again = f", attempt {event.attempt}" if event.attempt > 1 else ""
                what = event.kind.value.replace("_", " ")
                self.console.print(f"Run {event.run_id} started: {what}{again}.")
            case RunFinished():
                self.console.print(f"Run {event.run_id} {describe_end(event)}.")
            case WorkerIdle():
                self.console.print(_describe_idle(event))
            case _:
                pass


def describe_end(end: RunFinished) -> str:
    """Return how a run ended, after how long and with how many tiles."""
    problem = printable(end.problem or "").rstrip(".")
    took = f"after {format_duration(end.duration_s)}{_count_tiles(end)}"
    if end.is_cancelled:
        return f"was cancelled {took}"
    if end.next_retry_at is not None:
        return f"failed {took}, next attempt {format_utc(end.next_retry_at)}: {problem}"
    return f"{_END_WORDS[end.status]} {took}" + (f": {problem}" if problem else "")


def _count_tiles(end: RunFinished) -> str:
    progress = end.progress
    if progress is None or progress.tiles_total is None:
        return ""
    return f" with {progress.tiles_done:,} of {progress.tiles_total:,} tiles"


def _describe_idle(event: WorkerIdle) -> str:
    if event.wait_s > 0:
        return f"Nothing to do now; waiting {format_duration(event.wait_s)} for the next run."
    return "Runs are due and wait for a retry token; see tileferry queue gates."


def describe_unfinished(ends: Sequence[RunFinished]) -> list[str]:
    """Return the lines that say which runs did not finish, and why."""
    count = "1 run has" if len(ends) == 1 else f"{len(ends):,} runs have"
    lines = [f"{count} not finished:"]
    lines += [f"  run {end.run_id} {describe_end(end)}" for end in ends[:UNFINISHED_SHOWN_MAX]]
    if len(ends) > UNFINISHED_SHOWN_MAX:
        lines.append(f"  … and {len(ends) - UNFINISHED_SHOWN_MAX:,} more: tileferry runs list")
    return lines


def unfinished_to_json(end: RunFinished) -> dict[str, Any]:
    return {
        "run_id": end.run_id,
        "status": end.status,
        "problem": end.problem,
        "next_retry_at": time_to_json(end.next_retry_at),
    }
