"""The newest entries of the audit log, and those that follow."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tileferry.application.audit_reading import AuditReader, ReadEntry
from tileferry.application.ports.clock import Clock
from tileferry.domain.audit import EVENT_KINDS, AuditEvent
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import RetryCategory
from tileferry.entrypoints.cli.output import option, people, print_json, reading_audit
from tileferry.entrypoints.cli.progress.reading import showing
from tileferry.entrypoints.cli.views.audit_lines import entry_json, line_of

POLL_S = 1.0
Wanted = Callable[[AuditEvent], bool] | None
"""Which events are shown; all, if nothing is said."""


def shown(
    config: Path | None,
    *,
    count: int,
    follow: bool,
    category: str | None,
    event_type: str | None,
    json: bool,
) -> None:
    """Show the newest, and go on with what is added if that was asked for."""
    wanted = _wanted(category, event_type)
    with reading_audit(config) as (container, reader):
        last = container.audit_log().head().sequence
        with showing(reader) as counting:
            newest = counting.newest(count, wanted, holding=_held(category, event_type))
        if json and not follow:
            print_json("tileferry.audit.tail.v1", {"entries": [*map(entry_json, newest)]})
            return
        _show_entries(newest, json=json)
        if follow:
            last = max([last, *(read.entry.sequence for read in newest)])
            _follow(reader, container.clock(), wanted, after=last, json=json)


def _follow(reader: AuditReader, clock: Clock, wanted: Wanted, *, after: int, json: bool) -> None:
    """Show what is added, until somebody interrupts."""
    last = after
    while True:
        for entry in reader.entries(after=last):
            last, read = entry.sequence, ReadEntry.of(entry)
            if wanted is None or (read.event is not None and wanted(read.event)):
                _show_entries([read], json=json)
        clock.sleep(POLL_S)


def _wanted(category: str | None, event_type: str | None) -> Wanted:
    if event_type is not None and event_type not in EVENT_KINDS:
        raise InvalidValueError(
            field="--event-type",
            value=event_type,
            problem="is not a type of event",
            remedy=f"use one of {', '.join(EVENT_KINDS)}",
        )
    code = _code(category)
    if code is None and event_type is None:
        return None
    return lambda event: (
        (event_type in {None, event.event_type})
        and (code in {None, getattr(event, "retry_category", "")})
    )


def _held(category: str | None, event_type: str | None) -> Sequence[str]:
    return [value for value in (_code(category), event_type) if value is not None]


def _code(category: str | None) -> str | None:
    with option("--category"):
        return None if category is None else RetryCategory.named(category).value


def _show_entries(entries: Sequence[ReadEntry], *, json: bool) -> None:
    for read in entries:
        if json:
            print_json("tileferry.audit.entry.v1", entry_json(read))
        elif people.is_terminal:
            people.print(line_of(read), no_wrap=True, overflow="ellipsis")
        else:
            people.print(line_of(read), soft_wrap=True)
