"""A deadline for a call that has none of its own.

httpx waits for each piece of an answer anew, so that a provider that sends a byte now and then, or
"103 Early Hints" without end, keeps a caller for as long as it likes. So does one that takes a byte
of a request now and then.
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
    """Return what ``call`` returns, or raise what it raises, or ``httpx.ReadTimeout`` in time.

    The call is made in a thread of its own, and left to itself when it is late. Whoever waits here
    in the main thread can be interrupted at any moment.
    """
    outcome: SimpleQueue[CallOutcome[Result]] = SimpleQueue()
    _start_thread(call, outcome.put)
    ended = _wait_for(outcome, seconds, httpx.ReadTimeout, "it had not ended")
    return _unwrap_outcome(ended)


@define(eq=False)
class OutgoingBody:
    """A body on its way: told is when all of it was taken; known is whether anybody still waits."""

    _tell_sent: Callable[[], None]
    is_left: bool = field(default=False, init=False)

    def stream(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the body; no more of it than is needed, once nobody waits for its answer."""
        for piece in pieces:
            if self.is_left:
                raise httpx.WriteTimeout("the caller no longer waits for the response")
            yield piece
        self._tell_sent()


def send_within(
    sending_s: float, answer_s: float, call: Callable[[OutgoingBody], Result]
) -> Result:
    """Do as ``within``: the body has one deadline, and from then on the answer has another."""
    news: SimpleQueue[CallOutcome[Result] | None] = SimpleQueue()  # nothing: it has been sent
    outgoing = OutgoingBody(lambda: news.put(None))
    _start_thread(lambda: call(outgoing), news.put)
    try:
        ended = _wait_for(news, sending_s, httpx.WriteTimeout, "it had not been sent")
        while ended is None:
            ended = _wait_for(news, answer_s, httpx.ReadTimeout, "it had not been answered")
    finally:
        outgoing.is_left = True
    return _unwrap_outcome(ended)


def _start_thread(call: Callable[[], Result], tell: Callable[[CallOutcome[Result]], None]) -> None:
    def attempt() -> None:
        try:
            tell(([call()], None))
        except BaseException as error:  # noqa: BLE001  # raised again by who waits
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
    if error is not None:
        raise error
    return results[0]
