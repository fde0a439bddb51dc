"""The drivers of the retry loop: they call and wait, the loop decides.

``call_with_retry`` and ``call_with_retry_async`` call a function. ``Attempts`` is for code that
does not fit into one function::

    for attempt in manager.attempts(RetryCategory.API_REQUEST, "Fetch the listing"):
        with attempt:
            page = fetch()

``async for`` with ``async with`` does the same without blocking the event loop.

A call that succeeds at once costs one look at the clock: the loop and the observer are created at
the first failure.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from attrs import define, field

from tileferry.domain.errors import MisuseError
from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # only a failure needs them
    from tileferry.application.ports.clock import AsyncSleep, Clock, Offload
    from tileferry.application.ports.retries import RetryTokens
    from tileferry.domain.retry import Classifier, FailedAttempt, GiveUp, RetryLoop, RetryPolicy

Result = TypeVar("Result")
_NOT_CALLED = object()
JitterKey = str | Callable[[], str]
"""What the jitter is derived from; a function is called at the first failure."""


class RetryObserver(Protocol):
    """Observes a call that does not succeed at once."""

    def on_attempt_failed(self, attempt: FailedAttempt) -> None:
        """Note a failed attempt and its decision, before the decision is acted on."""
        ...

    def on_success(self, loop: RetryLoop) -> None:
        """Note a success after failures."""
        ...


@define
class RetryState:
    """A call after its first failure: the loop, and the observer of its decisions.

    It neither calls nor waits; the drivers and ``Attempts`` do that.
    """

    loop: RetryLoop
    clock: Clock
    tokens: RetryTokens | None
    observer: RetryObserver | None

    def record_failure(self, error: Exception) -> Callable[[], None]:
        """Decide what follows a failed attempt; return a function that notifies the observer."""
        now_s, loop = self.clock.monotonic(), self.loop
        if self.tokens is None:
            loop.record_failure(error, now_s=now_s)
        else:
            found = loop.classify(error)
            self.tokens.charge(
                lambda held: loop.record_failure(error, now_s=now_s, budget=held, error_class=found)
            )
        return partial(self._notify_failure, loop.history[-1])

    @property
    def is_over(self) -> bool:
        """Whether the last failure was final."""
        return isinstance(self.loop.history[-1].decision, GiveUp)

    def get_delay(self, error: Exception) -> float | None:
        """Return the wait before the next attempt; ``None`` when ``error`` is final."""
        return self.loop.get_delay(error)

    def notify_success(self) -> None:
        """Notify the observer of a success after failures."""
        if self.observer is not None:
            self.observer.on_success(self.loop)

    def _notify_failure(self, attempt: FailedAttempt) -> None:
        if self.observer is not None:
            self.observer.on_attempt_failed(attempt)


def drive(
    call: Callable[[], Result],
    clock: Clock,
    tokens: RetryTokens | None,
    begin: Callable[..., RetryState],
    arguments: tuple[Any, ...] = (),
) -> Result:
    """Return the result of ``call``, retrying as the state decides.

    The first failure creates the state with ``begin(started_s, *arguments)``. Parameters are
    positional and nothing is created earlier, because nearly every call succeeds at once.
    """
    state, started_s = None, clock.monotonic()
    while True:
        try:
            result = call()
        except Exception as error:
            if state is None:
                state = _begin(call, begin, started_s, arguments)
            state.record_failure(error)()
            delay_s = state.get_delay(error)
            if delay_s is None:
                raise
        else:
            if hasattr(type(result), "__await__"):
                raise not_callable_error(result)
            if tokens is not None:
                tokens.note_success()
            if state is not None:
                state.notify_success()
            return result
        clock.sleep(delay_s)


async def drive_async(  # noqa: PLR0917  # positional calls are cheaper
    call: Callable[[], Awaitable[Result]],
    clock: Clock,
    tokens: RetryTokens | None,
    sleep: AsyncSleep,
    offload: Offload | None,
    begin: Callable[..., RetryState],
    arguments: tuple[Any, ...] = (),
) -> Result:
    """Do what ``drive`` does, for a ``call`` that returns a new awaitable each time.

    With ``offload``, the observer runs off the event loop: it may wait for a disk or a database.
    """
    state, started_s = None, clock.monotonic()
    while True:
        pending: Any = _NOT_CALLED
        try:
            pending = call()
            result: Result = await pending
        except Exception as error:
            if not (pending is _NOT_CALLED or hasattr(type(pending), "__await__")):
                raise not_callable_error(pending) from None
            if state is None:
                state = _begin(call, begin, started_s, arguments)
            await _notify(state.record_failure(error), offload)
            delay_s = state.get_delay(error)
            if delay_s is None:
                raise
        else:
            if tokens is not None:
                tokens.note_success()
            if state is not None:
                await _notify(state.notify_success, offload)
            return result
        await sleep(delay_s)


def call_with_retry(
    call: Callable[[], Result],
    *,
    policy: RetryPolicy,
    key: JitterKey,
    category: str,
    operation: str,
    clock: Clock,
    classifier: Classifier | None = None,
    observer: Callable[[], RetryObserver] | None = None,
    tokens: RetryTokens | None = None,
) -> Result:
    """Return the result of ``call``, retrying by ``policy``.

    A final error is raised unchanged; when retries are exhausted, ``RetryError`` is raised from the
    last error. Interrupts and cancellations (not an ``Exception``) are never retried.
    """
    begin = partial(
        _create_state, policy, key, category, operation, classifier, observer, clock, tokens
    )
    return drive(call, clock, tokens, begin)


def call_with_retry_async(
    call: Callable[[], Awaitable[Result]],
    *,
    policy: RetryPolicy,
    key: JitterKey,
    category: str,
    operation: str,
    clock: Clock,
    sleep: AsyncSleep,
    classifier: Classifier | None = None,
    observer: Callable[[], RetryObserver] | None = None,
    offload: Offload | None = None,
    tokens: RetryTokens | None = None,
) -> Coroutine[Any, Any, Result]:
    """Do what ``call_with_retry`` does, for a ``call`` that returns a new awaitable each time."""
    begin = partial(
        _create_state, policy, key, category, operation, classifier, observer, clock, tokens
    )
    return drive_async(call, clock, tokens, sleep, offload, begin)


def _create_state(  # noqa: PLR0917  # the parameters of its callers
    policy: RetryPolicy,
    key: JitterKey,
    category: str,
    operation: str,
    classifier: Classifier | None,
    observer: Callable[[], RetryObserver] | None,
    clock: Clock,
    tokens: RetryTokens | None,
    started_s: float,
) -> RetryState:
    loop = RetryLoop(
        policy=policy,
        key=key if isinstance(key, str) else key(),
        started_s=started_s,
        classifier=classifier,
        category=category,
        operation=operation,
    )
    return RetryState(loop, clock, tokens, observer() if observer else None)


def _begin(
    call: object,
    begin: Callable[..., RetryState],
    started_s: float,
    arguments: tuple[Any, ...],
) -> RetryState:
    if not callable(call):  # checked only after a failure, to keep successful calls cheap
        raise not_callable_error(call) from None
    return begin(started_s, *arguments)


async def _notify(notify: Callable[[], None], offload: Offload | None) -> None:
    if offload is None:
        notify()
    else:
        await offload(notify)


def not_callable_error(value: object) -> MisuseError:
    """Return the error for a value that cannot be called, such as an awaitable."""
    close = getattr(value, "close", None)
    if hasattr(type(value), "__await__") and close is not None:
        close()  # so that Python does not warn that it was never awaited
    return MisuseError(
        what="call",
        problem=f"a {type(value).__name__} cannot be called again",
        remedy="pass a function: for call_with_retry_async one that returns a new awaitable each "
        "time, for call_with_retry one that returns a plain result",
    )


@define(kw_only=True)
class Attempts:
    """Yields attempts and waits between them; a success ends the iteration."""

    clock: Clock
    sleep: AsyncSleep
    offload: Offload | None
    tokens: RetryTokens | None
    begin: Callable[[float], RetryState]
    """Creates the state at the first failure, from the time at which the first attempt began."""
    on_begin: Callable[[], None]
    """Called before the first attempt."""
    on_end: Callable[[BaseException | None], None]
    """Called after the last attempt, with its error."""
    _state: RetryState | None = field(default=None, init=False)
    _started_s: float = field(default=0.0, init=False)

    def __iter__(self) -> Iterator["Attempt"]:
        attempt = self._create_first()
        while True:
            yield attempt
            delay_s = attempt.delay_s
            if delay_s is None:
                return
            self.clock.sleep(delay_s)
            attempt = Attempt(self)

    async def __aiter__(self) -> AsyncIterator["Attempt"]:
        attempt = self._create_first()
        while True:
            yield attempt
            delay_s = attempt.delay_s
            if delay_s is None:
                return
            await self.sleep(delay_s)
            attempt = Attempt(self)

    def _create_first(self) -> "Attempt":
        self.begin_first(self.clock.monotonic())
        return Attempt(self)

    def begin_first(self, started_s: float) -> None:
        """Note when the first attempt began, for a caller that waits and calls by itself."""
        self._state = None
        self._started_s = started_s
        self.on_begin()

    def record_failure(self, error: Exception) -> Callable[[], None]:
        """Decide what follows a failed attempt; return a function that notifies the observer."""
        if self._state is None:
            self._state = self.begin(self._started_s)
        return self._state.record_failure(error)

    def notify_success(self) -> None:
        """Credit the budget; notify the observer of a success after failures, and telemetry."""
        if self.tokens is not None:
            self.tokens.note_success()
        if self._state is not None:
            self._state.notify_success()
        self.on_end(None)

    def get_delay(self, error: Exception) -> float | None:
        """Return the wait before the next attempt; ``None`` when ``error`` is final."""
        assert self._state is not None  # noqa: S101  # created by the failure
        if self._state.is_over:
            self.on_end(error)
        return self._state.get_delay(error)


@define
class Attempt:
    """The context manager of one attempt; it suppresses an error that will be retried."""

    _attempts: Attempts
    _is_used: bool = field(default=False, init=False)
    _delay_s: float | None = field(default=None, init=False)

    @property
    def delay_s(self) -> float | None:
        """The wait before the next attempt; ``None`` when there is none."""
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
        if error is None:
            self._attempts.notify_success()
            return False
        if not isinstance(error, Exception):
            self._attempts.on_end(error)
            return False
        self._attempts.record_failure(error)()
        self._delay_s = self._attempts.get_delay(error)
        return self._delay_s is not None

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        offload = self._attempts.offload
        if error is None:
            await _notify(self._attempts.notify_success, offload)
            return False
        if not isinstance(error, Exception):
            self._attempts.on_end(error)
            return False
        await _notify(self._attempts.record_failure(error), offload)
        self._delay_s = self._attempts.get_delay(error)
        return self._delay_s is not None
