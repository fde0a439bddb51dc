"""Renders the output of ``tileferry policy`` for people."""

from collections.abc import Iterable, Sequence

from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.retry import (
    BackoffKind,
    ErrorClass,
    RateLimited,
    Retryable,
    RetryCategory,
    RetryPolicy,
)
from tileferry.entrypoints.cli.formatting import describe_policy, format_duration
from tileferry.entrypoints.config.policies import NamedPolicy

with import_on_call(globals()):
    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text

    from tileferry.application.policy_tuning import PolicySimulation
    from tileferry.domain.retry import RetrySchedule, ScheduledWait, WhatIfSummary, build_schedule
    from tileferry.entrypoints.cli.tables import FittingTable

_WAITS_SHOWN_MAX = 12
_BUDGETED = {"DOWNLOAD", RetryCategory.API_REQUEST.name, RetryCategory.API_VALIDATION.name}
"""The policies of calls to the provider, which share one retry budget."""


def _build_table(title: str | None, *, drop: Sequence[str] = ()) -> Table:
    from rich import box

    return FittingTable(
        drop=drop,
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        caption_justify="left",
    )


# show


def render_policies(policies: Iterable[NamedPolicy]) -> RenderableType:
    """Render every policy; changed values have a star, and are listed below."""
    table = _build_table("Retry policies", drop=("growth", "jitter", "cap", "first"))
    table.add_column("category", no_wrap=True)
    for heading in ("attempts", "first", "cap", "growth", "jitter", "total"):
        table.add_column(heading, justify="right", no_wrap=True)
    notes = []
    for named in policies:
        marked = [
            Text(f"{one}*", "bold yellow") if one != other else Text(one)
            for one, other in zip(
                _format_policy(named.policy), _format_policy(named.usual), strict=True
            )
        ]
        table.add_row(f"{named.name}*" if named.changed_fields else named.name, *marked)
        notes += [
            Text(
                f"* {named.table}: {named.name.lower()} has {name}"
                f" {getattr(named.policy, name)}, default {getattr(named.usual, name)}"
                if named.table == "c11"
                else f"* {named.table}.{name} is {getattr(named.policy, name)},"
                f" default {getattr(named.usual, name)}"
            )
            for name in named.changed_fields
        ]
    notes.append(
        Text(
            "DOWNLOAD applies to listings and tiles, UPLOAD to rejected tiles; set both in c11."
            " RUN applies to queued runs (worker), PARTITION to rejected partitions (partitions)."
        )
    )
    return Group(table, *notes)


def _format_policy(policy: RetryPolicy) -> tuple[str, ...]:
    power = policy.backoff is BackoffKind.POWER
    plan = build_schedule(policy, Retryable())
    return (
        str(policy.max_attempts),
        format_duration(policy.base_delay),
        format_duration(policy.max_delay),
        "power" if power else f"x{policy.backoff_multiplier:g}",
        f"±{policy.jitter_factor:.0%}" if policy.jitter_enabled else "-",
        format_duration(plan.worst_case_s) if plan.waits else "-",
    )


# explain


def render_explanation(
    name: str, policy: RetryPolicy, error: ErrorClass, plan: RetrySchedule
) -> RenderableType:
    """Render the schedule and its summary."""
    kind = error.code.replace("_", " ")
    if isinstance(error, RateLimited) and error.retry_after_s is not None:
        kind += f", retry after {format_duration(error.retry_after_s)}"
    parts: list[RenderableType] = [
        Text(f"{name}: {describe_policy(policy)}", "bold"),
        Text(f"Every call fails with the same error: {kind}."),
    ]
    if plan.waits:
        parts.append(_build_waits_table(plan.waits))
    parts += [Text(line) for line in describe_end(name, plan)]
    return Group(*parts)


