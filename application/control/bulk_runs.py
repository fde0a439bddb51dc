"""An operator's actions on many runs: selects them and applies the action to each."""

from collections.abc import Callable, Sequence
from enum import StrEnum

from attrs import evolve, frozen

from tileferry.application.control.run_control import RunControl
from tileferry.application.ports.work import RunFilter, RunRecords
from tileferry.domain.errors import (
    IllegalTransitionError,
    NotFoundError,
    TileManagerError,
    WorkInProgressError,
)
from tileferry.domain.runs import Run, RunId, RunStatus, is_permanent


class RunAction(StrEnum):
    CANCEL = "cancel"
    RETRY = "retry"

    @property
    def statuses(self) -> Sequence[RunStatus]:
        """The statuses in which a run may be affected."""
        if self is RunAction.RETRY:
            return (RunStatus.ERROR,)
        return (RunStatus.DISCOVERED, RunStatus.PROCESSING, RunStatus.ERROR)

    def allows(self, run: Run) -> bool:
        """Return whether the action is possible for a run in its present state."""
        is_over = self is RunAction.CANCEL and is_permanent(run)
        return run.status in self.statuses and not is_over


@frozen(kw_only=True)
class BulkResult:
    """The result of an action on many runs."""

    done: Sequence[Run]
    refused: Sequence[TileManagerError]
    """One error for each run that was left as it is."""


@frozen(kw_only=True)
class BulkRuns:
    """Selects runs for an action, and applies it to each in a separate transaction."""

    reader: RunRecords
    control: RunControl

    def select(self, action: RunAction, wanted: RunFilter, *, limit: int) -> Sequence[Run]:
        """Return those of the newest ``limit`` runs that an action would affect."""
        statuses = [one for one in action.statuses if not wanted.statuses or one in wanted.statuses]
        if not statuses:
            return []
        found = self.reader.list_runs(evolve(wanted, statuses=statuses), limit=limit)
        return [run for run in found if action.allows(run)]

    def apply(
        self, action: RunAction, run_ids: Sequence[RunId], *, reason: str, by: str
    ) -> BulkResult:
        """Apply an action; a run whose state no longer allows it is left as it is."""
        step: Callable[..., Run] = (
            self.control.cancel if action is RunAction.CANCEL else self.control.retry_now
        )
        done, refused = [], []
        for run_id in run_ids:
            try:
                done.append(step(run_id, reason=reason, by=by))
            except (IllegalTransitionError, NotFoundError, WorkInProgressError) as error:
                refused.append(error)
        return BulkResult(done=done, refused=refused)
