"""``audit replay``: each decision with what it was made from, and how it comes out now."""

from collections.abc import Sequence
from typing import Any

from attrs import evolve
from rich.console import Group, RenderableType
from rich.text import Text

from tileferry.application.audit_reading import ReadEntry
from tileferry.domain.retry import (
    BackoffKind,
    Decision,
    DecisionRecord,
    GiveUp,
    RateLimited,
    RetryPolicy,
    RetryReason,
)
from tileferry.domain.text import printable
from tileferry.entrypoints.cli.views.audit_lines import entry_json, line_of
from tileferry.entrypoints.cli.views.times import in_seconds

_DELAY_DIGITS = 3


def replay_json(entries: Sequence[ReadEntry]) -> dict[str, Any]:
    """Return every entry with its decision, as recorded and as made again."""
    return {
        "same": all(read.event is not None and read.difference is None for read in entries),
        "decisions": sum(read.record is not None for read in entries),
        "entries": [_entry_json(read) for read in entries],
    }


def _entry_json(read: ReadEntry) -> dict[str, Any]:
    record = read.record
    if record is None:
        return {**entry_json(read), "same": None, "recomputed": None}
    again = evolve(record, decision=record.recomputed())
    same = read.difference is None
    return {**entry_json(read), "same": same, "recomputed": again.as_json()["decision"]}


def replay_view(entries: Sequence[ReadEntry]) -> RenderableType:
    """Lay out every entry, its decision below it, and the verdict at the end."""
    lines = [line for read in entries for line in _lines(read)]
    decisions = [read for read in entries if read.record is not None]
    differing = [read.entry.sequence for read in decisions if read.difference is not None]
    unreadable = [read.entry.sequence for read in entries if read.event is None]
    count = f"{len(decisions)} decision{'' if len(decisions) == 1 else 's'}"
    if differing:
        numbers = ", ".join(map(str, differing))
        lines.append(Text(f"{count} made again, and not the same: {numbers}", "bold red"))
    else:
        lines.append(Text(f"{count} made again, all the same to the byte", "green"))
    if unreadable:
        numbers = ", ".join(map(str, unreadable))
        lines.append(Text(f"could not be read: {numbers}", "bold red"))
    return Group(*lines)


def _lines(read: ReadEntry) -> list[Text]:
    lines = [line_of(read)]
    record = read.record
    if record is None:
        return lines
    lines.append(Text(f"    from      {_facts(record)}", "dim"))
    lines.append(Text(f"    policy    {policy_in_words(record.policy)}", "dim"))
    difference = read.difference
    decided = decision_in_words(record.decision, exactly=difference is not None)
    lines.append(Text(f"    decided   {decided}"))
    if difference is not None:
        again = decision_in_words(difference.recomputed, exactly=True)
        lines.append(Text(f"    differs   it comes out as: {again}", "bold red"))
    return lines


def _facts(record: DecisionRecord) -> str:
    failure = record.failure
    parts = [f"attempt {failure.attempt}", failure.error.code.replace("_", " ")]
    if isinstance(failure.error, RateLimited) and failure.error.retry_after_s is not None:
        parts[-1] += f", told to come back in {in_seconds(failure.error.retry_after_s)}"
    if failure.rate_limited:
        parts.append(f"rate limited before: {failure.rate_limited}")
    parts.append(f"{in_seconds(failure.elapsed_s)} after the start")
    if failure.budget_tokens is not None:
        parts.append(f"budget {failure.budget_tokens:g}")
    parts.append(f"key {printable(failure.key, limit=40)}")
    return ", ".join(parts)


def policy_in_words(policy: RetryPolicy) -> str:
    """Say what a policy allows, on one line."""
    power = policy.backoff is BackoffKind.POWER
    growth = "to the power" if power else f"x{policy.backoff_multiplier:g}"
    jitter = f"±{policy.jitter_factor:.0%}" if policy.jitter_enabled else "no jitter"
    deadline = "" if policy.deadline_s is None else f", deadline {in_seconds(policy.deadline_s)}"
    return (
        f"{policy.max_attempts} attempts, {in_seconds(policy.base_delay)} {growth}"
        f" up to {in_seconds(policy.max_delay)}, {jitter}{deadline}"
    )


def decision_in_words(decision: Decision, *, exactly: bool = False) -> str:
    """Say what was decided; delays are rounded, though a replay is held to their last digit."""
    if isinstance(decision, GiveUp):
        return f"give up after attempt {decision.attempts}: {decision.reason.explanation}"
    delay_s = decision.delay_s if exactly else round(decision.delay_s, _DELAY_DIGITS)
    if decision.reason is RetryReason.RETRY_AFTER:
        return f"wait {delay_s} s as it asked, at no charge"
    return f"wait {delay_s} s, then attempt {decision.attempt}"
