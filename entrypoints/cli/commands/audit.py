"""``tileferry audit``: what happened, whether the log can be trusted, and what it adds up to."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from tileferry.application.audit_reading import ReadEntry
from tileferry.domain.audit import (
    EVENT_KINDS,
    AuditEvent,
    AuditStatistics,
    ChainHead,
    alerts,
)
from tileferry.domain.checks import is_unicode
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import RetryCategory
from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag
from tileferry.entrypoints.cli.exits import ExitCode
from tileferry.entrypoints.cli.options.times import since_of
from tileferry.entrypoints.cli.output import people, print_json, reading_audit
from tileferry.entrypoints.cli.progress.reading import showing
from tileferry.entrypoints.cli.views.audit_lines import entry_json, line_of
from tileferry.entrypoints.cli.views.audit_replay import replay_json, replay_view
from tileferry.entrypoints.cli.views.audit_statistics import statistics_json, statistics_view
from tileferry.entrypoints.cli.views.audit_verification import verification_json, verification_view
from tileferry.entrypoints.config.retries import alert_rate_named, alert_thresholds

app = typer.Typer(
    name="audit",
    help="The audit log: what was retried and why, and whether the log can be trusted.",
    no_args_is_help=True,
    add_completion=False,
)
POLL_S = 1.0
LINES_MAX = 1_000_000
"""All of them are held in memory, to be shown the oldest first."""
_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")
Since = Annotated[
    str, typer.Option("--since", help="How far back: 15m, 24h, 7d, a time with its zone, or all.")
]


# tail


@app.command("tail", epilog="Example: tileferry audit tail -n 50 --category API_REQUEST --follow")
def tail_command(
    *,
    count: Annotated[
        int, typer.Option("-n", "--lines", min=0, max=LINES_MAX, help="How many entries.")
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new entries until Ctrl-C.")
    ] = False,
    category: Annotated[
        str | None, typer.Option("--category", help="Only of this category, such as API_REQUEST.")
    ] = None,
    event_type: Annotated[
        str | None, typer.Option("--event-type", help="Only of this type, such as retry_attempt.")
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show the newest entries, one line each, oldest first. Times are UTC.

    With --follow and --json every entry is an object on a line of its own.
    """
    wanted = _wanted(category, event_type)
    with reading_audit(config) as (container, reader):
        last = container.audit_log().head().sequence
        with showing(reader) as counting:
            newest = counting.newest(count, wanted, holding=_held(category, event_type))
        if json and not follow:
            print_json("tileferry.audit.tail.v1", {"entries": [*map(entry_json, newest)]})
            return
        _show_entries(newest, json=json)
        if not follow:
            return
        last = max([last, *(read.entry.sequence for read in newest)])
        while True:
            for entry in reader.entries(after=last):
                last, read = entry.sequence, ReadEntry.of(entry)
                if wanted is None or (read.event is not None and wanted(read.event)):
                    _show_entries([read], json=json)
            container.clock().sleep(POLL_S)


def _wanted(category: str | None, event_type: str | None) -> Callable[[AuditEvent], bool] | None:
    if event_type is not None and event_type not in EVENT_KINDS:
        raise InvalidValueError(
            field="--event-type",
            value=event_type,
            problem="is not a type of event",
            remedy=f"use one of {', '.join(EVENT_KINDS)}",
        )
    code = None if category is None else RetryCategory.named(category).value
    if code is None and event_type is None:
        return None
    return lambda event: (
        (event_type in {None, event.event_type})
        and (code in {None, getattr(event, "retry_category", "")})
    )


def _held(category: str | None, event_type: str | None) -> Sequence[str]:
    code = None if category is None else RetryCategory.named(category).value
    return [value for value in (code, event_type) if value is not None]


def _show_entries(entries: Sequence[ReadEntry], *, json: bool) -> None:
    for read in entries:
        if json:
            print_json("tileferry.audit.entry.v1", entry_json(read))
        elif people.is_terminal:
            people.print(line_of(read), no_wrap=True, overflow="ellipsis")
        else:
            people.print(line_of(read), soft_wrap=True)


# verify


@app.command(
    "verify", epilog="Example: tileferry audit verify --expect-head 1042:5f0c... (64 digits)"
)
def verify_command(
    *,
    expect_head: Annotated[
        str | None,
        typer.Option(
            "--expect-head",
            metavar="SEQ:HASH",
            help="A head noted earlier, elsewhere: the log must have passed through it.",
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Walk the whole chain of the log, and read every event. Exit code 3 when it is broken.

    Note the head that is printed somewhere else: with it, the next verification also finds a log
    whose end was cut off or written anew.
    """
    noted = None if expect_head is None else _head_of(expect_head)
    with reading_audit(config) as (_, reader), showing(reader) as counting:
        result = counting.verify(noted)
    if json:
        print_json("tileferry.audit.verify.v1", verification_json(result))
    else:
        people.print(verification_view(result))
    if not result.intact:
        raise typer.Exit(ExitCode.PARTIAL)


def _head_of(text: str) -> ChainHead:
    match = _HEAD.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidValueError(
            field="--expect-head",
            value=text,
            problem="is not a head of the log",
            remedy="give it as audit verify printed it: a number, a colon, 64 hex digits",
        )
    return ChainHead(sequence=int(match[1]), hash=match[2])


# stats


@app.command("stats", epilog="Example: tileferry audit stats --since 1h --alert-rate 10/min")
def stats_command(
    *,
    since: Since = "24h",
    alert_rate: Annotated[
        str | None,
        typer.Option(
            "--alert-rate",
            metavar="N/min",
            help="Alert when a minute had more retries of one category than this.",
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Add up retries by category, draw them over time, and raise alerts. Exit code 3 on an alert.

    The flag holds for every category; without it, audit.alert_retries_per_minute and
    retry.<CATEGORY>.alert_retries_per_minute of the configuration do.
    """
    flag = None if alert_rate is None else alert_rate_named(alert_rate)
    with reading_audit(config) as (container, reader):
        now = datetime.fromtimestamp(container.clock().now(), UTC)
        statistics = AuditStatistics(since=since_of(since, now=now), until=now)
        with showing(reader) as counting:
            for read in counting.since(statistics.since):
                if read.event is not None:
                    statistics.add(read.event)
        settings = container.config()
    set_up = alert_thresholds(settings.audit.alert_retries_per_minute, settings.retry)
    found = alerts(statistics, flag or set_up)
    if json:
        print_json("tileferry.audit.stats.v1", statistics_json(statistics, found))
    else:
        people.print(statistics_view(statistics, found, people))
    if found:
        raise typer.Exit(ExitCode.PARTIAL)


# replay


@app.command("replay", epilog="Example: tileferry audit replay 1042, or: audit replay corr-456")
def replay_command(
    *,
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A sequence number, a correlation id, an idempotency key, a subject."
        ),
    ],
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Make each retry decision again from what was recorded. Exit code 3 when one differs."""
    if not is_unicode(name):
        raise InvalidValueError(field="ID", value=name, problem="must be text in valid Unicode")
    with reading_audit(config) as (_, reader):
        entries = list(reader.about(name))
    if not entries:
        raise InvalidValueError(
            field="ID",
            value=name,
            problem="is not in the audit log",
            remedy="tileferry audit tail shows what is",
        )
    if json:
        print_json("tileferry.audit.replay.v1", replay_json(entries))
    else:
        people.print(replay_view(entries), soft_wrap=True)
    if any(read.event is None or read.difference is not None for read in entries):
        raise typer.Exit(ExitCode.PARTIAL)
