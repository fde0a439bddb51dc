"""Retries in the form of a loop, for code that does not fit into one function::

    for attempt in manager.attempts(RetryCategory.API_REQUEST, "Fetch the listing"):
        with attempt:
            page = fetch()

``async for`` with ``async with`` does the same without holding up the event loop.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Self

from attrs import define, field

from tileferry.application.ports.clock import AsyncSleep, Clock, Offload
from tileferry.application.ports.retries import RetryTokens
from tileferry.application.retries.driver import (
    JitterKey,
    RetryObserver,
    create_loop,
    decide_after_failure,
    get_delay_or_raise,
)
from tileferry.domain.errors import MisuseError
from tileferry.domain.retry import Classifier, FailedAttempt, GiveUp, RetryLoop, RetryPolicy


def _do_nothing(*_told: object) -> None:
    """For when nobody looks on."""


@define(kw_only=True)
class Attempts:
    """Yields one attempt after the other, and waits between them; a success ends it."""

    policy: RetryPolicy
    key: JitterKey
    category: str
    operation: str
    clock: Clock
    sleep: AsyncSleep
    offload: Offload | None = None
    classifier: Classifier | None = None
    observer: Callable[[], RetryObserver]
    """Makes who is told of failures, at the first one."""
    tokens: RetryTokens | None = None
    begin: Callable[[], None] = _do_nothing
    """Is told that the attempts begin."""
    end: Callable[[BaseException | None], None] = _do_nothing
    """Is told how they ended."""
    _loop: RetryLoop | None = field(default=None, init=False)
    _observing: RetryObserver | None = field(default=None, init=False)
    _started_s: float = field(default=0.0, init=False)

    def __iter__(self) -> Iterator["Attempt"]:
        self._begin()
        while True:
            attempt = Attempt(self)
            yield attempt
            delay_s = attempt.delay_s
            if delay_s is None:
                return
            self.clock.sleep(delay_s)

    async def __aiter__(self) -> AsyncIterator["Attempt"]:
        self._begin()
        while True:
            attempt = Attempt(self)
            yield attempt
            delay_s = attempt.delay_s
            if delay_s is None:
                return
            await self.sleep(delay_s)

    def _begin(self) -> None:
        self._loop = self._observing = None
        if self.tokens is not None:
            self.tokens.note_first_attempt()
        self._started_s = self.clock.monotonic()
        self.begin()

    def note_failure(self, error: Exception) -> FailedAttempt:
        """Decide what follows a failed attempt."""
        if self._loop is None:
            self._loop = create_loop(self.policy, self.key, self._started_s, self.classifier)
            self._observing = self.observer()
        return decide_after_failure(self._loop, error, self.clock, self.tokens)

    def notify_failure(self, attempt: FailedAttempt) -> None:
        """Tell the observer of a failure."""
        assert self._observing is not None  # noqa: S101  # there was a failure
        self._observing.on_attempt_failed(attempt)

    def notify_success(self) -> None:
        """Tell the observer of a success after failures."""
        if self._observing is not None and self._loop is not None:
            self._observing.on_success(self._loop)
        self.end(None)

    def get_delay(self, attempt: FailedAttempt, error: Exception) -> float:
        """Return how long to wait now, or raise that there is nothing to wait for."""
        loop = self._loop
        assert loop is not None  # noqa: S101  # there was a failure
        return get_delay_or_raise(loop, attempt, error, self.category, self.operation)


@define
class Attempt:
    """The block that is tried; it swallows an error that is worth another attempt."""

    _attempts: Attempts
    _is_used: bool = field(default=False, init=False)
    _delay_s: float | None = field(default=None, init=False)

    @property
    def delay_s(self) -> float | None:
        """How long to wait for the next attempt; ``None`` when there shall be none."""
        if not self._is_used:
            raise MisuseError(
                what="attempt",
                problem="was never entered, so its outcome is unknown",
                remedy="run the operation inside `with attempt:`",
            )
        return self._delay_s

    def __enter__(self) -> Self:
        if self._is_used:
            raise MisuseError(
                what="attempt",
                problem="has ended and cannot be entered again",
                remedy="take the next attempt from the loop",
            )
        self._is_used = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            if error is None:
                self._attempts.notify_success()
            else:
                self._attempts.end(error)
            return False
        failed = self._attempts.note_failure(error)
        self._attempts.notify_failure(failed)
        return self._schedule_next(failed, error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            if error is None:
                await self._run_off_loop(self._attempts.notify_success)
            else:
                self._attempts.end(error)
            return False
        failed = self._attempts.note_failure(error)
        await self._run_off_loop(partial(self._attempts.notify_failure, failed))
        return self._schedule_next(failed, error)

    def _schedule_next(self, failed: FailedAttempt, error: Exception) -> bool:
        decision = failed.decision
        if isinstance(decision, GiveUp):
            self._attempts.end(error)
            if decision.is_final:
                return False  # the error goes its way, as it is
        self._delay_s = self._attempts.get_delay(failed, error)
        return True

    async def _run_off_loop(self, tell: Callable[[], None]) -> None:
        if self._attempts.offload is None:
            tell()
        else:
            await self._attempts.offload(tell)
