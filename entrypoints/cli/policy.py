"""``tileferry policy``: the retry policies as set, what they mean, and what others would do."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer

from tileferry.application.audit_reader import DecodedEntry
from tileferry.domain.audit import AuditEvent, CallCollector
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import (
    ErrorClass,
    Final,
    RateLimited,
    Retryable,
    WhatIfSummary,
    build_schedule,
)
from tileferry.domain.tiles import classify_fault, fault_from_status
from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.counting import show_reading
from tileferry.entrypoints.cli.option_types import SinceOption
from tileferry.entrypoints.cli.output import blame_option, open_audit, print_json, stdout
from tileferry.entrypoints.cli.parsing import parse_since
from tileferry.entrypoints.cli.policy_tables import (
    render_explanation,
    render_policies,
    render_simulation,
)
from tileferry.entrypoints.config import load_config
from tileferry.entrypoints.config.policies import (
    POLICY_FIELDS,
    NamedPolicy,
    find_policy,
    list_policies,
)
from tileferry.entrypoints.config.retry_overrides import apply_changes

app = declare_group("The retry policies: what is set, what it means, and what another would do.")
CategoryOption = Annotated[
    str,
    typer.Option(
        "--category",
        metavar="NAME",
        help="The category, such as API_REQUEST or DOWNLOAD; policy show lists them.",
    ),
]


# show


@app.command(
    "show", epilog=format_examples("tileferry policy show", "tileferry policy show --json")
)
def show_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show the policy of every category.

    What the configuration changed is marked with a star.
    """
    from tileferry.entrypoints.cli import policy

    policy.show_policies(config, json=json)


# explain


