"""Notifies waiting workers of due runs, at most once in a window of time."""

import math
import threading
import time
from contextlib import suppress
from typing import Final

from attrs import define, evolve, field

from tileferry.adapters.postgres.database import Database
from tileferry.domain.errors import DatabaseError

CHANNEL: Final = "tileferry_runs"
NOTIFY: Final = f"NOTIFY {CHANNEL}"
WINDOW_S: Final = 0.01


@define(eq=False)
class WakeUps:
    """Coalesces notifications: many short transactions would wake every idle worker each time.

    The first transaction of a window notifies. Those that follow owe a notification once they are
    committed. It is sent when the window ends, or when the database is closed. If the process is
    killed before, workers find the runs when they poll.
    """

    database: Database
    _sent_s: float = field(default=-math.inf, init=False)
    _timer: threading.Timer | None = field(default=None, init=False)
    """Sends what is owed; ``None`` if nothing is."""
    _guard: threading.Lock = field(factory=threading.Lock, init=False)
    _sending: threading.Lock = field(factory=threading.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.database.before_close.append(self.send_owed)

    def begin_window(self) -> bool:
        """Return whether the current transaction has to notify, as the first of its window."""
        with self._guard:
            now_s = time.monotonic()
            if now_s - self._sent_s < WINDOW_S:
                return False
            self._sent_s = now_s
            return True

    def owe(self) -> None:
        """Notify when the window ends: a transaction is committed that did not."""
        with self._guard:
            if self._timer is None:
                left_s = self._sent_s + WINDOW_S - time.monotonic()
                self._timer = threading.Timer(max(0.0, left_s), self.send_owed)
                self._timer.daemon = True
                self._timer.start()

    def send_owed(self) -> None:
        """Notify now if a notification is owed; wait for one that is being sent."""
        with self._sending:
            with self._guard:
                timer, self._timer = self._timer, None
                if timer is None:
                    return
                timer.cancel()
                self._sent_s = time.monotonic()
            # What is committed from here on owes another one.
            database = evolve(self.database, patience=None)
            with suppress(DatabaseError), database.read_connection() as connection:
                connection.exec_driver_sql(NOTIFY)
