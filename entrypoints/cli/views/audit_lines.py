"""One entry of the audit log, on one line for people."""

from typing import Any

from attrs import frozen
from rich.text import Text

from tileferry.application.audit_reading import ReadEntry
from tileferry.domain.audit import (
    AuditEvent,
    IdempotencyUsed,
    RetryAttempted,
    RetryExhausted,
    RetrySucceeded,
    StateChanged,
    TileGivenUp,
)
from tileferry.domain.text import printable
from tileferry.entrypoints.cli.views.times import clock_time, in_seconds


@frozen
class _Line:
    what: str
    style: str
    attempt: str
    delay: str
    about: str


def short_category(code: str) -> str:
    """Leave out of a category's code what all of them begin with."""
    return printable(code.removeprefix("RETRY_").removeprefix("REPLAY_"))


def line_of(read: ReadEntry) -> Text:
    """Lay an entry out: time, number, what happened, attempt, wait, and what it is about."""
    event = read.event
    if event is None:
        when, line = "-", _Line("unreadable", "bold red", "", "", read.problem or "")
    else:
        when, line = clock_time(event.timestamp), _line(event)
    text = Text(f"{when:<19} {read.entry.sequence:>6} ")
    text.append(f"{line.what:<10}", line.style)
    if line.attempt or line.delay:
        text.append(f" {line.attempt:>4} {line.delay:>7} ")
    text.append(f" {printable(line.about)}")
    return text


def _line(event: AuditEvent) -> _Line:  # noqa: PLR0911  # one for each kind
    match event:
        case RetryAttempted():
            attempt = f"{event.attempt_number}/{event.max_attempts}"
            error = _error(event.exception_type, event.exception_message)
            return _Line(
                "retry", "yellow", attempt, in_seconds(event.delay_seconds), _call(event, error)
            )
        case RetryExhausted():
            attempt = f"{event.total_attempts}/{event.decision_record.policy.max_attempts}"
            error = _error(event.final_exception_type, event.final_exception_message)
            return _Line("gave up", "bold red", attempt, "", _call(event, error))
        case RetrySucceeded():
            waited = in_seconds(event.total_delay_seconds)
            return _Line("succeeded", "green", str(event.total_attempts), waited, _call(event, ""))
        case IdempotencyUsed():
            return _Line(f"key {event.action}", "cyan", "", "", _call(event, event.idempotency_key))
        case StateChanged():
            reason = f": {event.reason}" if event.reason else ""
            # First what happened: a narrow terminal cuts the end.
            move = f"{event.from_status or 'new'} → {event.to_status}: {event.subject}"
            actor = " ".join([event.actor, *_person(event)])
            return _Line("state", "blue", "", "", f"{move} ({event.transition} by {actor}){reason}")
        case TileGivenUp():
            reason = f": {event.last_rejection_reason}" if event.last_rejection_reason else ""
            about = f"tile {event.tile_id} of flight {event.flight_id}{reason}"
            return _Line("giveup", "bold red", str(event.attempts), "", about)
        case _:  # a kind that is new
            return _Line(event.event_type, "", "", "", "")


def _person(event: StateChanged) -> list[str]:
    """Return who it was, where that was said."""
    by = (event.additional_context or {}).get("by")
    return [by] if isinstance(by, str) else []


def _call(
    event: RetryAttempted | RetryExhausted | RetrySucceeded | IdempotencyUsed, detail: str
) -> str:
    about = f"{short_category(event.retry_category)} {event.operation}"
    return f"{about}: {detail}" if detail else about


def _error(kind: str, message: str) -> str:
    return f"{kind}: {message}" if message else kind


def entry_json(read: ReadEntry) -> dict[str, Any]:
    """Return an entry for scripts."""
    return {
        "sequence": read.entry.sequence,
        "hash": read.entry.hash,
        "event": None if read.event is None else read.event.as_json(),
        "problem": read.problem,
    }
