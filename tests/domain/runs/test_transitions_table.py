"""The run machine takes the transitions that its table declares, and no other."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from tileferry.domain.errors import IllegalTransitionError
from tileferry.domain.retry import Retryable
from tileferry.domain.runs import (
    RUN_TRANSITIONS,
    Run,
    RunId,
    RunKind,
    RunStatus,
    Verdict,
    VerdictOutcome,
    WorkerId,
    cancel,
    claim,
    complete,
    record_error,
    release,
    renew,
    rescue,
    retry_now,
    submit,
)
from tileferry.domain.state_machine import Actor, Change

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
W1 = WorkerId("w1")

OPERATOR_OR_SCHEDULER = ("operator", "scheduler")
DECLARED: dict[tuple[str, str | None, str], tuple[str, ...]] = {
    ("submit", None, "discovered"): OPERATOR_OR_SCHEDULER,
    ("claim", "discovered", "processing"): ("worker",),
    ("claim", "error", "processing"): ("worker",),
    ("renew", "processing", "processing"): ("worker",),
    ("complete", "processing", "passed"): ("worker",),
    ("complete", "processing", "needs_review"): ("worker",),
    ("complete", "processing", "failed"): ("worker",),
    ("record_error", "processing", "error"): ("worker",),
    ("rescue", "processing", "error"): ("sweeper",),
    ("release", "processing", "discovered"): ("worker",),
    ("cancel", "discovered", "error"): ("operator",),
    ("cancel", "processing", "error"): ("operator",),
    ("cancel", "error", "error"): ("operator",),
    ("retry_now", "error", "error"): ("operator",),
}


def make_run(status: RunStatus, lease_expires_at: datetime) -> Run:
    """Return a run in ``status`` to which nothing but the table can object."""
    fields: Mapping[RunStatus, Mapping[str, Any]] = {
        RunStatus.DISCOVERED: {},
        RunStatus.PROCESSING: {
            "lease_owner": W1,
            "lease_expires_at": lease_expires_at,
            "lease_epoch": 1,
        },
        RunStatus.PASSED: {"lease_epoch": 1},
        RunStatus.NEEDS_REVIEW: {"lease_epoch": 1, "error_message": "look"},
        RunStatus.FAILED: {"lease_epoch": 1, "error_message": "bad"},
        RunStatus.ERROR: {
            "error_class": "retryable",
            "error_message": "boom",
            "next_retry_at": NOW,
        },
    }
    return Run(
        run_id=RunId("r1"),
        kind=RunKind.DOWNLOAD_AREA,
        source="osm",
        submitted_date=NOW - MINUTE,
        status=status,
        **fields[status],
    )


def complete_with(outcome: VerdictOutcome) -> Callable[[Run, Actor], Change[Run]]:
    reasons = () if outcome is VerdictOutcome.PASSED else ("why",)
    verdict = Verdict(run_id=RunId("r1"), outcome=outcome, reasons=reasons)
    return lambda run, actor: complete(run, verdict, actor=actor, owner=W1, epoch=1, now=NOW)


TAKE: list[tuple[str, Callable[[Run, Actor], Change[Run]]]] = [
    ("claim", lambda run, actor: claim(run, actor=actor, owner=W1, now=NOW, lease=MINUTE)),
    ("renew", lambda run, actor: renew(run, actor=actor, owner=W1, epoch=1, now=NOW, lease=MINUTE)),
    *[("complete", complete_with(outcome)) for outcome in VerdictOutcome],
    (
        "record_error",
        lambda run, actor: record_error(
            run, Retryable(), "boom", actor=actor, owner=W1, epoch=1, now=NOW
        ),
    ),
    ("rescue", lambda run, actor: rescue(run, actor=actor, now=NOW)),
    ("release", lambda run, actor: release(run, actor=actor, owner=W1, epoch=1, now=NOW)),
    ("cancel", lambda run, actor: cancel(run, actor=actor, now=NOW, reason="why")),
    ("retry_now", lambda run, actor: retry_now(run, actor=actor, now=NOW, reason="why")),
]


def test_transition_table_matches_specification() -> None:
    table = {
        (rule.name, source, target): rule.actors
        for rule in RUN_TRANSITIONS
        for source, target in rule.moves
    }
    assert table == DECLARED
    assert [rule.name for rule in RUN_TRANSITIONS] == list(dict.fromkeys(n for n, _, _ in DECLARED))
    assert {rule.name: rule.reason_from for rule in RUN_TRANSITIONS if rule.reason_from} == {
        "cancel": (Actor.OPERATOR,),
        "retry_now": (Actor.OPERATOR,),
    }


@pytest.mark.parametrize(("status", "actor"), list(product(RunStatus, Actor)))
def test_only_declared_transitions_are_allowed(status: RunStatus, actor: Actor) -> None:
    taken, refused = set(), []
    for name, take in TAKE:
        # Only a lease that has ended can be rescued, and only one that has not be renewed.
        run = make_run(status, NOW if name == "rescue" else NOW + MINUTE)
        try:
            change = take(run, actor)
        except IllegalTransitionError as error:
            refused.append((error, name))
            continue
        assert (change.transition, change.actor, change.at) == (name, actor, NOW)
        assert change.before == run
        taken.add((name, status.value, change.after.status.value))
    for refusal, name in refused:
        assert (refusal.subject, refusal.transition) == ("run r1", name)
        assert (refusal.status, refusal.actor) == (status, actor)
    assert taken == {
        move for move, actors in DECLARED.items() if move[1] == status and actor in actors
    }


@pytest.mark.parametrize("actor", Actor)
def test_only_control_plane_may_submit(actor: Actor) -> None:
    def attempt() -> Change[Run]:
        return submit(
            run_id=RunId("r1"), kind=RunKind.DOWNLOAD_AREA, source="osm", actor=actor, now=NOW
        )

    if actor in OPERATOR_OR_SCHEDULER:
        assert attempt().actor is actor
    else:
        with pytest.raises(IllegalTransitionError) as caught:
            attempt()
        assert str(caught.value) == (
            f"run r1 is absent: {actor} may not submit it: only operator, scheduler may"
        )


@pytest.mark.parametrize("reason", ["", "  "])
def test_operator_override_requires_reason(reason: str) -> None:
    run = make_run(RunStatus.ERROR, NOW)
    for take in (cancel, retry_now):
        with pytest.raises(IllegalTransitionError, match="an override needs a reason"):
            take(run, actor=Actor.OPERATOR, now=NOW, reason=reason)
