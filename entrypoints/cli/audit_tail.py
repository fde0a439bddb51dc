"""The newest entries of the audit log, and those that follow."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tileferry.application.audit_reader import AuditReader, DecodedEntry
from tileferry.application.ports.clock import Clock
from tileferry.domain.audit import EVENT_KINDS, AuditEvent
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import RetryCategory
from tileferry.entrypoints.cli.audit_entries import entry_to_json, format_entry
from tileferry.entrypoints.cli.output import blame_option, open_audit, print_json, stdout
from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView

POLL_S = 1.0
TailFilter = Callable[[AuditEvent], bool] | None
"""Which events are shown; all, if nothing is said."""


def show_tail(
    config: Path | None,
    *,
    count: int,
    follow: bool,
    category: str | None,
    event_type: str | None,
    json: bool,
) -> None:
    """Show the newest, and go on with what is added if that was asked for."""
    wanted = _build_filter(category, event_type)
    progress = ItemProgress()
    with open_audit(config, progress) as (container, reader):
        last = container.audit_log().read_head().sequence
        with ProgressView(progress):
            newest = reader.read_newest(
                count, wanted, holding=_list_search_terms(category, event_type)
            )
        if json and not follow:
            print_json("tileferry.audit.tail.v1", {"entries": [*map(entry_to_json, newest)]})
            return
        _print_entries(newest, json=json)
        if follow:
            last = max([last, *(read.entry.sequence for read in newest)])
            _follow(reader, container.clock(), wanted, after=last, json=json)


def _follow(
    reader: AuditReader, clock: Clock, wanted: TailFilter, *, after: int, json: bool
) -> None:
    """Show what is added, until somebody interrupts."""
    last = after
    while True:
        for entry in reader.iter_entries(after=last):
            last, read = entry.sequence, DecodedEntry.from_entry(entry)
            if wanted is None or (read.event is not None and wanted(read.event)):
                _print_entries([read], json=json)
        clock.sleep(POLL_S)


def _build_filter(category: str | None, event_type: str | None) -> TailFilter:
    if event_type is not None and event_type not in EVENT_KINDS:
        raise InvalidValueError(
            field="--event-type",
            value=event_type,
            problem="is not a type of event",
            remedy=f"use one of {', '.join(EVENT_KINDS)}",
        )
    code = _parse_category(category)
    if code is None and event_type is None:
        return None
    return lambda event: (
        (event_type in {None, event.event_type})
        and (code in {None, getattr(event, "retry_category", "")})
    )


def _list_search_terms(category: str | None, event_type: str | None) -> Sequence[str]:
    return [value for value in (_parse_category(category), event_type) if value is not None]


def _parse_category(category: str | None) -> str | None:
    with blame_option("--category"):
        return None if category is None else RetryCategory.parse(category).value


def _print_entries(entries: Sequence[DecodedEntry], *, json: bool) -> None:
    for read in entries:
        if json:
            print_json("tileferry.audit.entry.v1", entry_to_json(read))
        elif stdout.is_terminal:
            stdout.print(format_entry(read), no_wrap=True, overflow="ellipsis")
        else:
            stdout.print(format_entry(read), soft_wrap=True)
