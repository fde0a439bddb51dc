"""The runs that were started in this process, until they have ended."""

from attrs import define, field

from tileferry.application.ports.work import RunRecords
from tileferry.domain.errors import DatabaseError
from tileferry.domain.runs import RunId, has_ended


@define
class StartedRuns:
    """A set of runs; a run leaves it when it has ended, in this process or in another one.

    A run that waits for its retry has not ended.
    """

    records: RunRecords
    _run_ids: set[RunId] = field(factory=set, init=False)

    def add(self, run_id: RunId) -> None:
        self._run_ids.add(run_id)

    def clear(self) -> None:
        self._run_ids.clear()

    def have_ended(self) -> bool:
        """Return whether all runs have ended; ``False`` while the database is away."""
        for run_id in tuple(self._run_ids):
            try:
                run = self.records.find_run(run_id)
            except DatabaseError:
                return False
            if run is None or has_ended(run):
                self._run_ids.discard(run_id)
        return not self._run_ids
