"""Declared transitions, the changes they make, and the shapes that statuses give to values."""

from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType

import attrs
import pytest

from tileferry.domain.errors import IllegalTransitionError, InvalidValueError
from tileferry.domain.state_machine import Actor, Change, Transition
from tileferry.domain.status_fields import StatusFields, check_status_fields, field_conflict

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)


class Light(StrEnum):
    RED = "red"
    GREEN = "green"


@attrs.frozen
class Lamp:
    status: Light
    subject: str = "lamp 1"


BUILD = Transition(name="build", moves=((None, Light.RED),), actors=(Actor.OPERATOR,))
SWITCH = Transition(
    name="switch",
    moves=((Light.RED, Light.GREEN), (Light.RED, Light.RED)),
    actors=(Actor.WORKER, Actor.OPERATOR),
    reason_from=(Actor.OPERATOR,),
)


def test_actor_values() -> None:
    assert [actor.value for actor in Actor] == [
        "operator",
        "scheduler",
        "worker",
        "sweeper",
        "validator",
        "extractor",
        "consumer",
    ]


def test_declared_transition_is_permitted() -> None:
    SWITCH.permit("lamp 1", Light.RED, Actor.WORKER, NOW)
    SWITCH.permit("lamp 1", Light.RED, Actor.OPERATOR, NOW, "fog")
    BUILD.permit("lamp 1", None, Actor.OPERATOR, NOW)


def test_invalid_actor_or_naive_time_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match=r"actor: must be an Actor \(got 'worker'\)"):
        SWITCH.permit("lamp 1", Light.RED, "worker", NOW)  # type: ignore[arg-type]  # the point
    with pytest.raises(InvalidValueError, match="now: must be a time with a time zone"):
        SWITCH.permit("lamp 1", Light.RED, Actor.WORKER, NOW.replace(tzinfo=None))
    with pytest.raises(InvalidValueError, match=r"Change\.actor: must be a Actor"):
        SWITCH.change(Lamp(Light.RED), Lamp(Light.GREEN), actor="worker", at=NOW)  # type: ignore[arg-type]  # the point


@pytest.mark.parametrize(
    ("rule", "status", "actor", "reason", "message"),
    [
        (
            SWITCH,
            Light.GREEN,
            Actor.WORKER,
            None,
            "lamp 1 is green: worker may not switch it: it would have to be red",
        ),
        (
            SWITCH,
            None,
            Actor.WORKER,
            None,
            "lamp 1 is absent: worker may not switch it: it would have to be red",
        ),
        (
            BUILD,
            Light.RED,
            Actor.OPERATOR,
            None,
            "lamp 1 is red: operator may not build it: it would have to be absent",
        ),
        (
            SWITCH,
            Light.RED,
            Actor.CONSUMER,
            "please",
            "lamp 1 is red: consumer may not switch it: only worker, operator may",
        ),
        *[
            (
                SWITCH,
                Light.RED,
                Actor.OPERATOR,
                reason,
                "lamp 1 is red: operator may not switch it: an override needs a reason; say why",
            )
            for reason in (None, "", " \t\n")
        ],
    ],
)
def test_illegal_transition_message_names_problem(
    rule: Transition[Light], status: Light | None, actor: Actor, reason: str | None, message: str
) -> None:
    with pytest.raises(IllegalTransitionError) as caught:
        rule.permit("lamp 1", status, actor, NOW, reason)
    assert str(caught.value) == message
    assert caught.value.subject == "lamp 1"
    assert caught.value.transition == rule.name
    assert caught.value.status == (status or "absent")
    assert caught.value.actor == actor


def test_change_carries_before_after_actor_reason_and_time() -> None:
    red, green = Lamp(Light.RED), Lamp(Light.GREEN)
    assert SWITCH.change(
        red, green, actor=Actor.OPERATOR, at=NOW, reason="the road is clear"
    ) == Change(
        transition="switch",
        actor=Actor.OPERATOR,
        before=red,
        after=green,
        reason="the road is clear",
        at=NOW,
    )
    assert BUILD.change(None, red, actor=Actor.OPERATOR, at=NOW) == Change(
        transition="build", actor=Actor.OPERATOR, before=None, after=red, reason=None, at=NOW
    )


def test_change_to_undeclared_status_is_rejected() -> None:
    with pytest.raises(IllegalTransitionError) as caught:
        BUILD.change(None, Lamp(Light.GREEN), actor=Actor.OPERATOR, at=NOW)
    assert str(caught.value) == (
        "lamp 1 is absent: operator may not build it: it would become green"
    )
    with pytest.raises(IllegalTransitionError, match=r"lamp 1 is green.*it would become red"):
        SWITCH.change(Lamp(Light.GREEN), Lamp(Light.RED), actor=Actor.WORKER, at=NOW)


def test_change_with_naive_time_or_empty_text_is_rejected() -> None:
    lamp = Lamp(Light.RED)
    with pytest.raises(InvalidValueError, match=r"Change\.at"):
        BUILD.change(None, lamp, actor=Actor.OPERATOR, at=NOW.replace(tzinfo=None))
    with pytest.raises(InvalidValueError, match=r"Change\.reason"):
        BUILD.change(None, lamp, actor=Actor.OPERATOR, at=NOW, reason="")
    with pytest.raises(InvalidValueError, match=r"Change\.transition"):
        Change(transition="", actor=Actor.WORKER, before=None, after=lamp, at=NOW)


@attrs.frozen(kw_only=True)
class Shaped:
    wire: str | None = None
    plug: int = 0


SHAPES = MappingProxyType(
    {
        Light.RED: StatusFields(required=frozenset({"wire"})),
        Light.GREEN: StatusFields(optional=frozenset({"plug"})),
    }
)


def test_status_determines_required_and_forbidden_fields() -> None:
    check_status_fields(Shaped(wire="w"), Light.RED, SHAPES)
    check_status_fields(Shaped(), Light.GREEN, SHAPES)
    check_status_fields(Shaped(plug=1), Light.GREEN, SHAPES)
    refusals = {
        (None, 0, Light.RED): "Shaped.wire: must be filled while the status is red",
        ("w", 1, Light.RED): "Shaped.plug: must be empty while the status is red (got 1)",
        ("w", 0, Light.GREEN): "Shaped.wire: must be empty while the status is green (got 'w')",
    }
    for (wire, plug, status), message in refusals.items():
        with pytest.raises(InvalidValueError) as caught:
            check_status_fields(Shaped(wire=wire, plug=plug), status, SHAPES)
        assert str(caught.value) == message
    assert str(field_conflict(Shaped(plug=7), "plug", "is odd")) == "Shaped.plug: is odd (got 7)"
