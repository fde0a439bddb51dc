"""Results that take too long for a request: computed in the background while a page is open."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from attrs import define, field

from tileferry.domain.errors import TileManagerError
from tileferry.entrypoints.cli.remedies import describe_error
from tileferry.entrypoints.web.site import log_crash

Result = TypeVar("Result")
_FIRST_WAIT_S = 0.08
"""How long a page waits for the first result; enough for small installations."""


@define
class Snapshot(Generic[Result]):
    """The newest result of a slow computation, and its time.

    A page keeps one by ``request.site.get_state``, under a class of its own.
    """

    compute: Callable[[], Result]
    repeat: timedelta = timedelta(seconds=30)
    result: Result | None = field(default=None, init=False)
    taken_at: datetime | None = field(default=None, init=False)
    problem: str | None = field(default=None, init=False)
    """Why the newest computation failed; an older result may still be there."""
    _guard: threading.Lock = field(factory=threading.Lock, init=False)
    _done: threading.Event = field(factory=threading.Event, init=False)
    _is_running: bool = field(default=False, init=False)

    def get(self) -> Result | None:
        """Return the newest result, or ``None`` if there is none yet; recompute an old one."""
        now = datetime.now(UTC)
        with self._guard:
            is_recent = self.taken_at is not None and now - self.taken_at < self.repeat
            is_first = not self._done.is_set()
            if not (self._is_running or is_recent):
                self._is_running = True
                threading.Thread(target=self._run, name="snapshot", daemon=True).start()
        if is_first:
            self._done.wait(_FIRST_WAIT_S)
        return self.result

    def _run(self) -> None:
        result, problem = self.result, None
        try:
            result = self.compute()
        except TileManagerError as error:
            problem = describe_error(error)
        except Exception as error:  # noqa: BLE001  # shown on the page, and logged
            log_crash(error)
            problem = "internal error; see the log"
        finally:
            with self._guard:
                self.result, self.problem = result, problem
                self.taken_at, self._is_running = datetime.now(UTC), False
            self._done.set()
