"""``tileferry audit``: read, verify, summarize and replay the audit log."""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import SinceOption

if TYPE_CHECKING:
    from tileferry.application.audit_reader import DecodedEntry
    from tileferry.domain.audit import ChainHead

app = declare_group("Read, verify and replay the audit log.")
TAIL_LIMIT_MAX = 1_000_000
"""The entries are kept in memory, to show the oldest first."""
POLL_S = 1.0
_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


# tail


@app.command(
    "tail",
    epilog=format_examples(
        "tileferry audit tail --limit 50",
        "tileferry audit tail --category API_REQUEST --event-type retry_attempt",
        "tileferry audit tail --follow --json",
    ),
)
def tail_command(
    *,
    limit: Annotated[
        int,
        typer.Option(
            "-n", "--limit", metavar="N", min=0, max=TAIL_LIMIT_MAX, help="Show at most N."
        ),
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep showing new entries until Ctrl-C.")
    ] = False,
    category: Annotated[
        str | None,
        typer.Option("--category", metavar="NAME", help="Only this category, such as API_REQUEST."),
    ] = None,
    event_type: Annotated[
        str | None,
        typer.Option(
            "--event-type", metavar="NAME", help="Only this event type, such as retry_attempt."
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show the newest entries, one line each, oldest first.

    Times are in UTC. With --follow and --json, each entry is one JSON object on its own line.
    """
    from tileferry.application.audit_reader import DecodedEntry
    from tileferry.domain.audit import EVENT_KINDS, AuditEvent
    from tileferry.domain.errors import InvalidValueError
    from tileferry.domain.retry import RetryCategory
    from tileferry.entrypoints.cli.audit_entries import entry_to_json
    from tileferry.entrypoints.cli.output import blame_option, open_installation, print_json
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView

    if event_type is not None and event_type not in EVENT_KINDS:
        raise InvalidValueError(
            field="--event-type",
            value=event_type,
            problem="is not an event type",
            remedy=f"use one of {', '.join(EVENT_KINDS)}",
        )
    with blame_option("--category"):
        code = None if category is None else RetryCategory.parse(category).value
    terms = [term for term in (code, event_type) if term is not None]

    def matches(event: AuditEvent) -> bool:
        category_code = getattr(event, "retry_category", "")
        return event_type in {None, event.event_type} and code in {None, category_code}

    wanted = matches if terms else None
    progress = ItemProgress()
    with open_installation(config, progress) as installation:
        reader = installation.audit_reader
        last = reader.log.read_head().sequence
        with ProgressView(progress):
            newest = reader.read_newest(limit, wanted, holding=terms)
        if json and not follow:
            print_json("tileferry.audit.tail.v1", {"entries": [*map(entry_to_json, newest)]})
            return
        for read in newest:
            _print_entry(read, json=json)
            last = max(last, read.entry.sequence)
        while follow:  # until Ctrl-C
            for entry in reader.iter_entries(after=last):
                last, read = entry.sequence, DecodedEntry.from_entry(entry)
                if wanted is None or (read.event is not None and wanted(read.event)):
                    _print_entry(read, json=json)
            installation.clock.sleep(POLL_S)


def _print_entry(read: "DecodedEntry", *, json: bool) -> None:
    from tileferry.entrypoints.cli.audit_entries import entry_to_json, format_entry
    from tileferry.entrypoints.cli.output import print_json, stdout

    if json:
        print_json("tileferry.audit.entry.v1", entry_to_json(read))
    elif stdout.is_terminal:
        stdout.print(format_entry(read), overflow="fold")
    else:
        stdout.print(format_entry(read), soft_wrap=True)


# verify


@app.command(
    "verify", epilog=format_examples("tileferry audit verify", "tileferry audit verify --json")
)
def verify_command(
    *,
    expect_head: Annotated[
        str | None,
        typer.Option(
            "--expect-head",
            metavar="N:HASH",
            help="Head printed by an earlier verification; the log must contain it.",
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Verify that the audit log is unmodified and complete.

    Walks the whole hash chain and reads every event. Exit code 3 if an entry was changed or
    removed, if the log records a gap (events that were lost), or if events wait for delivery.

    Store the printed head elsewhere: with --expect-head, the next verification also detects a log
    whose end was cut off or rewritten, and exits with 3 only for gaps after that head.
    """
    from tileferry.entrypoints.cli.audit_view import render_verification, verification_to_json
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView

    noted = None if expect_head is None else _parse_head(expect_head)
    progress = ItemProgress()
    with open_installation(config, progress) as installation, ProgressView(progress):
        result = installation.audit_reader.verify(noted)
    if json:
        print_json("tileferry.audit.verify.v1", verification_to_json(result))
    else:
        stdout.print(render_verification(result))
    if not (result.intact and result.complete):
        raise typer.Exit(ExitCode.PARTIAL)


def _parse_head(text: str) -> "ChainHead":
    from tileferry.domain.audit import ChainHead
    from tileferry.domain.errors import InvalidValueError

    match = _HEAD.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidValueError(
            field="--expect-head",
            value=text,
            problem="is not a valid head",
            remedy="use it as printed by `audit verify`: a number, a colon, 64 hex digits",
        )
    return ChainHead(sequence=int(match[1]), hash=match[2])


# stats


@app.command(
    "stats",
    epilog=format_examples(
        "tileferry audit stats --since 24h",
        "tileferry audit stats --since 1h --alert-rate 10/min",
    ),
)
def stats_command(
    *,
    since: SinceOption = "24h",
    alert_rate: Annotated[
        str | None,
        typer.Option(
            "--alert-rate",
            metavar="N/min",
            help="Alert if a category had more than N retries in any minute.",
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Summarize retries by category, with a chart, alerts and gaps.

    Exit code 3 on an alert. --alert-rate applies to every category; without it, the settings
    audit.alert_retries_per_minute and retry.CATEGORY.alert_retries_per_minute apply.
    """
    from tileferry.domain.audit import AuditStatistics, find_alerts
    from tileferry.entrypoints.cli.audit_view import render_stats, stats_to_json
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout
    from tileferry.entrypoints.cli.parsing import parse_alert_rate, parse_since
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView
    from tileferry.entrypoints.config.retry_overrides import build_alert_thresholds

    thresholds = None if alert_rate is None else parse_alert_rate(alert_rate)
    progress = ItemProgress()
    with open_installation(config, progress) as installation:
        now = datetime.fromtimestamp(installation.clock.now(), UTC)
        statistics = AuditStatistics(since=parse_since(since, now=now), until=now)
        with ProgressView(progress):
            for read in installation.audit_reader.read_since(statistics.since):
                if read.event is not None:
                    statistics.add(read.event)
        settings, waiting = installation.config, installation.find_waiting_events()
    if thresholds is None:
        per_minute = settings.audit.alert_retries_per_minute
        thresholds = build_alert_thresholds(per_minute, settings.retry)
    alerts = find_alerts(statistics, thresholds)
    if json:
        print_json("tileferry.audit.stats.v1", stats_to_json(statistics, alerts, waiting))
    else:
        stdout.print(render_stats(statistics, alerts, waiting, stdout))
    if alerts:
        raise typer.Exit(ExitCode.PARTIAL)


# replay


@app.command(
    "replay", epilog=format_examples("tileferry audit replay 1", "tileferry audit replay 1 --json")
)
def replay_command(
    *,
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="Sequence number, correlation id, idempotency key or subject.",
        ),
    ],
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Recompute retry decisions from their recorded inputs.

    Exit code 3 if one differs from what was recorded.
    """
    from tileferry.domain.errors import InvalidValueError, NotFoundError, Remedy
    from tileferry.domain.validation import is_unicode
    from tileferry.entrypoints.cli.audit_entries import render_replay, replay_to_json
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout

    if not is_unicode(name):
        raise InvalidValueError(field="ID", value=name, problem="is not valid Unicode")
    with open_installation(config) as installation:
        entries = list(installation.audit_reader.find_about(name))
    if not entries:
        raise NotFoundError(what="audit entry", name=name, remedy=Remedy.TAIL_AUDIT_LOG)
    if json:
        print_json("tileferry.audit.replay.v1", replay_to_json(entries))
    else:
        stdout.print(render_replay(entries), soft_wrap=True)
    if any(read.event is None or read.difference is not None for read in entries):
        raise typer.Exit(ExitCode.PARTIAL)
