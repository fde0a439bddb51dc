"""Results that take too long for a request: computed in the background while a page is open."""

import threading
from collections.abc import Callable, Hashable
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
    running: threading.Lock = field(factory=threading.Lock)
    """Held during a computation; snapshots that share it are computed one at a time."""
    prefers_new: bool = False
    """Whether a page waits for a new result as long as for the first one."""
    result: Result | None = field(default=None, init=False)
    taken_at: datetime | None = field(default=None, init=False)
    problem: str | None = field(default=None, init=False)
    """Why the newest computation failed; an older result may still be there."""
    _done: threading.Event = field(factory=threading.Event, init=False)

    def get(self) -> Result | None:
        """Return the newest result, or ``None`` if there is none yet; recompute an old one."""
        if not self._is_recent() and self.running.acquire(blocking=False):
            if self.prefers_new:
                self._done.clear()
            threading.Thread(target=self._run, name="snapshot", daemon=True).start()
            self._done.wait(_FIRST_WAIT_S)  # returns at once if an older result will do
        return self.result

    def _is_recent(self) -> bool:
        return self.taken_at is not None and datetime.now(UTC) - self.taken_at < self.repeat

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
            self.result, self.problem = result, problem
            self.taken_at = datetime.now(UTC)
            self.running.release()
            self._done.set()


@define
class Snapshots(Generic[Result]):
    """The latest snapshots by a key, such as a flight; one is computed at a time."""

    size_max: int
    repeat: timedelta = timedelta(seconds=30)
    _latest: dict[Hashable, Snapshot[Result]] = field(factory=dict, init=False)
    _running: threading.Lock = field(factory=threading.Lock, init=False)
    _guard: threading.Lock = field(factory=threading.Lock, init=False)

    def get(self, key: Hashable, compute: Callable[[], Result]) -> Snapshot[Result]:
        """Return the snapshot of a key; the one that was not used for longest is dropped."""
        with self._guard:
            snapshot = self._latest.pop(key, None)
            if snapshot is None:
                snapshot = Snapshot(compute, repeat=self.repeat, running=self._running)
            self._latest[key] = snapshot
            if len(self._latest) > self.size_max:
                self._latest.pop(next(iter(self._latest)))
        return snapshot
