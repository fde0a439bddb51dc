"""Renders the audit log as a whole: retry statistics, and the result of its verification."""

from collections.abc import Sequence
from typing import Any

from tileferry.application.audit_reader import AuditVerification
from tileferry.application.ports.audit import OutboxStatus
from tileferry.domain.audit import (
    AuditStatistics,
    CategoryStatistics,
    ChainHead,
    EventsLost,
    RetryAlert,
)
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.text import format_utc, printable
from tileferry.entrypoints.cli.audit_entries import describe_gap, shorten_category
from tileferry.entrypoints.cli.formatting import format_clock_time, format_duration, time_to_json
from tileferry.entrypoints.cli.output import build_facts_table

with import_on_call(globals()):
    from rich.console import Console, Group, RenderableType
    from rich.table import Table
    from rich.text import Text

    from tileferry.entrypoints.cli.tables import FittingTable

# verify


def format_head(head: ChainHead) -> str:
    """Format a head as ``--expect-head`` reads it."""
    return f"{head.sequence}:{head.hash}"


def verification_to_json(result: AuditVerification) -> dict[str, Any]:
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
        "complete": result.complete,
        "lost_events": result.lost,
        "gaps": [
            {"sequence": read.entry.sequence, **gap_to_json(read.event)}
            for read in result.gaps
            if isinstance(read.event, EventsLost)
        ],
        "undelivered": [outbox_to_json(status) for status in result.waiting],
    }


def gap_to_json(gap: EventsLost) -> dict[str, Any]:
    return {
        "sink": gap.sink,
        "events": gap.events,
        "lost_from": time_to_json(gap.lost_from),
        "lost_until": time_to_json(gap.lost_until),
        "cause": gap.cause,
    }


def outbox_to_json(status: OutboxStatus) -> dict[str, Any]:
    return {
        "outbox": status.name,
        "events": status.events,
        "damaged_records": status.damaged,
        "lost_events": 0 if status.lost is None else status.lost.events,
    }


def describe_verification(result: AuditVerification) -> dict[str, object]:
    """Return the counts, the problems and the verdict, by name."""
    chain = result.chain
    shown: dict[str, object] = {}
    shown["valid entries"] = str(chain.checked)
    if chain.problem is not None:
        where = "at its end" if result.broken_at is None else f"entry {result.broken_at}"
        shown["broken"] = f"{where}: {chain.problem.explanation}"
    if result.unreadable:
        first = result.damage[0]
        shown["unreadable"] = f"{result.unreadable}, first {first.entry.sequence}: {first.problem}"
    if result.misfiled:
        numbers = ", ".join(map(str, result.misfiled))
        shown["misfiled"] = f"{numbers}: indexed under terms that the entry does not contain"
    if result.gaps:
        shown["gaps"] = "\n".join(
            f"entry {read.entry.sequence}: {describe_gap(read.event)}"
            for read in result.gaps
            if isinstance(read.event, EventsLost)
        )
    if result.waiting:
        shown["undelivered"] = "\n".join(status.describe() for status in result.waiting)
    shown["verdict"] = _describe_verdict(result)
    return shown


def render_verification(result: AuditVerification) -> RenderableType:
    """Render the counts, the problems, and the head for the operator to store."""
    # Below the table, so that it can be copied; it is never cut.
    head = Text(f"head {format_head(result.chain.head)}", overflow="fold")
    return Group(
        build_facts_table("Audit log", describe_verification(result)),
        head,
        Text("Store this hash elsewhere; check it later with --expect-head."),
    )


def _describe_verdict(result: AuditVerification) -> str:
    if not result.intact:
        return "broken: the log was modified; trust only the valid entries"
    missing = []
    if result.lost_lately:
        missing.append(f"{result.lost_lately} lost")
    if result.waiting:
        missing.append("some are not delivered yet")
    return f"intact, but events are missing: {', '.join(missing)}" if missing else "intact"


