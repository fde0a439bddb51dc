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
Outcome = tuple[list[Result], BaseException | None]


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """Return what ``call`` returns, or raise what it raises, or ``httpx.ReadTimeout`` in time.

    The call is made in a thread of its own, and left to itself when it is late. Whoever waits here
    in the main thread can be interrupted at any moment.
    """
    outcome: SimpleQueue[Outcome[Result]] = SimpleQueue()
    _begin(call, outcome.put)
    ended = _next(outcome, seconds, httpx.ReadTimeout, "it had not ended")
    return _result_of(ended)


@define(eq=False)
class Outgoing:
    """A body on its way: told is when all of it was taken; known is whether anybody still waits."""

    _tell_sent: Callable[[], None]
    is_left: bool = field(default=False, init=False)

    def body(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the body; no more of it than is needed, once nobody waits for its answer."""
        for piece in pieces:
            if self.is_left:
                raise httpx.WriteTimeout("nobody waits for the answer any more")
            yield piece
        self._tell_sent()


def sent_within(sending_s: float, answer_s: float, call: Callable[[Outgoing], Result]) -> Result:
    """Do as ``within``: the body has one deadline, and from then on the answer has another."""
    news: SimpleQueue[Outcome[Result] | None] = SimpleQueue()  # nothing: it has been sent
    outgoing = Outgoing(lambda: news.put(None))
    _begin(lambda: call(outgoing), news.put)
    try:
        ended = _next(news, sending_s, httpx.WriteTimeout, "it had not been sent")
        while ended is None:
            ended = _next(news, answer_s, httpx.ReadTimeout, "it had not been answered")
    finally:
        outgoing.is_left = True
    return _result_of(ended)


def _begin(call: Callable[[], Result], tell: Callable[[Outcome[Result]], None]) -> None:
    def attempt() -> None:
        try:
            tell(([call()], None))
        except BaseException as error:  # noqa: BLE001  # raised again by who waits
            tell(([], error))

    threading.Thread(target=attempt, name="tileferry-call", daemon=True).start()


def _next(
    news: SimpleQueue[News], seconds: float, late: type[httpx.TimeoutException], what: str
) -> News:
    try:
        return news.get(timeout=seconds)
    except Empty:
        raise late(f"{what} after {seconds:g} s") from None


def _result_of(ended: Outcome[Result]) -> Result:
    results, error = ended
    if error is not None:
        raise error
    return results[0]
