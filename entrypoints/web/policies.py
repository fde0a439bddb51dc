"""Policies: what each decides, its schedule, and what the log says about it; read-only."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from tileferry.application.policy_tuning import PolicyHistory, PolicySimulation
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import ErrorClass, build_schedule
from tileferry.entrypoints.cli.formatting import describe_policy, format_duration
from tileferry.entrypoints.cli.parsing import parse_since
from tileferry.entrypoints.cli.policy import parse_error_class
from tileferry.entrypoints.cli.policy_tables import (
    OUTCOME_COLUMNS,
    describe_end,
    explain_simulation,
    list_outcomes,
)
from tileferry.entrypoints.cli.policy_tune import (
    ATTEMPT_COLUMNS,
    EFFECT_COLUMNS,
    describe_history,
    describe_missing,
    describe_proposal,
    format_settings,
    list_attempts,
    list_effects,
)
from tileferry.entrypoints.config.policies import NamedPolicy
from tileferry.entrypoints.config.retry_overrides import apply_changes
from tileferry.entrypoints.installation import Installation
from tileferry.entrypoints.web.filters import encode_filters, read_text
from tileferry.entrypoints.web.policy_plot import plot_schedule
from tileferry.entrypoints.web.site import Feed, Page, PageRequest, PageRoute
from tileferry.entrypoints.web.snapshots import Snapshot, Snapshots

_PATH = "/policies"
_TUNE_PERIOD = timedelta(days=30)
_REPEAT = timedelta(minutes=5)
_SIMULATIONS_MAX = 64
_ERRORS = {
    "timeout": "Retryable",
    "429": "Rate limited",
    "429:30": "Retry-After 30 s",
    "final": "Final",
}
"""The error classes as ``policy explain --error`` takes them, with the headings of the matrix."""
_FIELDS: Mapping[str, tuple[str, type[int] | type[float]]] = {
    "max_attempts": ("Attempts", int),
    "base_delay": ("First delay (s)", float),
    "max_delay": ("Longest delay (s)", float),
    "backoff_multiplier": ("Growth", float),
    "jitter_factor": ("Jitter (0.1 is ±10 %)", float),
    "deadline_s": ("Deadline (s)", float),
    "max_rate_limited": ("Rate-limited waits", int),
    "max_retry_after_s": ("Longest Retry-After (s)", float),
}
"""The fields that the form simulates."""
_CHOICES = ("category", "error")


class TuningResult(Snapshot[Sequence[PolicyHistory]]):
    """The proposals for every policy; they need the log of the whole period."""


class Simulations(Snapshots[PolicySimulation]):
    """The latest simulations; each reads a part of the log."""

    @classmethod
    def create(cls) -> "Simulations":
        return cls(_SIMULATIONS_MAX, _REPEAT)


def show_policies(request: PageRequest) -> Response:
    policies = request.installation.policies
    chosen, error = _read_choices(request, policies)
    error_class = parse_error_class(error)
    schedule = build_schedule(chosen.policy, error_class)
    classes = [parse_error_class(one) for one in _ERRORS]
    return request.render(
        "policies.html",
        {
            "title": "Policies",
            "policies": list(policies),
            "errors": _ERRORS,
            "chosen": chosen.name,
            "error": error,
            "table": chosen.table,
            "rows": [_describe_row(named, classes) for named in policies.values()],
            "end": describe_end(chosen.name, schedule),
            "plot": plot_schedule(chosen.policy, schedule),
            "live_query": encode_filters({}, (), category=chosen.name),
            **_build_tuning(request, chosen),
            **_build_form(request, chosen),
            **_build_simulation(request, chosen),
        },
    )


def _read_choices(
    request: PageRequest, policies: Mapping[str, NamedPolicy]
) -> tuple[NamedPolicy, str]:
    category, error = (read_text(request.query, name) for name in _CHOICES)
    name, error = category or "DOWNLOAD", error or "timeout"
    for parameter, value, known in (("category", name, list(policies)), ("error", error, _ERRORS)):
        if value not in known:
            problem = f"must be one of {', '.join(known)}"
            raise InvalidValueError(field=parameter, value=value, problem=problem)
    return policies[name], error


# matrix


def _describe_row(named: NamedPolicy, classes: Sequence[ErrorClass]) -> dict[str, object]:
    return {
        "name": named.name,
        "changed": ", ".join(named.changed_fields),
        "first": format_duration(named.policy.base_delay),
        "cap": format_duration(named.policy.max_delay),
        "cells": [_describe_cell(named, one) for one in classes],
    }


def _describe_cell(named: NamedPolicy, error: ErrorClass) -> dict[str, object]:
    schedule = build_schedule(named.policy, error)
    if not schedule.waits:
        return {"status": "failed", "text": "gives up", "title": schedule.ends_by.explanation}
    calls = f"{schedule.calls:,} calls, {format_duration(schedule.worst_case_s)}"
    return {"status": "ok", "text": calls, "title": schedule.ends_by.explanation}


# tune


def _build_tuning(request: PageRequest, chosen: NamedPolicy) -> dict[str, object]:
    installation = request.installation

    def tune() -> Sequence[PolicyHistory]:
        now = datetime.fromtimestamp(installation.clock.now(), UTC)
        return installation.tune_policies(since=now - _TUNE_PERIOD)

    snapshot = request.site.get_state(TuningResult, lambda: TuningResult(tune, repeat=_REPEAT))
    found = snapshot.get()
    view: dict[str, object] = {
        "tuned_at": snapshot.taken_at,
        "tune_problem": snapshot.problem,
        "tuning": None,
    }
    if found is None:
        return view
    (one,) = (history for history in found if history.report.name == chosen.name)
    if one.report.calls_missing:
        return {**view, "tuning": {"missing": list(describe_missing([one]))}}
    return {
        **view,
        "tuning": {
            "history": list(describe_history(one)),
            "attempt_columns": ATTEMPT_COLUMNS,
            "attempts": list_attempts(one.report),
            "effect_columns": EFFECT_COLUMNS,
            "effects": list_effects(one.report),
            "proposal": list(describe_proposal(one)),
            "settings": "\n".join(format_settings([one], installation.policies)),
        },
    }


def render_tuning(request: PageRequest) -> str:
    chosen, _ = _read_choices(request, request.installation.policies)
    return request.render_text("_policy_tune.html", _build_tuning(request, chosen))


# simulate


def _build_form(request: PageRequest, chosen: NamedPolicy) -> dict[str, object]:
    return {
        "since": _read_since(request),
        "fields": [
            {
                "name": name,
                "label": label,
                "value": request.query.get(name, ""),
                "now": _format_value(getattr(chosen.policy, name)),
                "step": "1" if kind is int else "any",
            }
            for name, (label, kind) in _FIELDS.items()
        ],
        "simulation_query": encode_filters(request.query, ("category", "since", *_FIELDS)),
    }


def _build_simulation(request: PageRequest, chosen: NamedPolicy) -> dict[str, object]:
    changes, since = _read_changes(request.query), _read_since(request)
    view: dict[str, object] = {"summary": describe_policy(chosen.policy), "simulation": None}
    if not changes:
        return view
    installation = request.installation
    other = apply_changes(chosen.policy, changes, "")
    _compute_begin(installation, since)  # an invalid time is refused before anything is read

    def simulate() -> PolicySimulation:
        begin = _compute_begin(installation, since)
        return installation.simulate_policy(chosen.name, other, since=begin)

    key = (chosen.name, tuple(changes.items()), since)
    snapshot = request.site.get_state(Simulations, Simulations.create).get(key, simulate)
    found = snapshot.get()
    result = {
        "policy": describe_policy(other),
        "columns": ("outcome", *OUTCOME_COLUMNS[1:]),
        "rows": [] if found is None else list_outcomes(found.summary),
        "sentences": [] if found is None else explain_simulation(found),
        "problem": snapshot.problem,
        "read_at": snapshot.taken_at,
    }
    return {**view, "simulation": result}


def render_simulation(request: PageRequest) -> str:
    chosen, _ = _read_choices(request, request.installation.policies)
    return request.render_text("_policy_simulation.html", _build_simulation(request, chosen))


def _read_since(request: PageRequest) -> str:
    return read_text(request.query, "since") or "30d"


def _compute_begin(installation: Installation, since: str) -> datetime | None:
    return parse_since(since, now=datetime.fromtimestamp(installation.clock.now(), UTC))


def _format_value(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def _read_changes(query: Mapping[str, str]) -> dict[str, float]:
    changes: dict[str, float] = {}
    for name, (_, kind) in _FIELDS.items():
        value = read_text(query, name)
        if value is None:
            continue
        try:
            changes[name] = kind(value)
        except ValueError:
            problem = "is not a whole number" if kind is int else "is not a number"
            raise InvalidValueError(field=name, value=value, problem=problem) from None
    return changes


PAGE = Page(
    title="Policies",
    path=_PATH,
    routes=(PageRoute(_PATH, show_policies),),
    feeds=(
        Feed(name="policy-tune", render=render_tuning),
        Feed(name="policy-simulation", render=render_simulation),
    ),
)
