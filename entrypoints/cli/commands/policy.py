"""``tileferry policy``: the retry policies as set, what they mean, and what others would do."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from tileferry.domain.audit import AuditEvent, CallCollector
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import (
    ErrorClass,
    Final,
    RateLimited,
    Retryable,
    WhatIf,
    schedule,
)
from tileferry.domain.tiles import class_of_fault, fault_of_status
from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag
from tileferry.entrypoints.cli.options.times import since_of
from tileferry.entrypoints.cli.output import people, print_json, reading_audit
from tileferry.entrypoints.cli.views.policies import explanation_view, matrix_view, what_if_view
from tileferry.entrypoints.config import load_config
from tileferry.entrypoints.config.policies import (
    POLICY_FIELDS,
    NamedPolicy,
    named_policies,
    policy_named,
)
from tileferry.entrypoints.config.retries import changed

if TYPE_CHECKING:
    from tileferry.application.audit_reading import ReadEntry

app = typer.Typer(
    name="policy",
    help="The retry policies: what is set, what it means, and what another would do.",
    no_args_is_help=True,
    add_completion=False,
)
Category = Annotated[
    str, typer.Option("--category", help="Such as API_REQUEST or DOWNLOAD; policy show lists them.")
]


# show


@app.command("show", epilog="Example: tileferry policy show")
def show_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show the policy of every category; what the configuration changed is marked with a star."""
    policies = named_policies(load_config(config))
    if json:
        body = {name: _policy_json(named) for name, named in policies.items()}
        print_json("tileferry.policy.show.v1", {"categories": body})
    else:
        people.print(matrix_view(policies.values()))


def _policy_json(named: NamedPolicy) -> dict[str, Any]:
    values = {name: getattr(named.policy, name) for name in POLICY_FIELDS}
    return {"code": named.category.value, **values, "overridden": named.changed}


# explain


@app.command(
    "explain", epilog="Example: tileferry policy explain --category API_REQUEST --error 429:30"
)
def explain_command(
    *,
    category: Category,
    error: Annotated[
        str,
        typer.Option(
            "--error",
            help="The error that stays: timeout, final, or an HTTP status; 429:30 also says when"
            " to come back, in seconds.",
        ),
    ] = "timeout",
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show what happens when an error does not go away: each wait, the worst case, and the end."""
    chosen = policy_named(load_config(config), category)
    error_class = error_named(error)
    plan = schedule(chosen.policy, error_class)
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
        people.print(explanation_view(chosen.name, chosen.policy, error_class, plan))


_FAILURES = range(300, 600)


def error_named(text: str) -> ErrorClass:
    """Return what an error, as an operator writes it, means for retrying."""
    asked = text.strip().lower()
    match = re.fullmatch(r"(\d{3})(?::(\d{1,9}(?:\.\d{1,6})?))?", asked)
    if match and int(match[1]) in _FAILURES:
        found = class_of_fault(
            fault_of_status(int(match[1])), None if match[2] is None else float(match[2])
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


# simulate


@app.command(
    "simulate",
    epilog="Example: tileferry policy simulate --category API_REQUEST --max-attempts 5 --since 7d",
)
def simulate_command(
    *,
    category: Category,
    max_attempts: Annotated[int | None, typer.Option(help="Tries in all.")] = None,
    base_delay: Annotated[float | None, typer.Option(help="First wait, in seconds.")] = None,
    max_delay: Annotated[float | None, typer.Option(help="Longest wait, in seconds.")] = None,
    backoff_multiplier: Annotated[float | None, typer.Option(help="Growth of the waits.")] = None,
    jitter_factor: Annotated[float | None, typer.Option(help="0.1 for ±10%; 0 for none.")] = None,
    deadline_s: Annotated[float | None, typer.Option("--deadline", help="In seconds.")] = None,
    max_rate_limited: Annotated[
        int | None, typer.Option(help="How often it may be told to wait.")
    ] = None,
    max_retry_after_s: Annotated[
        float | None, typer.Option("--max-retry-after", help="In seconds.")
    ] = None,
    since: Annotated[
        str, typer.Option("--since", help="Which history: 24h, 7d, a time with its zone, or all.")
    ] = "30d",
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Replay the retries of the past under another policy, and show what would have changed.

    What is not given stays as it is set. The same calls are taken to fail in the same way. Calls
    that succeeded at once are in no log, and no policy changes them.
    """
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
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        raise InvalidValueError(
            field="policy simulate",
            value="no change",
            problem="needs something to change about the policy",
            remedy="give one option at least, such as --max-attempts 5; --help lists them",
        )
    chosen = policy_named(load_config(config), category)
    other = changed(chosen.policy, given, "")
    result, collector = WhatIf(other), CallCollector()
    from tileferry.entrypoints.cli.progress.reading import showing  # reads the log

    with reading_audit(config) as (container, reader), showing(reader) as counting:
        begin = since_of(since, now=datetime.fromtimestamp(container.clock().now(), UTC))
        for event in _events_of(
            chosen, counting.since(begin, holding=[chosen.category.value]), begin
        ):
            call = collector.add(event)
            if call is not None:
                result.add(call)
    if json:
        body = _what_if_json(chosen, result, collector)
        print_json("tileferry.policy.simulate.v1", body)
    else:
        people.print(what_if_view(chosen.name, chosen.policy, result, collector))


def _events_of(
    chosen: NamedPolicy, entries: Iterable["ReadEntry"], begin: datetime | None
) -> Iterator[AuditEvent]:
    for read in entries:
        event = read.event
        if event is None or not chosen.tells_of(event):
            continue
        if begin is None or event.timestamp >= begin:
            yield event


def _what_if_json(chosen: NamedPolicy, result: WhatIf, collector: CallCollector) -> dict[str, Any]:
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