# stats

_BLOCKS = "▁▂▃▄▅▆▇█"


_ASCII = ".:-=+*%#"


_NONE = "-"


_CHART_MAX = 60


_CHART_MIN = 10


def render_stats(
    statistics: AuditStatistics,
    found: Sequence[RetryAlert],
    waiting: Sequence[OutboxStatus],
    console: Console,
) -> RenderableType:
    missing = [
        *(Text(f"GAP  {describe_gap(gap)}", "bold red") for gap in statistics.gaps),
        *(Text(f"UNDELIVERED  {status.describe()}", "yellow") for status in waiting),
    ]
    shown = _render_retries(statistics, found, console)
    return Group(shown, Text(), *missing) if missing else shown


def _render_retries(
    statistics: AuditStatistics, found: Sequence[RetryAlert], console: Console
) -> RenderableType:
    parts: list[RenderableType] = [
        Text(
            f"{format_clock_time(statistics.begins)} to {format_utc(statistics.until)},"
            f" {statistics.events:,} event{'' if statistics.events == 1 else 's'}"
        )
    ]
    tallies = [tally for tally in statistics.by_category.values() if tally.attempts]
    keyed = [
        t for t in statistics.by_category.values() if t.idempotency_hits + t.idempotency_records
    ]
    if not tallies and not keyed:
        return Group(*parts, Text("No retries."))
    if tallies:
        parts += [Text(), _build_retries_table(statistics, tallies)]
    if keyed:
        parts += [Text(), _build_keys_table(keyed)]
    if any(tally.retries for tally in tallies):
        drawn = [tally for tally in tallies if tally.retries]
        parts += [Text(), _draw_chart(statistics, drawn, console)]
    parts += [Text(), *(_format_alert(alert) for alert in found)] if found else []
    return Group(*parts)


