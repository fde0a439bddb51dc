"""Formats entries of the audit log: one line for people, JSON for scripts, and replays."""

from collections.abc import Sequence
from typing import Any

from attrs import evolve, frozen

from tileferry.domain.audit import (
    AlertChanged,
    AuditEvent,
    CallFailed,
    EventsLost,
    IdempotencyOutcome,
    IdempotencyUsed,
    LossCause,
    RetryAttempted,
    RetrySucceeded,
    StateChanged,
    TileGivenUp,
)
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.retry import (
    Decision,
    DecisionRecord,
    GiveUp,
    RateLimited,
    RetryReason,
    UnreplayableDecision,
)
from tileferry.domain.text import format_utc, printable
from tileferry.entrypoints.cli.formatting import (
    describe_policy,
    format_clock_time,
    format_duration,
)

with import_on_call(globals()):
    from rich.console import Group, RenderableType
    from rich.text import Text

    from tileferry.application.audit_reader import DecodedEntry


@frozen
class EntryLine:
    """An entry on one line, in parts."""

    what: str
    style: str
    attempt: str
    delay: str
    about: str


def shorten_category(code: str) -> str:
    """Return a category's code without the common prefix."""
    return printable(code.removeprefix("RETRY_").removeprefix("REPLAY_"))


def format_entry(read: DecodedEntry) -> Text:
    """Format an entry: time, number, event, attempt, wait, and subject."""
    line = describe_entry(read)
    when = "-" if read.event is None else format_clock_time(read.event.timestamp)
    text = Text(f"{when:<19} {read.entry.sequence:>6} ")
    text.append(f"{line.what:<10}", line.style)
    if line.attempt or line.delay:
        text.append(f" {line.attempt:>4} {line.delay:>7} ")
    text.append(f" {printable(line.about)}")
    return text


def describe_entry(read: DecodedEntry) -> EntryLine:
    """Return what an entry says."""
    if read.event is None:
        return EntryLine("unreadable", "bold red", "", "", read.problem or "")
    return _describe_event(read.event)


def _describe_event(event: AuditEvent) -> EntryLine:  # noqa: PLR0911  # one return per kind
    match event:
        case RetryAttempted():
            attempt = f"{event.attempt_number}/{event.max_attempts}"
            error = _format_error(event.exception_type, event.exception_message)
            return EntryLine(
                "retry",
                "yellow",
                attempt,
                format_duration(event.delay_seconds),
                _format_call(event, error),
            )
        case CallFailed():
            attempt = f"{event.total_attempts}/{event.decision_record.policy.max_attempts}"
            error = _format_error(event.final_exception_type, event.final_exception_message)
            what = "gave up" if event.is_retryable else "failed"
            return EntryLine(what, "bold red", attempt, "", _format_call(event, error))
        case RetrySucceeded():
            waited = format_duration(event.total_delay_seconds)
            return EntryLine(
                "succeeded", "green", str(event.total_attempts), waited, _format_call(event, "")
            )
        case IdempotencyUsed():
            failure = " (failure)" if event.outcome is IdempotencyOutcome.FAILURE else ""
            about = _format_call(event, f"{event.idempotency_key}{failure}")
            return EntryLine(f"key {event.action}", "cyan", "", "", about)
        case StateChanged():
            reason = f": {event.reason}" if event.reason else ""
            # The event comes first, because a narrow terminal cuts the end.
            move = f"{event.from_status or 'new'} → {event.to_status}: {event.subject}"
            actor = " ".join([event.actor, *_get_person(event)])
            return EntryLine(
                "state", "blue", "", "", f"{move} ({event.transition} by {actor}){reason}"
            )
        case TileGivenUp():
            reason = f": {event.last_rejection_reason}" if event.last_rejection_reason else ""
            about = f"tile {event.tile_id} of flight {event.flight_id}{reason}"
            return EntryLine("giveup", "bold red", str(event.attempts), "", about)
        case AlertChanged():
            about = f"{shorten_category(event.retry_category)}: {describe_alert(event)}"
            return EntryLine(f"alert {event.state}", "bold red", "", "", about)
        case EventsLost():
            return EntryLine("gap", "bold red", "", "", describe_gap(event))
        case _:  # a kind added by a newer version
            return EntryLine(event.event_type, "", "", "", "")


def describe_alert(event: AlertChanged) -> str:
    """Return the retries behind an alert, and the limit."""
    limit = event.threshold_per_minute
    return (
        f"{event.retries} retries in {format_duration(event.window_seconds)},"
        f" {'no limit' if limit is None else f'limit {limit:g} per minute'}"
    )


def describe_gap(gap: EventsLost) -> str:
    """Return how many events a sink lost, when and why."""
    least = "at least " if gap.cause is LossCause.DAMAGED else ""
    return (
        f"{least}{gap.events} event{'' if gap.events == 1 else 's'} of sink {gap.sink} lost"
        f" between {format_utc(gap.lost_from)} and {format_utc(gap.lost_until)}:"
        f" {gap.cause.explanation}"
    )


def _get_person(event: StateChanged) -> list[str]:
    """Return the operator, if one is recorded."""
    by = (event.additional_context or {}).get("by")
    return [by] if isinstance(by, str) else []


def _format_call(
    event: RetryAttempted | CallFailed | RetrySucceeded | IdempotencyUsed, detail: str
) -> str:
    about = f"{shorten_category(event.retry_category)} {event.operation}"
    return f"{about}: {detail}" if detail else about


