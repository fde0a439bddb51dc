"""Total deadlines for HTTP calls.

httpx restarts its read timeout with each chunk. A provider that sends a byte now and then, or "103
Early Hints" without end, can therefore block a caller indefinitely. So can a provider that reads a
request one byte at a time.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import TypeVar

import httpx
from attrs import define, field

Result = TypeVar("Result")
News = TypeVar("News")
CallOutcome = tuple[list[Result], BaseException | None]


def call_within(seconds: float, call: Callable[[], Result]) -> Result:
    """Return the result of ``call``, or raise its error, or ``httpx.ReadTimeout`` when it is late.

    The call runs in a thread of its own, which is abandoned when the call is late. A caller in the
    main thread can therefore be interrupted by a signal at any moment.
    """
    outcome: SimpleQueue[CallOutcome[Result]] = SimpleQueue()
    _start_thread(call, outcome.put)
    return _unwrap_outcome(_wait_for(outcome, seconds, httpx.ReadTimeout, "the call had not ended"))


@define(eq=False)
class OutgoingBody:
    """A request body that reports when it has been sent, and stops when the caller has given up."""

    _tell_sent: Callable[[], None]
    is_left: bool = field(default=False, init=False)

    def stream(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the body; raise ``httpx.WriteTimeout`` once the caller has given up."""
        for piece in pieces:
            if self.is_left:
                raise httpx.WriteTimeout("the caller no longer waits for the response")
            yield piece
        self._tell_sent()


def send_within(
    sending_s: float,
    answer_s: float,
    call: Callable[[OutgoingBody], Result],
    *,
    on_sent: Callable[[], None] = lambda: None,
) -> Result:
    """Like ``call_within``, with one deadline for sending the body and another for the response.

    ``on_sent`` is called in this thread when the body has been sent.
    """
    news: SimpleQueue[CallOutcome[Result] | None] = SimpleQueue()  # None: the body has been sent
    outgoing = OutgoingBody(lambda: news.put(None))
    _start_thread(lambda: call(outgoing), news.put)
    try:
        ended = _wait_for(news, sending_s, httpx.WriteTimeout, "the request had not been sent")
        while ended is None:
            on_sent()
            ended = _wait_for(news, answer_s, httpx.ReadTimeout, "there was no response")
        return _unwrap_outcome(ended)
    finally:
        outgoing.is_left = True
        ended = None  # see _unwrap_outcome


def _start_thread(call: Callable[[], Result], tell: Callable[[CallOutcome[Result]], None]) -> None:
    def attempt() -> None:
        try:
            tell(([call()], None))
        except BaseException as error:  # noqa: BLE001  # raised again in the waiting thread
            tell(([], error))

    threading.Thread(target=attempt, name="tileferry-call", daemon=True).start()


def _wait_for(
    news: SimpleQueue[News], seconds: float, late: type[httpx.TimeoutException], what: str
) -> News:
    try:
        return news.get(timeout=seconds)
    except Empty:
        raise late(f"{what} after {seconds:g} s") from None


def _unwrap_outcome(ended: CallOutcome[Result]) -> Result:
    results, error = ended
    if error is None:
        return results[0]
    try:
        raise error
    finally:
        # The error refers to this frame, and to frames that hold a whole response. A cycle would
        # keep these until the next garbage collection.
        del ended, error