@app.command(
    "explain",
    epilog=format_examples(
        "tileferry policy explain --category DOWNLOAD",
        "tileferry policy explain --category API_REQUEST --error 429:30",
    ),
)
def explain_command(
    *,
    category: CategoryOption,
    error: Annotated[
        str,
        typer.Option(
            "--error",
            metavar="ERROR",
            help="The error that stays: timeout, final, or an HTTP status; 429:30 also says when"
            " to come back, in seconds.",
        ),
    ] = "timeout",
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show what happens when an error does not go away.

    Each wait, the longest time that it can take, and the end.
    """
    from tileferry.entrypoints.cli import policy

    policy.explain_policy(config, category=category, error=error, json=json)


# simulate


@app.command(
    "simulate",
    epilog=format_examples(
        "tileferry policy simulate --category DOWNLOAD --max-attempts 3",
        "tileferry policy simulate --category API_REQUEST --max-attempts 5 --since 7d",
    ),
)
def simulate_command(
    *,
    category: CategoryOption,
    since: SinceOption = "30d",
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", metavar="N", help="Tries in all.")
    ] = None,
    base_delay: Annotated[
        float | None, typer.Option("--base-delay", metavar="SECONDS", help="The first wait.")
    ] = None,
    max_delay: Annotated[
        float | None, typer.Option("--max-delay", metavar="SECONDS", help="The longest wait.")
    ] = None,
    backoff_multiplier: Annotated[
        float | None,
        typer.Option("--backoff-multiplier", metavar="FACTOR", help="How the waits grow."),
    ] = None,
    jitter_factor: Annotated[
        float | None,
        typer.Option("--jitter-factor", metavar="FACTOR", help="0.1 for ±10%; 0 for none."),
    ] = None,
    deadline_s: Annotated[
        float | None,
        typer.Option("--deadline", metavar="SECONDS", help="No retry begins later than this."),
    ] = None,
    max_rate_limited: Annotated[
        int | None,
        typer.Option(
            "--max-rate-limited", metavar="N", help="How often the other side may ask for patience."
        ),
    ] = None,
    max_retry_after_s: Annotated[
        float | None,
        typer.Option(
            "--max-retry-after", metavar="SECONDS", help="The longest wait that it may ask for."
        ),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Replay the retries of the past under another policy.

    It shows what would have changed. What is not given stays as it is set. The same calls are
    taken to fail in the same way. Calls that succeeded at once are in no log, and no policy
    changes them. Runs and partitions are no calls: RUN and PARTITION can only be explained.
    """
    from tileferry.entrypoints.cli import policy

    changes = {
        "max_attempts": max_attempts,
        "base_delay": base_delay,
        "max_delay": max_delay,
        "backoff_multiplier": backoff_multiplier,
        "jitter_factor": jitter_factor,
        "deadline_s": deadline_s,
        "max_rate_limited": max_rate_limited,
        "max_retry_after_s": max_retry_after_s,
    }
    policy.simulate_policy(config, category=category, changes=changes, since=since, json=json)


_FAILURES = range(300, 600)


# show


def show_policies(config: Path | None, *, json: bool) -> None:
    """Show every category's."""
    policies = list_policies(load_config(config))
    if json:
        body = {name: _policy_to_json(named) for name, named in policies.items()}
        print_json("tileferry.policy.show.v1", {"categories": body})
    else:
        stdout.print(render_policies(policies.values()))


def _policy_to_json(named: NamedPolicy) -> dict[str, Any]:
    values = {name: getattr(named.policy, name) for name in POLICY_FIELDS}
    return {"code": named.category.value, **values, "overridden": named.changed_fields}


# explain


def explain_policy(config: Path | None, *, category: str, error: str, json: bool) -> None:
    """Show each wait, the worst case, and the end."""
    settings = load_config(config)
    with blame_option("--category"):
        chosen = find_policy(settings, category)
    error_class = parse_error_class(error)
    plan = build_schedule(chosen.policy, error_class)
    if json:
        body = {
            "category": chosen.name,
            "error": error_class.code,
            "calls": plan.calls,
            "waits": [attrs.asdict(wait) for wait in plan.waits],
            "worst_case_wait_s": plan.worst_case_s,
            "ends_by": plan.ends_by,
            "explanation": plan.ends_by.explanation,
        }
        print_json("tileferry.policy.explain.v1", body)
    else:
        stdout.print(render_explanation(chosen.name, chosen.policy, error_class, plan))


def parse_error_class(text: str) -> ErrorClass:
    """Return what an error, as an operator writes it, means for retrying."""
    asked = text.strip().lower()
    match = re.fullmatch(r"(\d{3})(?::(\d{1,9}(?:\.\d{1,6})?))?", asked)
    if match and int(match[1]) in _FAILURES:
        found = classify_fault(
            fault_from_status(int(match[1])), None if match[2] is None else float(match[2])
        )
        if match[2] is None or isinstance(found, RateLimited):  # only that one is told when
            return found
    if asked in {"timeout", "reset", Retryable.code}:
        return Retryable()
    if asked == Final.code:
        return Final()
    raise InvalidValueError(
        field="--error",
        value=text,
        problem="is not an error that can be explained",
        remedy="use timeout, final, an HTTP status such as 503, or 429:30",
    )


def simulate_policy(
    config: Path | None,
    *,
    category: str,
    changes: Mapping[str, float | None],
    since: str,
    json: bool,
) -> None:
    """Replay what the log has of a category, and show what would have changed."""
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        raise InvalidValueError(
            field="policy simulate",
            value="no change",
            problem="needs something to change about the policy",
            remedy="give one option at least, such as --max-attempts 5; --help lists them",
        )
    settings = load_config(config)
    with blame_option("--category"):
        chosen = _check_replayable(find_policy(settings, category))
    other = apply_changes(chosen.policy, given, "")
    result, collector = WhatIfSummary(other), CallCollector()
    with open_audit(config) as (container, reader), show_reading(reader) as counting:
        begin = parse_since(since, now=datetime.fromtimestamp(container.clock().now(), UTC))
        for event in _select_events(
            chosen, counting.read_since(begin, holding=[chosen.category.value]), begin
        ):
            call = collector.add(event)
            if call is not None:
                result.add(call)
    if json:
        body = _simulation_to_json(chosen, result, collector)
        print_json("tileferry.policy.simulate.v1", body)
    else:
        stdout.print(render_simulation(chosen.name, chosen.policy, result, collector))


def _check_replayable(chosen: NamedPolicy) -> NamedPolicy:
    if not chosen.is_for_calls:
        raise InvalidValueError(
            field="--category",
            value=chosen.name,
            problem="is no policy of calls, so the log has none to replay",
            remedy=f"see its waits with tileferry policy explain --category {chosen.name}",
        )
    return chosen


def _select_events(
    chosen: NamedPolicy, entries: Iterable[DecodedEntry], begin: datetime | None
) -> Iterator[AuditEvent]:
    for read in entries:
        event = read.event
        if event is None or not chosen.applies_to(event):
            continue
        if begin is None or event.timestamp >= begin:
            yield event


def _simulation_to_json(
    chosen: NamedPolicy, result: WhatIfSummary, collector: CallCollector
) -> dict[str, Any]:
    return {
        "category": chosen.name,
        "policy": {name: getattr(result.policy, name) for name in POLICY_FIELDS},
        "calls": result.calls,
        "succeeded": result.succeeded,
        "would_succeed": result.still_succeed,
        "would_be_lost": result.lost,
        "given_up": result.given_up,
        "would_be_given_up": result.still_given_up,
        "unknown": result.unknown,
        "waited_s": result.waited_s,
        "would_wait_s": result.would_wait_s,
        "unfinished": collector.unfinished,
        "incomplete": collector.incomplete,
    }
