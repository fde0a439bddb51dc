"""``tileferry policy``: show, explain, simulate and tune retry policies."""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)
from tileferry.entrypoints.cli.option_types import SinceOption
from tileferry.entrypoints.cli.policy_tune import add_tune_command

if TYPE_CHECKING:
    from tileferry.application.policy_tuning import PolicySimulation
    from tileferry.domain.retry import ErrorClass
    from tileferry.entrypoints.config.policies import NamedPolicy

app = declare_group("Show, explain, simulate and tune retry policies.")
add_tune_command(app)
CategoryOption = Annotated[
    str,
    typer.Option(
        "--category",
        metavar="NAME",
        help="Category, such as API_REQUEST or DOWNLOAD; `policy show` lists them.",
    ),
]
_FAILURES = range(300, 600)


# show


@app.command(
    "show", epilog=format_examples("tileferry policy show", "tileferry policy show --json")
)
def show_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show the retry policy of every category.

    Values changed by the configuration are marked with a star.
    """
    from tileferry.entrypoints.cli.output import print_json, stdout
    from tileferry.entrypoints.cli.policy_tables import render_policies
    from tileferry.entrypoints.config import load_config
    from tileferry.entrypoints.config.policies import list_policies

    policies = list_policies(load_config(config))
    if json:
        body = {name: _policy_to_json(named) for name, named in policies.items()}
        print_json("tileferry.policy.show.v1", {"categories": body})
    else:
        stdout.print(render_policies(policies.values()))


def _policy_to_json(named: "NamedPolicy") -> dict[str, Any]:
    from tileferry.entrypoints.config.policies import POLICY_FIELDS

    values = {name: getattr(named.policy, name) for name in POLICY_FIELDS}
    return {"code": named.category.value, **values, "overridden": named.changed_fields}


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
            help="The persistent error: timeout, final, or an HTTP status; 429:30 is a 429 with"
            " Retry-After: 30.",
        ),
    ] = "timeout",
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Show what happens when an error persists.

    Each wait, the longest total time, and why it gives up.
    """
    import attrs

    from tileferry.domain.retry import build_schedule
    from tileferry.entrypoints.cli.output import blame_option, print_json, stdout
    from tileferry.entrypoints.cli.policy_tables import render_explanation
    from tileferry.entrypoints.config import load_config
    from tileferry.entrypoints.config.policies import find_policy

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


def parse_error_class(text: str) -> "ErrorClass":
    """Return the error class of an error as an operator writes it."""
    from tileferry.domain.errors import InvalidValueError
    from tileferry.domain.retry import Final, RateLimited, Retryable
    from tileferry.domain.tiles import classify_fault, fault_from_status

    asked = text.strip().lower()
    match = re.fullmatch(r"(\d{3})(?::(\d{1,9}(?:\.\d{1,6})?))?", asked)
    if match and int(match[1]) in _FAILURES:
        found = classify_fault(
            fault_from_status(int(match[1])), None if match[2] is None else float(match[2])
        )
        if match[2] is None or isinstance(found, RateLimited):  # no other has a Retry-After
            return found
    if asked in {"timeout", "reset", Retryable.code}:
        return Retryable()
    if asked == Final.code:
        return Final()
    raise InvalidValueError(
        field="--error",
        value=text,
        problem="is not a known error",
        remedy="use timeout, final, an HTTP status such as 503, or 429:30",
    )


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
        int | None, typer.Option("--max-attempts", metavar="N", help="Maximum number of attempts.")
    ] = None,
    base_delay: Annotated[
        float | None, typer.Option("--base-delay", metavar="SECONDS", help="First delay.")
    ] = None,
    max_delay: Annotated[
        float | None, typer.Option("--max-delay", metavar="SECONDS", help="Longest delay.")
    ] = None,
    backoff_multiplier: Annotated[
        float | None,
        typer.Option("--backoff-multiplier", metavar="FACTOR", help="Growth of the delay."),
    ] = None,
    jitter_factor: Annotated[
        float | None,
        typer.Option("--jitter-factor", metavar="FACTOR", help="0.1 for ±10%; 0 for none."),
    ] = None,
    deadline_s: Annotated[
        float | None,
        typer.Option("--deadline", metavar="SECONDS", help="No retry starts after this time."),
    ] = None,
    max_rate_limited: Annotated[
        int | None,
        typer.Option(
            "--max-rate-limited", metavar="N", help="Maximum number of rate-limited waits."
        ),
    ] = None,
    max_retry_after_s: Annotated[
        float | None,
        typer.Option("--max-retry-after", metavar="SECONDS", help="Longest Retry-After to honour."),
    ] = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Replay past retries under a different policy.

    Shows what would have changed. Options that are not given keep their configured values. The
    simulation assumes that the same calls fail in the same way. Calls that succeeded on the first
    attempt are not in the log, and no policy affects them. RUN and PARTITION have no calls to
    replay; use `policy explain`.
    """
    from tileferry.domain.errors import InvalidValueError
    from tileferry.entrypoints.cli.output import blame_option, open_installation, print_json, stdout
    from tileferry.entrypoints.cli.parsing import parse_since
    from tileferry.entrypoints.cli.policy_tables import render_simulation
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView
    from tileferry.entrypoints.config import load_config
    from tileferry.entrypoints.config.policies import find_policy
    from tileferry.entrypoints.config.retry_overrides import apply_changes

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
    changes = {name: value for name, value in changes.items() if value is not None}
    if not changes:
        raise InvalidValueError(
            field="policy simulate",
            value="no change",
            problem="needs a change to the policy",
            remedy="give at least one option, such as --max-attempts 5; --help lists them",
        )
    settings = load_config(config)
    with blame_option("--category"):
        chosen = find_policy(settings, category)
    other = apply_changes(chosen.policy, changes, "")
    progress = ItemProgress()
    with open_installation(config, progress) as installation, ProgressView(progress):
        begin = parse_since(since, now=datetime.fromtimestamp(installation.clock.now(), UTC))
        simulation = installation.simulate_policy(chosen.name, other, since=begin)
    if json:
        body = _simulation_to_json(chosen.name, simulation)
        print_json("tileferry.policy.simulate.v1", body)
    else:
        stdout.print(render_simulation(chosen.name, chosen.policy, simulation))


def _simulation_to_json(name: str, simulation: "PolicySimulation") -> dict[str, Any]:
    from tileferry.entrypoints.config.policies import POLICY_FIELDS

    result = simulation.summary
    return {
        "category": name,
        "policy": {field: getattr(result.policy, field) for field in POLICY_FIELDS},
        "calls": result.calls,
        "succeeded": result.succeeded,
        "would_succeed": result.still_succeed,
        "would_be_lost": result.lost,
        "given_up": result.given_up,
        "would_be_given_up": result.still_given_up,
        "unknown": result.unknown,
        "waited_s": result.waited_s,
        "would_wait_s": result.would_wait_s,
        "unfinished": simulation.unfinished,
        "incomplete": simulation.incomplete,
    }