def _format_error(kind: str, message: str) -> str:
    return f"{kind}: {message}" if message else kind


def entry_to_json(read: DecodedEntry) -> dict[str, Any]:
    return {
        "sequence": read.entry.sequence,
        "hash": read.entry.hash,
        "event": None if read.event is None else read.event.as_json(),
        "problem": read.problem,
    }


_DELAY_DIGITS = 3


def replay_to_json(entries: Sequence[DecodedEntry]) -> dict[str, Any]:
    """Return every entry with its decision, as recorded and as recomputed."""
    return {
        "same": all(read.event is not None and read.difference is None for read in entries),
        "decisions": sum(
            read.record is not None and not _is_unreplayable(read) for read in entries
        ),
        "entries": [_replay_entry_to_json(read) for read in entries],
    }


def _replay_entry_to_json(read: DecodedEntry) -> dict[str, Any]:
    record = read.record
    if record is None:
        return {**entry_to_json(read), "same": None, "recomputed": None}
    found = read.difference
    if isinstance(found, UnreplayableDecision):
        body = {**entry_to_json(read), "problem": found.problem}
        return {**body, "same": None, "recomputed": None}
    again = record if found is None else evolve(record, decision=found.recomputed)
    recomputed = again.as_json()["decision"]
    return {**entry_to_json(read), "same": found is None, "recomputed": recomputed}


def render_replay(entries: Sequence[DecodedEntry]) -> RenderableType:
    """Render every entry with its decision, and the result of the replay."""
    lines = [line for read in entries for line in _render_entry(read)]
    _, sentences = describe_replay(entries)
    lines += [
        Text(sentence, "green" if sentence.endswith("identical") else "bold red")
        for sentence in sentences
    ]
    return Group(*lines)


def describe_replay(entries: Sequence[DecodedEntry]) -> tuple[bool, list[str]]:
    """Return whether all decisions are the same again, and the result in sentences."""
    recorded = [read for read in entries if read.record is not None]
    decisions = [read for read in recorded if not _is_unreplayable(read)]
    differing = [read for read in decisions if read.difference is not None]
    unreplayable = [read for read in recorded if _is_unreplayable(read)]
    unreadable = [read for read in entries if read.event is None]
    count = f"{len(decisions)} decision{'' if len(decisions) == 1 else 's'} recomputed"
    sentences = [
        f"{count}; these differ: {_format_numbers(differing)}"
        if differing
        else f"{count}, all identical"
    ]
    if unreplayable:
        sentences.append(f"cannot be replayed: {_format_numbers(unreplayable)}")
    if unreadable:
        sentences.append(f"unreadable: {_format_numbers(unreadable)}")
    return not (differing or unreplayable or unreadable), sentences


def _format_numbers(entries: Sequence[DecodedEntry]) -> str:
    return ", ".join(str(read.entry.sequence) for read in entries)


def _is_unreplayable(read: DecodedEntry) -> bool:
    return isinstance(read.difference, UnreplayableDecision)


def _render_entry(read: DecodedEntry) -> list[Text]:
    styles = {"from": "dim", "policy": "dim", "decided": ""}
    return [
        format_entry(read),
        *(
            Text(f"    {name:<9} {words}", styles.get(name, "bold red"))
            for name, words in describe_steps(read).items()
        ),
    ]


def describe_steps(read: DecodedEntry) -> dict[str, str]:
    """Return how a decision was made: its inputs, the policy, the result, and a difference."""
    record = read.record
    if record is None:
        return {}
    name = "" if record.policy_name is None else f"{printable(record.policy_name)}: "
    difference = read.difference
    steps = {
        "from": _describe_failure(record),
        "policy": f"{name}{describe_policy(record.policy)}",
        "decided": describe_decision(record.decision, exactly=difference is not None),
    }
    if isinstance(difference, UnreplayableDecision):
        steps["unknown"] = difference.problem
    elif difference is not None:
        again = describe_decision(difference.recomputed, exactly=True)
        steps["differs"] = f"recomputed: {again}"
    return steps


def _describe_failure(record: DecisionRecord) -> str:
    failure = record.failure
    parts = [f"attempt {failure.attempt}", failure.error.code.replace("_", " ")]
    if isinstance(failure.error, RateLimited) and failure.error.retry_after_s is not None:
        parts[-1] += f", retry after {format_duration(failure.error.retry_after_s)}"
    if failure.rate_limited:
        parts.append(f"{failure.rate_limited} rate-limited waits before")
    parts.append(f"{format_duration(failure.elapsed_s)} after the start")
    if failure.budget_tokens is not None:
        parts.append(f"budget {failure.budget_tokens:g}")
    parts.append(f"key {printable(failure.key, limit=40)}")
    return ", ".join(parts)


def describe_decision(decision: Decision, *, exactly: bool = False) -> str:
    """Return a decision in words; delays are rounded unless ``exactly`` is set."""
    if isinstance(decision, GiveUp):
        return f"give up after attempt {decision.attempts}: {decision.reason.explanation}"
    delay_s = decision.delay_s if exactly else round(decision.delay_s, _DELAY_DIGITS)
    if decision.reason is RetryReason.RETRY_AFTER:
        return f"wait {delay_s} s as requested by the server, not counted as an attempt"
    if decision.reason is RetryReason.RETRY_BUDGET:
        return f"wait {delay_s} s for the retry budget, then attempt {decision.attempt}"
    return f"wait {delay_s} s, then attempt {decision.attempt}"
