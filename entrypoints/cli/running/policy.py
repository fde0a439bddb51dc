"""The retry policies as they are set, and what one of them means for an error."""

import re
from pathlib import Path
from typing import Any

import attrs

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import ErrorClass, Final, RateLimited, Retryable, schedule
from tileferry.domain.tiles import class_of_fault, fault_of_status
from tileferry.entrypoints.cli.output import option, people, print_json
from tileferry.entrypoints.cli.views.policies import explanation_view, matrix_view
from tileferry.entrypoints.config import load_config
from tileferry.entrypoints.config.policies import (
    POLICY_FIELDS,
    NamedPolicy,
    named_policies,
    policy_named,
)

_FAILURES = range(300, 600)


# show


def shown(config: Path | None, *, json: bool) -> None:
    """Show every category's."""
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


def explained(config: Path | None, *, category: str, error: str, json: bool) -> None:
    """Show each wait, the worst case, and the end."""
    settings = load_config(config)
    with option("--category"):
        chosen = policy_named(settings, category)
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
