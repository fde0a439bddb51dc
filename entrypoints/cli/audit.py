"""``tileferry audit``: what happened, whether the log can be trusted, and what it adds up to."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from tileferry.application.audit_reader import AuditVerification
from tileferry.domain.audit import AuditStatistics, ChainHead, find_alerts
from tileferry.domain.errors import InvalidValueError, NotFoundError, Remedy
from tileferry.domain.validation import is_unicode
from tileferry.entrypoints.cli.audit_entries import render_replay, replay_to_json
from tileferry.entrypoints.cli.audit_stats import render_stats, stats_to_json
from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.counting import show_reading
from tileferry.entrypoints.cli.exit_codes import ExitCode
from tileferry.entrypoints.cli.option_types import SinceOption
from tileferry.entrypoints.cli.output import build_facts_table, open_audit, print_json, stdout
from tileferry.entrypoints.cli.parsing import parse_alert_rate, parse_since
from tileferry.entrypoints.config.retry_overrides import build_alert_thresholds

app = declare_group("The audit log: what was retried and why, and whether the log can be trusted.")
TAIL_LIMIT_MAX = 1_000_000
"""All of them are held in memory, to be shown the oldest first."""


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
            "-n", "--limit", metavar="N", min=0, max=TAIL_LIMIT_MAX, help="How many to show."
        ),
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new entries until Ctrl-C.")
    ] = False,
    category: Annotated[
        str | None,
        typer.Option(
            "--category", metavar="NAME", help="Only of this category, such as API_REQUEST."
        ),
    ] = None,
    event_type: Annotated[
        str | None,
        typer.Option(
            "--event-type", metavar="NAME", help="Only of this type, such as retry_attempt."
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show the newest entries, one line each, oldest first.

    Times are UTC. With --follow and --json every entry is an object on a line of its own.
    """
    from tileferry.entrypoints.cli import audit_tail

    audit_tail.show_tail(
        config, count=limit, follow=follow, category=category, event_type=event_type, json=json
    )


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
            help="A head that was printed earlier: the log must have passed through it.",
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Check that every entry is as it was written, and none is missing.

    It walks the whole chain and reads every event. Exit code 3 when it is broken.

    Note the head that is printed, somewhere else: given as --expect-head, it lets the next
    verification also find a log whose end was cut off or written anew.
    """
    from tileferry.entrypoints.cli import audit

    audit.verify_audit_log(config, expect_head=expect_head, json=json)


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
            help="Alert when a minute had more retries of one category than this.",
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Add up retries by category, draw them over time, and raise alerts.

    Exit code 3 on an alert. --alert-rate holds for every category; without it,
    audit.alert_retries_per_minute and retry.CATEGORY.alert_retries_per_minute of the
    configuration do.
    """
    from tileferry.entrypoints.cli import audit

    audit.show_audit_stats(config, since=since, alert_rate=alert_rate, json=json)


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
            help="A sequence number, a correlation id, an idempotency key, or a subject.",
        ),
    ],
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Make each retry decision again from what was recorded.

    Exit code 3 when one differs.
    """
    from tileferry.entrypoints.cli import audit

    audit.replay_decisions(config, name=name, json=json)


def format_head(head: ChainHead) -> str:
    """Write a head as ``--expect-head`` reads it."""
    return f"{head.sequence}:{head.hash}"


def verification_to_json(result: AuditVerification) -> dict[str, Any]:
    """Return everything for scripts."""
    problem = result.chain.problem
    return {
        "intact": result.intact,
        "checked": result.chain.checked,
        "head": format_head(result.chain.head),
        "problem": problem,
        "explanation": None if problem is None else problem.explanation,
        "broken_at": result.broken_at,
        "unreadable": result.unreadable,
        "unreadable_entries": [
            {"sequence": read.entry.sequence, "problem": read.problem} for read in result.damage
        ],
        "misfiled_entries": result.misfiled,
    }


def render_verification(result: AuditVerification) -> RenderableType:
    """Lay out what is sound, what is not, and the head to be noted."""
    chain = result.chain
    shown: dict[str, object] = {}
    shown["sound entries"] = str(chain.checked)
    if chain.problem is not None:
        where = "at its end" if result.broken_at is None else f"entry {result.broken_at}"
        shown["broken"] = f"{where}: {chain.problem.explanation}"
    if result.unreadable:
        first = result.damage[0]
        shown["no event in"] = f"{result.unreadable}, first {first.entry.sequence}: {first.problem}"
    if result.misfiled:
        numbers = ", ".join(map(str, result.misfiled))
        shown["misfiled"] = f"{numbers}: found by something that the entry does not say"
    shown["verdict"] = (
        "intact"
        if result.intact
        else "broken: somebody or something changed it; trust only the sound entries"
    )
    # Below the table and in one piece, to be copied.
    head = Text(f"head {format_head(chain.head)}", no_wrap=True, overflow="ignore")
    return Group(
        build_facts_table("Audit log", shown), head, Text("Note the head elsewhere: --expect-head.")
    )


_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


# verify


def verify_audit_log(config: Path | None, *, expect_head: str | None, json: bool) -> None:
    """Walk the chain, tell what is broken, and end with an error if anything is."""
    noted = None if expect_head is None else _parse_head(expect_head)
    with open_audit(config) as (_, reader), show_reading(reader) as counting:
        result = counting.verify(noted)
    if json:
        print_json("tileferry.audit.verify.v1", verification_to_json(result))
    else:
        stdout.print(render_verification(result))
    if not result.intact:
        raise typer.Exit(ExitCode.PARTIAL)


def _parse_head(text: str) -> ChainHead:
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


def show_audit_stats(
    config: Path | None, *, since: str, alert_rate: str | None, json: bool
) -> None:
    """Add up the retries of a stretch of time; an alert ends with an error."""
    flag = None if alert_rate is None else parse_alert_rate(alert_rate)
    with open_audit(config) as (container, reader):
        now = datetime.fromtimestamp(container.clock().now(), UTC)
        statistics = AuditStatistics(since=parse_since(since, now=now), until=now)
        with show_reading(reader) as counting:
            for read in counting.read_since(statistics.since):
                if read.event is not None:
                    statistics.add(read.event)
        settings = container.config()
    set_up = build_alert_thresholds(settings.audit.alert_retries_per_minute, settings.retry)
    found = find_alerts(statistics, flag or set_up)
    if json:
        print_json("tileferry.audit.stats.v1", stats_to_json(statistics, found))
    else:
        stdout.print(render_stats(statistics, found, stdout))
    if found:
        raise typer.Exit(ExitCode.PARTIAL)


# replay


def replay_decisions(config: Path | None, *, name: str, json: bool) -> None:
    """Make the recorded decisions again; one that differs ends with an error."""
    if not is_unicode(name):
        raise InvalidValueError(field="ID", value=name, problem="must be text in valid Unicode")
    with open_audit(config) as (_, reader):
        entries = list(reader.find_about(name))
    if not entries:
        raise NotFoundError(what="audit entry", name=name, remedy=Remedy.TAIL_AUDIT_LOG)
    if json:
        print_json("tileferry.audit.replay.v1", replay_to_json(entries))
    else:
        stdout.print(render_replay(entries), soft_wrap=True)
    if any(read.event is None or read.difference is not None for read in entries):
        raise typer.Exit(ExitCode.PARTIAL)
