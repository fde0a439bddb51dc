"""A deadline for a call that has none of its own.

httpx waits for each piece of an answer anew, so that a provider that sends a byte now and then, or
"103 Early Hints" without end, keeps a caller for as long as it likes.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

import httpx

Result = TypeVar("Result")


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """Return what ``call`` returns, or raise what it raises, or ``httpx.ReadTimeout`` in time.

    The call is made in a thread of its own, and left to itself when it is late. Whoever waits here
    in the main thread can be interrupted at any moment.
    """
    outcome: SimpleQueue[tuple[list[Result], BaseException | None]] = SimpleQueue()

    def attempt() -> None:
        try:
            outcome.put(([call()], None))
        except BaseException as error:  # noqa: BLE001  # raised again by who waits
            outcome.put(([], error))

    threading.Thread(target=attempt, name="tileferry-call", daemon=True).start()
    try:
        results, error = outcome.get(timeout=seconds)
    except Empty:
        raise httpx.ReadTimeout(f"it had not ended after {seconds:g} s") from None
    if error is not None:
        raise error
    return results[0]
