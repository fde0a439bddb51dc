"""A worker in a thread of this process, for the runs that an operator starts here."""

import logging
import threading
from typing import TYPE_CHECKING

from attrs import define, field

from tileferry.adapters.system import name_process
from tileferry.application.control.started_runs import StartedRuns
from tileferry.application.ports.progress import QueueReached
from tileferry.domain.errors import TileManagerError
from tileferry.domain.runs import RunId, RunKind, WorkerId

if TYPE_CHECKING:
    from tileferry.entrypoints.installation import Installation
    from tileferry.entrypoints.metrics import Metrics

STOP_S = 10.0
"""How long returning the current run to the queue may take."""
_LOGGER = logging.getLogger("tileferry.worker")


@define(eq=False)
class BackgroundWorker:
    """Processes queued downloads, in the order of the queue, until the started ones have ended.

    Its thread exists only while there is such a run.
    """

    _installation: "Installation"
    _started: StartedRuns = field(init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _metrics: "Metrics | None" = field(default=None, init=False)
    _stopping: threading.Event = field(factory=threading.Event, init=False)
    _guard: threading.Lock = field(factory=threading.Lock, init=False)
    problem: str | None = field(default=None, init=False)
    """Why it has stopped before its runs ended, if so; the next start removes it."""

    @_started.default
    def _make_started(self) -> StartedRuns:
        return StartedRuns(self._installation.work_reader)

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def start(self, run_id: RunId, *, metrics: "Metrics | None" = None) -> None:
        """Process a queued download here, unless another worker takes it first.

        ``metrics`` count its work.
        """
        with self._guard:
            self._started.add(run_id)
            self.problem = None
            if self._thread is None and not self._stopping.is_set():
                self._metrics = metrics
                self._thread = threading.Thread(
                    target=self._work, name="tileferry-background-worker", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """Stop permanently; a run in progress returns to the queue."""
        self._stopping.set()
        thread = self._thread
        if thread is not None:
            thread.join(STOP_S)

    def _work(self) -> None:
        problem = None
        while problem is None:
            problem = self._process_runs()
            with self._guard:  # no run is added between the last look and the end of the thread
                if problem is None and not self._is_stopping():
                    continue
                self.problem, self._thread = problem, None
                self._started.clear()
                return

    def _process_runs(self) -> str | None:
        """Process runs until the started ones have ended; return the error that prevents it."""
        try:
            with self._installation.open_worker(
                WorkerId(name_process()),
                until_idle=False,
                is_stopping=self._is_stopping,
                check_stop=self._check_stop,
                kinds=[RunKind.DOWNLOAD_AREA],
                metrics=self._metrics,
            ) as worker:
                worker.run()
        except KeyboardInterrupt:  # the current run was returned to the queue
            pass
        except TileManagerError as error:
            _LOGGER.error("%s", error, extra={"kind": "worker.stopped"})  # noqa: TRY400  # the message is complete
            return str(error)
        except Exception:
            _LOGGER.exception("the worker crashed", extra={"kind": "worker.stopped"})
            return "internal error; see the log"
        finally:
            if self._metrics is not None:
                self._metrics.events(QueueReached(is_reached=True))
        return None

    def _is_stopping(self) -> bool:
        return self._stopping.is_set() or self._started.have_ended()

    def _check_stop(self) -> None:
        if self._stopping.is_set():
            raise KeyboardInterrupt
