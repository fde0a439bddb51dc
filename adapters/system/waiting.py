"""Waiting: as long as it takes, or until nobody needs what is waited for."""

import threading
import time
from collections.abc import Callable

from tileferry.application.ports.downloads import WorkEnded


class WorkerThread(threading.Thread):
    """Works for a run, and waits no longer than that lasts.

    It is a daemon: one that is inside a request does not keep the process alive.
    """

    def __init__(self, work: Callable[[], None], ended: threading.Event) -> None:
        super().__init__(target=work, name="tileferry-worker", daemon=True)
        self.ended = ended


def wait(seconds: float, /) -> None:
    """Wait; in a worker's thread no longer than its run."""
    thread = threading.current_thread()
    if not isinstance(thread, WorkerThread):
        time.sleep(seconds)
    elif thread.ended.wait(seconds):
        raise WorkEnded
