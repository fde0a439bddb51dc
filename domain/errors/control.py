"""Errors of the control plane: state changes, lost leases, plans and overrides."""

from collections.abc import Sequence

from attrs import define

from tileferry.domain.errors.base import TileManagerError, format_line
from tileferry.domain.errors.remedies import Remedy
from tileferry.domain.text import printable

_DRIFT_SHOWN_MAX = 10
_VERB_PHRASES = {
    "mark_terminal": "mark it terminal",
    "record_error": "record an error for it",
    "retry_now": "retry it now",
}
"""Phrases for transitions whose names are not plain verbs."""


@define(kw_only=True, eq=False)
class IllegalTransitionError(TileManagerError):
    """A state machine has no such transition, or does not allow it for this actor."""

    subject: str
    transition: str
    status: str
    actor: str
    problem: str
    remedy: Remedy | str = ""

    @property
    def summary(self) -> str:
        return (
            f"{printable(self.subject)} is {printable(self.status)}: {printable(self.actor)} "
            f"may not {_VERB_PHRASES.get(self.transition, f'{self.transition} it')}: "
            f"{format_line(self.problem)}"
        )


@define(kw_only=True, eq=False)
class WorkInProgressError(TileManagerError):
    """A run cannot be retried while another run does the same work."""

    remedy = Remedy.SHOW_OTHER_RUN
    run_id: str
    other_run_id: str

    @property
    def summary(self) -> str:
        return (
            f"run {printable(self.run_id)} has ended, and run {printable(self.other_run_id)} is "
            f"doing the same work now"
        )


@define(kw_only=True, eq=False)
class LeaseLostError(TileManagerError):
    """A worker reported on a run after its lease ended; the report was discarded."""

    remedy = "restart the worker; if this happens often, raise worker.lease_s"
    run_id: str
    worker: str
    epoch: int

    @property
    def summary(self) -> str:
        return (
            f"worker {printable(self.worker)} lost run {printable(self.run_id)} (claim "
            f"{self.epoch}): its lease expired, and another worker may have the run; its result "
            f"was discarded"
        )


@define(kw_only=True, eq=False)
class IncompleteWorkError(TileManagerError):
    """A run did only a part of its work; the rest is for a later attempt."""

    remedy = "completed work is kept; the next attempt resumes"
    what: str
    problem: str

    @property
    def summary(self) -> str:
        return f"{printable(self.what)} is incomplete: {format_line(self.problem)}"


@define(kw_only=True, eq=False)
class PlanDriftedError(TileManagerError):
    """Partitions changed after the plan was made; nothing was applied."""

    remedy = Remedy.REPLAN_BACKFILL
    count: int
    drifted: Sequence[str]
    """What has changed, one line each."""

    @property
    def summary(self) -> str:
        shown = " | ".join(printable(line) for line in self.drifted[:_DRIFT_SHOWN_MAX])
        more = (
            "" if self.count <= _DRIFT_SHOWN_MAX else f" | and {self.count - _DRIFT_SHOWN_MAX} more"
        )
        return (
            f"{self.count} partition{'' if self.count == 1 else 's'} changed since the plan was "
            f"made, so nothing was applied: {shown}{more}"
        )


@define(kw_only=True, eq=False)
class ConfirmationNeededError(TileManagerError):
    """An action affects so many partitions that their count must be confirmed."""

    remedy = Remedy.CONFIRM_COUNT
    count: int
    confirmed: int | None = None
    what: str = "partition"

    @property
    def summary(self) -> str:
        affected = f"this affects {self.count} {self.what}{'' if self.count == 1 else 's'}"
        return affected if self.confirmed is None else f"{affected}, not {self.confirmed}"


@define(kw_only=True, eq=False)
class NoRawPartitionError(TileManagerError):
    """A partition cannot be retried because the raw sink has no sealed run of it."""

    remedy = Remedy.APPLY_BACKFILL
    partition: str
    run_id: str

    @property
    def summary(self) -> str:
        return (
            f"{printable(self.partition)}: the raw sink has no raw partition to retry (newest run: "
            f"{printable(self.run_id)})"
        )


@define(kw_only=True, eq=False)
class UndatedImageryError(TileManagerError):
    """A past date was requested from a source that serves only its current imagery."""

    remedy = "use a source with dated imagery, or set partitions.allow_undated"
    source: str
    day: str

    @property
    def summary(self) -> str:
        return (
            f"source {printable(self.source)} serves only its current imagery, not that of "
            f"{printable(self.day)}"
        )
