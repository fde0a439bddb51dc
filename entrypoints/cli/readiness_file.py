"""The readiness file of a worker, for supervisors and container platforms."""

import os
from pathlib import Path
from types import TracebackType

from attrs import define

from tileferry.application.ports.progress import (
    NULL_LISTENER,
    ProgressEvent,
    ProgressListener,
    QueueReached,
)
from tileferry.domain.errors import StorageError


@define(eq=False)
class ReadinessFile:
    """A file that exists while the worker accepts runs, which needs the database.

    It is a listener that passes the events on.
    """

    listener: ProgressListener = NULL_LISTENER
    path: Path | None = None

    def __call__(self, event: ProgressEvent, /) -> None:
        if isinstance(event, QueueReached):
            (self._write if event.is_reached else self._remove)()
        self.listener(event)

    def __enter__(self) -> None:
        self._write()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _write(self) -> None:
        if self.path is None:
            return
        try:
            self.path.write_text(f"{os.getpid()}\n")
        except OSError as error:
            raise StorageError(
                action="write the readiness file",
                path=str(self.path),
                problem=error.strerror or type(error).__name__,
                remedy="choose a --ready-file in a writable folder",
            ) from error

    def _remove(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)
