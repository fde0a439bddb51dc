"""An installation's queue: work that is left to be done, here or elsewhere."""

import threading
from collections.abc import Callable, Sequence

from attrs import define

from tileferry.adapters.system import AttentiveClock
from tileferry.application.transfers.progress import ProgressEvents
from tileferry.domain.actors import Actor
from tileferry.domain.runs import Run, RunId, WorkerId
from tileferry.domain.work import DownloadArea, UploadFlight, Work
from tileferry.entrypoints.container import Container
from tileferry.entrypoints.embedding.given import Box, Sector, box_of, sector_of
from tileferry.entrypoints.embedding.installation import Installation
from tileferry.entrypoints.working import queue_worker


@define
class Queueing(Installation):
    """Submits runs, and carries them out."""

    def submit_download(
        self, *, bbox: Box, zoom_levels: Sequence[int], flight: str, sector: Sector
    ) -> Run:
        """Queue a download; the same that is queued already is returned, and not queued twice."""
        return self._submit(
            DownloadArea(
                source=self.config.source,
                flight_id=flight,
                bbox=box_of(bbox),
                zoom_levels=tuple(zoom_levels),
                sector_class=sector_of(sector),
            )
        )

    def submit_upload(self, *, flight: str) -> Run:
        """Queue an upload; workers need ``c11.flight_record_file`` to know of the landing."""
        return self._submit(UploadFlight(source=self.config.source, flight_id=flight))

    def find_run(self, run_id: RunId) -> Run | None:
        """Return a run as it stands; of an id that was kept as text, ``RunId(text)`` makes one."""
        run: Run | None = self._current().work_reader().find_run(run_id)
        return run

    def work(
        self, *, until_idle: bool = True, is_stopping: Callable[[], bool] = lambda: False
    ) -> int:
        """Take runs from the queue and carry them out; return how many.

        It returns when nothing is due (``until_idle``), or once ``is_stopping`` says so. The
        listener is told what is waited for; what became of a run, the queue knows.
        """
        self._current()
        own = Container(config=self.config)  # what waits inside a run waits less
        try:
            worker = queue_worker(
                own,
                WorkerId(self.name),
                until_idle=until_idle,
                is_stopping=is_stopping,
                clock=AttentiveClock(thread=threading.current_thread()),
            )
            trail = own.audit_trail()
            trail.sinks = [ProgressEvents(self.listener), *trail.sinks]
            worker.run()
        finally:
            own.shutdown_resources()
        return worker.processed

    def _submit(self, work: Work) -> Run:
        run, _is_new = (
            self._current().run_control().submit(work, actor=Actor.OPERATOR, by=self.name)
        )
        submitted: Run = run
        return submitted