def _build_table(title: str, *headings: str, drop: Sequence[str]) -> Table:
    table = FittingTable(
        drop=drop,
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,  # borders would not fit into 80 columns
        header_style="underline",
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("category", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _build_retries_table(
    statistics: AuditStatistics, tallies: Sequence[CategoryStatistics]
) -> Table:
    table = _build_table(
        "Retries",
        *("calls", "tries", "ok", "mean", "failed", "/min", "peak", "wait", "longest"),
        drop=("/min", "peak", "mean", "longest", "wait", "tries"),
    )
    for tally in tallies:
        _add_tally(table, statistics, tally, shorten_category(tally.category))
        policies = statistics.find_policies(tally.category)
        for name, part in policies.items() if len(policies) > 1 else ():
            _add_tally(table, statistics, part, f"  {printable(name)}")
    table.caption = "calls: with at least one retry; ok, mean: of finished calls; wait: mean"
    table.caption_justify = "left"
    return table


def _add_tally(
    table: Table, statistics: AuditStatistics, tally: CategoryStatistics, name: str
) -> None:
    busiest = tally.busiest_minute
    table.add_row(
        name,
        str(tally.retried_calls),
        str(tally.attempts),
        _NONE if tally.success_rate is None else f"{tally.success_rate:.0%}",
        _NONE if tally.mean_attempts is None else f"{tally.mean_attempts:.1f}",
        str(tally.given_up),
        f"{tally.retries / statistics.minutes:.2f}",
        _NONE if busiest is None else str(busiest[1]),
        _NONE if tally.mean_wait_s is None else format_duration(tally.mean_wait_s),
        format_duration(tally.wait_s_max) if tally.retries else _NONE,
    )


def _build_keys_table(tallies: Sequence[CategoryStatistics]) -> Table:
    table = _build_table("Idempotency keys", "results returned", "results recorded", drop=())
    for tally in tallies:
        table.add_row(
            shorten_category(tally.category),
            str(tally.idempotency_hits),
            str(tally.idempotency_records),
        )
    return table


def _draw_chart(
    statistics: AuditStatistics, tallies: Sequence[CategoryStatistics], console: Console
) -> RenderableType:
    label = max(len(shorten_category(tally.category)) for tally in tallies)
    width = min(max(console.width - label - 12, _CHART_MIN), _CHART_MAX)
    marks = _BLOCKS if (console.encoding or "").lower().startswith("utf") else _ASCII
    series = [statistics.build_series(tally.category, width) for tally in tallies]
    top = max(max(one.counts) for one in series)
    lines = [
        Text("Retries over time", "bold"),
        *(
            Text(f"{shorten_category(tally.category):<{label}}  ")
            .append(_draw_sparkline(one.counts, top, marks), "yellow")
            .append(f"  max {max(one.counts)}")
            for tally, one in zip(tallies, series, strict=True)
        ),
    ]
    first = series[0]
    begin, end = first.begins.strftime("%m-%d %H:%M"), statistics.until.strftime("%m-%d %H:%M")
    gap = " " * max(len(first.counts) - len(begin) - len(end), 1)
    lines.append(Text(f"{'':<{label}}  {begin}{gap}{end}", "dim"))
    part = "a minute" if first.width_minutes == 1 else f"{first.width_minutes} minutes"
    lines.append(Text(f"{'':<{label}}  each mark is {part}; {marks[-1]} is {top}", "dim"))
    return Group(*lines)


def _draw_sparkline(counts: Sequence[int], top: int, marks: str) -> str:
    """Draw counts as a sparkline; a single retry is always visible."""
    return "".join(marks[(count * len(marks) - 1) // top] if count else " " for count in counts)


def _format_alert(alert: RetryAlert) -> Text:
    return Text(
        f"ALERT  {shorten_category(alert.category)}: {alert.retries} retries in the minute"
        f" {alert.minute:%Y-%m-%d %H:%M}, limit {alert.threshold:g}",
        "bold red",
    )


def stats_to_json(
    statistics: AuditStatistics, found: Sequence[RetryAlert], waiting: Sequence[OutboxStatus]
) -> dict[str, Any]:
    return {
        "since": time_to_json(statistics.begins),
        "until": time_to_json(statistics.until),
        "events": statistics.events,
        "events_by_type": dict(statistics.events_by_type),
        "categories": {
            name: _category_to_json(statistics, tally)
            for name, tally in statistics.by_category.items()
        },
        "policies": {
            name: {"category": tally.category} | _category_to_json(statistics, tally)
            for name, tally in statistics.by_policy.items()
        },
        "alerts": [
            {
                "category": alert.category,
                "minute": time_to_json(alert.minute),
                "retries": alert.retries,
                "threshold_per_minute": alert.threshold,
            }
            for alert in found
        ],
        "gaps": [gap_to_json(gap) for gap in statistics.gaps],
        "undelivered": [outbox_to_json(status) for status in waiting],
    }


def _category_to_json(statistics: AuditStatistics, tally: CategoryStatistics) -> dict[str, Any]:
    busiest = tally.busiest_minute
    return {
        "retried_calls": tally.retried_calls,
        "total_attempts": tally.attempts,
        "retries": tally.retries,
        "retries_per_minute": tally.retries / statistics.minutes,
        "busiest_minute": None if busiest is None else time_to_json(busiest[0]),
        "busiest_minute_retries": 0 if busiest is None else busiest[1],
        "succeeded": tally.succeeded,
        "given_up": tally.given_up,
        "not_retryable": tally.not_retryable,
        "success_rate": tally.success_rate,
        "mean_attempts": tally.mean_attempts,
        "mean_wait_s": tally.mean_wait_s,
        "max_wait_s": tally.wait_s_max,
        "idempotency_hits": tally.idempotency_hits,
        "idempotency_records": tally.idempotency_records,
        "idempotency_failures_returned": tally.idempotency_failures_returned,
        "idempotency_failures_recorded": tally.idempotency_failures_recorded,
    }