def describe_end(name: str, plan: RetrySchedule) -> list[str]:
    """Return when and why it gives up, and how long the waits take."""
    calls = "the first call" if plan.calls == 1 else f"call {plan.calls}"
    lines = [f"It gives up after {calls}: {plan.ends_by.explanation}."]
    if plan.waits:
        lines.append(
            f"Waiting takes {format_duration(plan.worst_case_s)} at most, plus the time of the"
            " calls themselves."
        )
    if plan.waits and name in _BUDGETED:
        lines.append(
            "An empty retry budget delays a retry further, and never cancels it"
            " (c11.retry_budget_refill_per_s)."
        )
    return lines


def _build_waits_table(waits: Sequence[ScheduledWait]) -> Table:
    table = _build_table(None, drop=("at least", "at most", "call"))
    for heading in ("call", "attempt", "then wait", "at least", "at most", "total at most"):
        table.add_column(heading, justify="right", no_wrap=True)
    shown = waits if len(waits) <= _WAITS_SHOWN_MAX else waits[: _WAITS_SHOWN_MAX - 1]
    for wait in shown:
        _add_wait(table, wait)
    if shown is not waits:
        table.add_row("…", "…", "…", "…", "…", "…")
        _add_wait(table, waits[-1])
    return table


def _add_wait(table: Table, wait: ScheduledWait) -> None:
    seconds = (wait.delay_s, wait.delay_s_min, wait.delay_s_max, wait.total_s_max)
    table.add_row(str(wait.call), str(wait.attempt), *(format_duration(value) for value in seconds))


# simulate


OUTCOME_COLUMNS = ("", "actual", "what if", "change")


def render_simulation(
    name: str, current: RetryPolicy, simulation: PolicySimulation
) -> RenderableType:
    """Render the recorded, the simulated and the unknown outcomes."""
    result = simulation.summary
    parts: list[RenderableType] = [
        Text(f"{name} under a different policy", "bold"),
        Text(f"set now   {describe_policy(current)}"),
        Text(f"what if   {describe_policy(result.policy)}"),
    ]
    rows = list_outcomes(result)
    if rows:
        table = _build_table(None, drop=("change",))
        for heading in OUTCOME_COLUMNS:
            table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        parts.append(table)
    return Group(*parts, *(Text(line) for line in explain_simulation(simulation)))


def list_outcomes(result: WhatIfSummary) -> list[tuple[str, ...]]:
    """Return the recorded and the simulated outcomes as rows of ``OUTCOME_COLUMNS``."""
    if not result.calls:
        return []
    change_s = result.would_wait_s - result.waited_s
    return [
        _compare_counts("succeeded after retries", result.succeeded, result.still_succeed),
        _compare_counts("given up", result.given_up, result.still_given_up + result.lost),
        ("unknown", "", str(result.unknown), ""),
        (
            "total waiting",
            format_duration(result.waited_s),
            format_duration(result.would_wait_s),
            f"{'-' if change_s < 0 else '+'}{format_duration(abs(change_s))}",
        ),
    ]


def _compare_counts(name: str, before: int, after: int) -> tuple[str, ...]:
    return name, str(before), str(after), f"{after - before:+d}"


def explain_simulation(simulation: PolicySimulation) -> list[str]:
    """Return what the outcomes mean, in sentences."""
    result = simulation.summary
    if not result.calls:
        return ["The audit log has no such call in that period."]
    lines = [f"{_format_calls(result.calls)} that failed at least once."]
    if result.lost:
        lines.append(
            f"{_format_calls(result.lost)} succeeded, but would have been given up earlier."
        )
    if result.unknown:
        lines.append(
            f"{_format_calls(result.unknown)} that gave up would have been retried;"
            " the outcome is unknown."
        )
    if not result.lost and not result.unknown:
        lines.append("Every call would have ended the same way.")
    left_out = simulation.unfinished + simulation.incomplete
    if left_out:
        lines.append(f"Left out: {_format_calls(left_out)} not entirely within that period.")
    return lines


def _format_calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"
