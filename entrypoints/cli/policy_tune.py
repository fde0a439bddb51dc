"""``tileferry policy tune``: propose policies from the audit history. A person applies them."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tileferry.entrypoints.cli.command_group import ConfigFile, JsonFlag, format_examples
from tileferry.entrypoints.cli.option_types import SinceOption

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from tileferry.application.policy_tuning import PolicyHistory
    from tileferry.domain.retry import PolicyEffect, TuningReport
    from tileferry.entrypoints.config.policies import NamedPolicy

SCHEMA = "tileferry.policy.tune.v1"
_HOURS_FEW = 3
ATTEMPT_COLUMNS = ("attempt", "calls", "ok", "share", "mean wait before")
EFFECT_COLUMNS = ("policy", "ok", "given up", "unknown", "retries", "waiting")


def add_tune_command(app: typer.Typer) -> None:
    """Add the command to the policy group."""
    app.command(
        "tune",
        epilog=format_examples(
            "tileferry policy tune",
            "tileferry policy tune --category DOWNLOAD --since 90d",
        ),
    )(tune_command)


def tune_command(
    *,
    category: Annotated[
        str | None,
        typer.Option(
            "--category",
            metavar="NAME",
            help="Only this policy, such as DOWNLOAD or RUN; `policy show` lists them.",
        ),
    ] = None,
    since: SinceOption = "30d",
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Propose policies from past retries, and simulate their effect.

    Changes nothing: it prints the settings to add. The proposed number of attempts is based on the
    successes by attempt. The effect is compared with the current policy and with the standard mode
    of the AWS SDKs (3 attempts, random waits of up to 1 and 2 s, a quota of 500 retry tokens),
    assuming that each call would have recovered at the same time.
    """
    from tileferry.entrypoints.cli.output import blame_option, open_installation, print_json, stdout
    from tileferry.entrypoints.cli.parsing import parse_since
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView
    from tileferry.entrypoints.config import load_config
    from tileferry.entrypoints.config.policies import find_policy

    with blame_option("--category"):
        chosen = [] if category is None else [find_policy(load_config(config), category).name]
    progress = ItemProgress()
    with open_installation(config, progress) as installation, ProgressView(progress):
        now = datetime.fromtimestamp(installation.clock.now(), UTC)
        begin = parse_since(since, now=now)
        found = installation.tune_policies(since=begin, names=chosen)
        policies = installation.policies
    if json:
        body = {
            "since": None if begin is None else begin.isoformat(),
            "until": now.isoformat(),
            "policies": {one.report.name: _to_json(one, policies) for one in found},
            "configuration": "\n".join(format_settings(found, policies)),
        }
        print_json(SCHEMA, body)
    else:
        stdout.print(_render(found, policies))


# JSON


def _to_json(one: "PolicyHistory", policies: "Mapping[str, NamedPolicy]") -> dict[str, Any]:
    from tileferry.domain.retry import CALLS_MIN

    report, named = one.report, policies[one.report.name]
    return {
        "calls": report.calls,
        "calls_needed": CALLS_MIN,
        "hours": one.hours,
        "left_out": one.left_out,
        "attempts": [
            {
                "attempt": item.attempt,
                "reached": item.reached,
                "succeeded": item.succeeded,
                "mean_wait_s": item.mean_wait_s,
            }
            for item in report.attempts
        ],
        "changes": [
            {
                "field": change.field_name,
                "from": change.before,
                "to": change.after,
                "reason": change.reason,
            }
            for change in report.changes
        ],
        "settings": dict(_iter_settings(report, named)),
        "effects": {
            name: None if effect is None else _effect_to_json(effect)
            for name, effect in _name_effects(report)
        },
    }


def _effect_to_json(effect: "PolicyEffect") -> dict[str, Any]:
    return {
        "succeeded": effect.succeeded,
        "given_up": effect.given_up,
        "unknown": effect.unknown,
        "retries": effect.retries,
        "waited_s": effect.waited_s,
    }


def _name_effects(report: "TuningReport") -> "Sequence[tuple[str, PolicyEffect | None]]":
    return (
        ("today", report.today),
        ("proposed", report.proposed),
        ("aws_standard", report.aws_standard),
    )


# settings


