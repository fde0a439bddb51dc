"""State machines: actors, declared transitions, their changes, and the fields of each status."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from attrs import field, frozen, validators

from tileferry.domain.errors import InvalidValueError, Remedy
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.validation import aware, check_aware, instance, text

with import_on_call(globals()):
    from tileferry.domain.errors import IllegalTransitionError
    from tileferry.domain.retry import DecisionRecord


class Actor(StrEnum):
    """The role that makes a transition. Audit events contain its value."""

    OPERATOR = "operator"
    """A human, using the command line or a program that embeds tileferry."""
    SCHEDULER = "scheduler"
    """The control plane's automation."""
    WORKER = "worker"
    SWEEPER = "sweeper"
    """Finds work whose worker is lost."""
    VALIDATOR = "validator"
    EXTRACTOR = "extractor"
    CONSUMER = "consumer"


_ABSENT = "absent"


class Stateful(Protocol):
    """An object with a state machine."""

    @property
    def subject(self) -> str:
        """The name of the object in messages."""

    @property
    def status(self) -> StrEnum:
        """The current status."""


T = TypeVar("T", bound=Stateful)
S = TypeVar("S", bound=StrEnum)


@frozen(kw_only=True)
class Change(Generic[T]):
    """One transition that was made: the states before and after, the actor, the time and the
    reason.
    """

    transition: str = field(validator=text)
    actor: Actor = field(validator=instance(Actor))
    before: T | None
    """``None`` if the transition creates the object."""
    after: T
    reason: str | None = field(default=None, validator=validators.optional(text))
    at: datetime = field(validator=aware)
    record: DecisionRecord | None = None
    """The retry decision behind it, with all inputs; ``None`` if there was none."""
    waited_s: float | None = None
    """The total wait of the retries that led to it; ``None`` if there were none."""


@frozen(kw_only=True)
class Transition(Generic[S]):
    """A declared transition: its statuses before and after, and its actors."""

    name: str
    moves: tuple[tuple[S | None, S], ...]
    """Pairs of status before and after; the status before creation is ``None``."""
    actors: tuple[Actor, ...]
    reason_from: tuple[Actor, ...] = ()
    """The actors for whom this is an override that needs a reason."""

    def permit(
        self,
        subject: str,
        status: S | None,
        actor: Actor,
        now: datetime,
        reason: str | None = None,
    ) -> None:
        """Raise if the status or actor is not allowed, or if a required reason is missing."""
        check_aware(now)
        if not isinstance(actor, Actor):  # a plain string would fail identity checks later
            raise InvalidValueError(field="actor", value=actor, problem="must be an Actor")
        sources = [source for source, _ in self.moves]
        if status not in sources:
            names = ", ".join(dict.fromkeys(source or _ABSENT for source in sources))
            raise self.build_error(subject, status, actor, f"it would have to be {names}")
        if actor not in self.actors:
            raise self.build_error(subject, status, actor, f"only {', '.join(self.actors)} may")
        if actor in self.reason_from and not (reason or "").strip():
            raise self.build_error(subject, status, actor, "an override needs a reason; say why")

    def change(
        self,
        before: T | None,
        after: T,
        *,
        actor: Actor,
        at: datetime,
        reason: str | None = None,
        record: DecisionRecord | None = None,
        waited_s: float | None = None,
    ) -> Change[T]:
        """Return the change to ``after``; raise if no declared move leads to its status."""
        status = None if before is None else before.status
        if (status, after.status) not in self.moves:
            raise self.build_error(after.subject, status, actor, f"it would become {after.status}")
        return Change(
            transition=self.name,
            actor=actor,
            before=before,
            after=after,
            reason=reason,
            at=at,
            record=record,
            waited_s=waited_s,
        )

    def build_error(
        self,
        subject: str,
        status: StrEnum | None,
        actor: Actor,
        problem: str,
        *,
        remedy: Remedy | str = "",
    ) -> IllegalTransitionError:
        """Return the error that says why the transition is not possible."""
        return IllegalTransitionError(
            subject=subject,
            transition=self.name,
            status=status or _ABSENT,
            actor=actor,
            problem=problem,
            remedy=remedy,
        )


Status = TypeVar("Status", bound=StrEnum)


@frozen(kw_only=True)
class StatusFields:
    """The fields that one status fills. Other fields named by any status must be empty.

    ``None``, zero and ``False`` are empty.
    """

    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    names: frozenset[str] = field(init=False)

    @names.default
    def _all(self) -> frozenset[str]:
        return self.required | self.optional


def check_status_fields(
    value: object, status: Status, shapes: Mapping[Status, StatusFields]
) -> None:
    """Raise if the fields of a value do not match its status."""
    shape = shapes[status]
    for name in shape.required:
        if not getattr(value, name):
            raise field_conflict(value, name, f"must be filled while the status is {status}")
    for each in shapes.values():
        if each is not shape:
            for name in each.names - shape.names:
                if getattr(value, name):
                    raise field_conflict(value, name, f"must be empty while the status is {status}")


def field_conflict(value: object, name: str, problem: str) -> InvalidValueError:
    """Return the error for a field of ``value`` that contradicts the others."""
    return InvalidValueError(
        field=f"{type(value).__name__}.{name}", value=getattr(value, name), problem=problem
    )
