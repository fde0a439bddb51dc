"""What the control plane refuses: moves, stale workers, plans and overrides."""

from collections.abc import Sequence

from attrs import define

from tileferry.domain.errors.base import TileManagerError, format_line
from tileferry.domain.text import printable

_DRIFT_SHOWN_MAX = 10
_VERB_PHRASES = {
    "mark_terminal": "mark it terminal",
    "record_error": "record an error of it",
    "retry_now": "retry it now",
}
"""Transitions whose names are no verb that "it" can follow."""


@define(kw_only=True, eq=False)
class IllegalTransitionError(TileManagerError):
    """Somebody asked a state machine for a move that is not declared, or not theirs."""

    subject: str
    transition: str
    status: str
    actor: str
    problem: str

    def __str__(self) -> str:
        return (
            f"{printable(self.subject)} is {printable(self.status)}: {printable(self.actor)} "
            f"may not {_VERB_PHRASES.get(self.transition, f'{self.transition} it')}: "
            f"{format_line(self.problem)}"
        )


@define(kw_only=True, eq=False)
class WorkInProgressError(TileManagerError):
    """A run cannot be retried while another run does the same work."""

    run_id: str
    other_run_id: str

    def __str__(self) -> str:
        return (
            f"run {printable(self.run_id)} has ended, and run {printable(self.other_run_id)} does "
            f"the same work now; see tileferry runs show {printable(self.other_run_id)}"
        )


@define(kw_only=True, eq=False)
class LeaseLostError(TileManagerError):
    """A worker brought something for a run that is its own no more; nothing of it was kept."""

    run_id: str
    worker: str
    epoch: int

    def __str__(self) -> str:
        return (
            f"worker {printable(self.worker)} has lost run {printable(self.run_id)} (claim "
            f"{self.epoch}): its lease ran out, so that the run may be somebody else's; what it "
            f"did for it is not counted. Start it again; if that comes often, raise worker.lease_s"
        )


@define(kw_only=True, eq=False)
class IncompleteWorkError(TileManagerError):
    """A run did what could be done now; there is more to do later."""

    what: str
    problem: str

    def __str__(self) -> str:
        return (
            f"{printable(self.what)} is not complete: {format_line(self.problem)}; "
            "what is done stays, "
            f"and the next attempt goes on from there"
        )


@define(kw_only=True, eq=False)
class PlanDriftedError(TileManagerError):
    """A plan was made from what is not so any more; nothing of it was done."""

    count: int
    drifted: Sequence[str]
    """What has changed, a line each."""

    def __str__(self) -> str:
        shown = " | ".join(printable(line) for line in self.drifted[:_DRIFT_SHOWN_MAX])
        more = (
            "" if self.count <= _DRIFT_SHOWN_MAX else f" | and {self.count - _DRIFT_SHOWN_MAX} more"
        )
        return (
            f"{self.count} partition{'' if self.count == 1 else 's'} changed since the plan was "
            f"made, so nothing was done: {shown}{more}; make a new plan"
        )


@define(kw_only=True, eq=False)
class ConfirmationNeededError(TileManagerError):
    """An action touches so many partitions that somebody has to say how many are meant."""

    count: int
    confirmed: int | None = None

    def __str__(self) -> str:
        said = "nobody confirmed" if self.confirmed is None else f"{self.confirmed} were confirmed"
        return (
            f"this would touch {self.count} partition{'' if self.count == 1 else 's'}, and "
            f"{said}; check the range, then type the count or give --confirm-count {self.count}"
        )


@define(kw_only=True, eq=False)
class NoRawPartitionError(TileManagerError):
    """Somebody wants a retry of a partition whose newest run brought nothing."""

    partition: str
    run_id: str

    def __str__(self) -> str:
        return (
            f"{printable(self.partition)}: its newest run, {printable(self.run_id)}, left no raw "
            f"partition that could be retried; use backfill plan and backfill apply for its date, "
            f"which start a new extraction"
        )