def _iter_settings(
    report: "TuningReport", named: "NamedPolicy"
) -> "Iterator[tuple[str, int | float]]":
    for change in report.changes:
        path, value = named.to_setting(change.field_name, change.after)
        yield path, int(value) if float(value).is_integer() else value


def format_settings(
    found: "Sequence[PolicyHistory]", policies: "Mapping[str, NamedPolicy]"
) -> "Iterator[str]":
    """Yield the lines to add to the configuration file."""
    from tileferry.entrypoints.config import APP

    tables: dict[str, list[str]] = {}
    for one in found:
        for path, value in _iter_settings(one.report, policies[one.report.name]):
            table, _, name = path.rpartition(".")
            tables.setdefault(table, []).append(f"{name} = {value}")
    for table, lines in tables.items():
        yield f"[{APP}.{table}]"
        yield from lines


# text


def _render(
    found: "Sequence[PolicyHistory]", policies: "Mapping[str, NamedPolicy]"
) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for one in found:
        if not one.report.calls_missing:
            parts += [*_render_report(one), Text()]
    parts += [Text(line) for line in describe_missing(found)]
    lines = list(format_settings(found, policies))
    if lines:
        parts.append(Text("To apply the proposal, add or change these settings:"))
        parts += [Text(line) for line in lines]
    return Group(*parts)


def describe_missing(found: "Sequence[PolicyHistory]") -> "Iterator[str]":
    """Yield which policies have too few calls for a proposal."""
    from tileferry.domain.retry import CALLS_MIN

    few = [one.report for one in found if one.report.calls_missing]
    counts = ", ".join(f"{report.name} {report.calls}" for report in few if report.calls)
    if counts:
        yield f"Too few calls for a proposal ({CALLS_MIN} needed): {counts}."
    if len(few) == len(found) and not counts:
        yield f"The audit log has no retried call in that period; {CALLS_MIN} are needed."


def _render_report(one: "PolicyHistory") -> "Iterator[RenderableType]":
    from rich.text import Text

    report = one.report
    yield Text(report.name, "bold")
    yield from map(Text, describe_history(one))
    yield _build_table(ATTEMPT_COLUMNS, list_attempts(report))
    yield _build_table(EFFECT_COLUMNS, list_effects(report))
    yield from map(Text, describe_proposal(one))


def describe_history(one: "PolicyHistory") -> "Iterator[str]":
    """Yield what a proposal is based on."""
    hours = "1 hour" if one.hours == 1 else f"{one.hours} hours"
    yield f"{one.report.calls} calls that failed at least once, in {hours}."
    if one.hours < _HOURS_FEW:
        yield "They may have one cause; wait for more history before you apply a proposal."


def describe_proposal(one: "PolicyHistory") -> "Iterator[str]":
    """Yield the proposed changes with their reasons."""
    from tileferry.entrypoints.cli.formatting import describe_policy

    for change in one.report.changes:
        yield f"{change.field_name}: {change.before:g} → {change.after:g}; {change.reason}."
    if not one.report.changes:
        yield f"No change proposed: {describe_policy(one.report.policy)}."
    if one.left_out:
        yield f"Left out: {one.left_out} calls not entirely within that period."


def list_attempts(report: "TuningReport") -> "Sequence[Sequence[str]]":
    """Return the success of each attempt as rows of ``ATTEMPT_COLUMNS``."""
    from tileferry.entrypoints.cli.formatting import format_duration

    return [
        (
            str(item.attempt),
            str(item.reached),
            str(item.succeeded),
            f"{item.share:.0%}",
            format_duration(item.mean_wait_s),
        )
        for item in report.attempts
    ]


def list_effects(report: "TuningReport") -> "Sequence[Sequence[str]]":
    """Return the effect of each policy as rows of ``EFFECT_COLUMNS``."""
    from tileferry.entrypoints.cli.formatting import format_duration

    return [
        (
            "AWS standard" if name == "aws_standard" else name,
            str(effect.succeeded),
            str(effect.given_up),
            str(effect.unknown),
            str(effect.retries),
            format_duration(effect.waited_s),
        )
        for name, effect in _name_effects(report)
        if effect is not None
    ]


def _build_table(headings: "Sequence[str]", rows: "Sequence[Sequence[str]]") -> "Table":
    from rich import box

    from tileferry.entrypoints.cli.tables import FittingTable

    table = FittingTable(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), drop=headings[:2:-1]
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "policy" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
