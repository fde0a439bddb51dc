"""The partition machine takes the transitions that its table declares, and no other."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from tileferry.domain.errors import IllegalTransitionError
from tileferry.domain.partitions import (
    PARTITION_TRANSITIONS,
    Partition,
    PartitionKey,
    PartitionStatus,
    TerminalityPolicy,
    abandon,
    accept,
    enqueue,
    mark_terminal,
    reject,
    reprocess,
    requeue,
)
from tileferry.domain.runs import RunId
from tileferry.domain.state_machine import Actor, Change

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)
CREATED = NOW - timedelta(days=1)
KEY = PartitionKey(
    source="osm", customer_id="acme", query_name="roads", logical_date=date(2024, 1, 1)
)
R2, R3 = RunId("r2"), RunId("r3")
PATIENT = TerminalityPolicy(max_attempts=9)

CONTROL_PLANE = ("operator", "scheduler")
DECLARED: dict[tuple[str, str | None, str], tuple[str, ...]] = {
    ("enqueue", None, "pending"): CONTROL_PLANE,
    ("accept", "pending", "success"): ("validator",),
    ("accept", "success", "success"): ("validator",),
    ("reject", "pending", "failed"): ("validator",),
    ("reject", "failed", "failed"): ("validator",),
    ("reject", "success", "success"): ("validator",),
    ("requeue", "failed", "pending"): CONTROL_PLANE,
    ("reprocess", "success", "success"): ("operator",),
    ("abandon", "pending", "failed"): ("scheduler", "worker"),
    ("abandon", "success", "success"): ("scheduler", "worker"),
    ("mark_terminal", "failed", "failed"): ("operator",),
}


def make_partition(status: PartitionStatus, transition: str) -> Partition:
    """Return a partition in ``status`` in which only the table can object to ``transition``."""
    fields: dict[str, Any] = {"attempt_count": 1}
    if status is PartitionStatus.PENDING:
        fields |= {"active_run_id": R2}
    elif status is PartitionStatus.FAILED:
        fields |= {"error_message": "bad", "abandoned": transition == "reject"}
    else:
        fields |= {"current_run_id": "r1"}
        if transition != "reprocess":
            fields |= {"active_run_id": R2}
    return Partition(
        key=KEY, status=status, last_run_id=R2, created_at=CREATED, updated_at=CREATED, **fields
    )


TAKE: dict[str, Callable[[Partition, Actor], Change[Partition]]] = {
    "accept": lambda it, actor: accept(it, R2, actor=actor, now=NOW),
    "reject": lambda it, actor: reject(it, R2, actor=actor, now=NOW, error="bad"),
    "requeue": lambda it, actor: requeue(
        it, R3, actor=actor, now=NOW, terminality=PATIENT, reason="why"
    ),
    "reprocess": lambda it, actor: reprocess(it, R3, actor=actor, now=NOW, reason="why"),
    "abandon": lambda it, actor: abandon(it, R2, actor=actor, now=NOW, error="gone"),
    "mark_terminal": lambda it, actor: mark_terminal(it, actor=actor, now=NOW, reason="why"),
}


def test_transition_table_matches_specification() -> None:
    table = {
        (rule.name, source, target): rule.actors
        for rule in PARTITION_TRANSITIONS
        for source, target in rule.moves
    }
    assert table == DECLARED
    names = [rule.name for rule in PARTITION_TRANSITIONS]
    assert names == list(dict.fromkeys(name for name, _, _ in DECLARED))
    assert {rule.name: rule.reason_from for rule in PARTITION_TRANSITIONS if rule.reason_from} == {
        "requeue": (Actor.OPERATOR,),
        "reprocess": (Actor.OPERATOR,),
        "mark_terminal": (Actor.OPERATOR,),
    }


@pytest.mark.parametrize(("status", "actor"), list(product(PartitionStatus, Actor)))
def test_only_declared_transitions_are_allowed(status: PartitionStatus, actor: Actor) -> None:
    taken, refused = set(), []
    for name, take in TAKE.items():
        partition = make_partition(status, name)
        try:
            change = take(partition, actor)
        except IllegalTransitionError as error:
            refused.append((error, name))
            continue
        assert (change.transition, change.actor, change.at) == (name, actor, NOW)
        assert change.before == partition
        taken.add((name, status.value, change.after.status.value))
    for refusal, name in refused:
        assert refusal.subject == "partition osm/acme/roads/2024-01-01"
        assert (refusal.transition, refusal.status, refusal.actor) == (name, status, actor)
    assert taken == {
        move for move, actors in DECLARED.items() if move[1] == status and actor in actors
    }


@pytest.mark.parametrize("actor", Actor)
def test_only_control_plane_may_enqueue(actor: Actor) -> None:
    if actor in CONTROL_PLANE:
        assert enqueue(KEY, R2, actor=actor, now=NOW).actor is actor
    else:
        with pytest.raises(IllegalTransitionError) as caught:
            enqueue(KEY, R2, actor=actor, now=NOW)
        assert str(caught.value) == (
            f"partition osm/acme/roads/2024-01-01 is absent: {actor} may not enqueue it: "
            "only operator, scheduler may"
        )
