"""Who can ask a state machine for a move."""

from datetime import datetime
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from attrs import field, frozen, validators

from tileferry.domain.errors import IllegalTransitionError, InvalidValueError, Remedy
from tileferry.domain.retry import DecisionRecord
from tileferry.domain.validation import aware, check_aware, instance, text


class Actor(StrEnum):
    """The part that somebody plays when a state changes; audit events carry its value."""

    OPERATOR = "operator"
    """A human, through the command line or a program that embeds tileferry."""
    SCHEDULER = "scheduler"
    """The control plane's automation."""
    WORKER = "worker"
    SWEEPER = "sweeper"
    """Looks for work whose worker has gone."""
    VALIDATOR = "validator"
    EXTRACTOR = "extractor"
    CONSUMER = "consumer"


_ABSENT = "absent"


class Stateful(Protocol):
    """What goes through a state machine."""

    @property
    def subject(self) -> str:
        """How a message names it."""

    @property
    def status(self) -> StrEnum:
        """Where it stands."""


T = TypeVar("T", bound=Stateful)
S = TypeVar("S", bound=StrEnum)


@frozen(kw_only=True)
class Change(Generic[T]):
    """One transition taken: what was, what is, by whom, when and why."""

    transition: str = field(validator=text)
    actor: Actor = field(validator=instance(Actor))
    before: T | None
    """``None`` when the transition creates."""
    after: T
    reason: str | None = field(default=None, validator=validators.optional(text))
    at: datetime = field(validator=aware)
    record: DecisionRecord | None = None
    """The retry decision behind it, if there was one, with all that recomputes it."""


@frozen(kw_only=True)
class Transition(Generic[S]):
    """A move that may be made: from where, to where, and by whom."""

    name: str
    moves: tuple[tuple[S | None, S], ...]
    """Pairs of status before and after; the status before creation is ``None``."""
    actors: tuple[Actor, ...]
    reason_from: tuple[Actor, ...] = ()
    """The actors for whom this is an override, and who must say why."""

    def permit(
        self,
        subject: str,
        status: S | None,
        actor: Actor,
        now: datetime,
        reason: str | None = None,
    ) -> None:
        """Refuse a status, an actor or a missing reason that the declaration does not allow."""
        check_aware(now)
        if not isinstance(actor, Actor):  # its text would pass, and then slip by other checks
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
    ) -> Change[T]:
        """Return the change to ``after``, which must stand where a declared move leads."""
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
        """Return the error that says why this is not possible."""
        return IllegalTransitionError(
            subject=subject,
            transition=self.name,
            status=status or _ABSENT,
            actor=actor,
            problem=problem,
            remedy=remedy,
        )
