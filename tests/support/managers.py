"""Retry and idempotency managers over memory, whose time passes only when they wait."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from attrs import define, field

from tileferry.adapters.memory import ManualClock, MemoryAuditSink, MemoryIdempotencyStore
from tileferry.application import AuditTrail, IdempotencyManager, RetryManager
from tileferry.domain.audit import AuditEvent
from tileferry.domain.retry import RetryCategory, RetryPolicy

Result = TypeVar("Result")
LOGGER = logging.getLogger("tests.managers")


async def inline(call: Callable[[], Result], /) -> Result:
    """Make the call where we are."""
    return call()


class Script:
    """An operation that raises what it is told, one call after the other, and then returns."""

    def __init__(self, *errors: BaseException, result: Any = "done") -> None:
        self.errors = list(errors)
        self.result = result
        self.calls = 0

    def __call__(self) -> Any:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.result

    async def awaited(self) -> Any:
        """Do the same, awaited."""
        return self()


class ManualHeartbeat:
    """Beats when it is told to."""

    def __init__(self) -> None:
        self.every_s: list[float] = []
        self.beat: Callable[[], bool] = lambda: False

    def beating(self, beat: Callable[[], bool], *, every_s: float) -> AbstractContextManager[None]:
        @contextmanager
        def block() -> Iterator[None]:
            self.every_s.append(every_s)
            self.beat = beat
            yield

        return block()


@define
class Bench:
    """Everything that a test of the managers looks at."""

    clock: ManualClock = field(factory=ManualClock)
    sink: MemoryAuditSink = field(factory=MemoryAuditSink)
    heartbeat: ManualHeartbeat = field(factory=ManualHeartbeat)
    store: MemoryIdempotencyStore = field(init=False)
    trail: AuditTrail = field(init=False)
    _numbers: Iterator[int] = field(factory=itertools.count, init=False)

    def __attrs_post_init__(self) -> None:
        self.store = MemoryIdempotencyStore(clock=self.clock)
        self.trail = AuditTrail(logger=LOGGER, sinks=[self.sink])

    def new_id(self) -> str:
        return f"call-{next(self._numbers)}"

    def idempotency(self, **options: Any) -> IdempotencyManager:
        defaults: dict[str, Any] = {
            "store": self.store,
            "clock": self.clock,
            "new_id": self.new_id,
            "audit": self.trail,
            "sleep": self.clock.sleep_async,
            "offload": inline,
            "heartbeat": self.heartbeat,
            "lease": timedelta(seconds=30),
        }
        return IdempotencyManager(**(defaults | options))

    def manager(self, **options: Any) -> RetryManager:
        defaults: dict[str, Any] = {
            "clock": self.clock,
            "new_id": self.new_id,
            "audit": self.trail,
            "sleep": self.clock.sleep_async,
            "offload": inline,
            "idempotency_manager": self.idempotency(),
        }
        return RetryManager(**(defaults | options))

    @property
    def events(self) -> Sequence[AuditEvent]:
        return self.sink.events

    @property
    def kinds(self) -> list[str]:
        """The types of the events, in order."""
        return [event.event_type for event in self.events]


class BrokenSink:
    """A sink that takes nothing."""

    name = "broken"

    def emit(self, _events: object) -> None:
        raise OSError("disk full")


class Recorder:
    """Notes what it is told of each call."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def begin(self, call: Any) -> "Recorder":
        self.told.append((call.category, call.operation, call.correlation_id))
        return self

    def attempt_failed(self, attempt: Any) -> None:
        self.told.append(attempt.error_type)

    def idempotency(self, action: Any) -> None:
        self.told.append(str(action))

    def succeeded(self, attempts: int) -> None:
        self.told.append(attempts)

    def failed(self, error: BaseException) -> None:
        self.told.append(type(error))


def logged(caplog: pytest.LogCaptureFixture, kind: str) -> list[str]:
    """Return the messages of one kind."""
    return [
        record.getMessage() for record in caplog.records if getattr(record, "kind", None) == kind
    ]


# Every way in which the retry manager is called, as one kind of function

PUBLISH = RetryCategory.NATS_PUBLISH
PLAIN = RetryPolicy(max_attempts=3, jitter_enabled=False)
OPERATION = "Publish to exoarmur.audit.append.v1"

Form = Callable[..., Any]


def sync_form(manager: RetryManager, script: Script, **options: Any) -> Any:
    return manager.execute_with_retry_sync(PUBLISH, OPERATION, script, **options)


def async_form(manager: RetryManager, script: Script, **options: Any) -> Any:
    return asyncio.run(manager.execute_with_retry(PUBLISH, OPERATION, script.awaited, **options))


both = pytest.mark.parametrize("form", [sync_form, async_form])


def loop_form(manager: RetryManager, script: Script, **options: Any) -> Any:
    for attempt in manager.attempts(PUBLISH, OPERATION, **options):
        with attempt:
            return script()
    raise AssertionError


def async_loop_form(manager: RetryManager, script: Script, **options: Any) -> Any:
    async def main() -> Any:
        async for attempt in manager.attempts(PUBLISH, OPERATION, **options):
            async with attempt:
                return await script.awaited()
        raise AssertionError

    return asyncio.run(main())


def decorator_form(manager: RetryManager, script: Script, **options: Any) -> Any:
    @manager.retries(PUBLISH, operation=OPERATION, **options)
    def work() -> Any:
        return script()

    return work()


def async_decorator_form(manager: RetryManager, script: Script, **options: Any) -> Any:
    @manager.retries(PUBLISH, operation=OPERATION, **options)
    async def work() -> Any:
        return await script.awaited()

    return asyncio.run(work())


every_form = pytest.mark.parametrize(
    "form",
    [sync_form, async_form, loop_form, async_loop_form, decorator_form, async_decorator_form],
)
