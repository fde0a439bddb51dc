"""Whether the audit log can be trusted, what it adds up to, and its decisions made again."""

import re
from datetime import UTC, datetime
from pathlib import Path

import typer

from tileferry.domain.audit import AuditStatistics, ChainHead, alerts
from tileferry.domain.checks import is_unicode
from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.cli.exits import ExitCode
from tileferry.entrypoints.cli.options.rates import alert_rate_of
from tileferry.entrypoints.cli.options.times import since_of
from tileferry.entrypoints.cli.output import people, print_json, reading_audit
from tileferry.entrypoints.cli.progress.reading import showing
from tileferry.entrypoints.cli.views.audit_replay import replay_json, replay_view
from tileferry.entrypoints.cli.views.audit_statistics import statistics_json, statistics_view
from tileferry.entrypoints.cli.views.audit_verification import verification_json, verification_view
from tileferry.entrypoints.config.retries import alert_thresholds

_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


# verify


def verified(config: Path | None, *, expect_head: str | None, json: bool) -> None:
    """Walk the chain, tell what is broken, and end with an error if anything is."""
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


def added_up(config: Path | None, *, since: str, alert_rate: str | None, json: bool) -> None:
    """Add up the retries of a stretch of time; an alert ends with an error."""
    flag = None if alert_rate is None else alert_rate_of(alert_rate)
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


def replayed(config: Path | None, *, name: str, json: bool) -> None:
    """Make the recorded decisions again; one that differs ends with an error."""
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
