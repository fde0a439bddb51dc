"""Retry and idempotency managers over memory, whose time passes only when they wait."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import pytest
from attrs import define, field

from tileferry.adapters.memory import ManualClock, MemoryAuditSink, MemoryIdempotencyStore
from tileferry.adapters.system import SharedPace, SystemClock, ThreadHeartbeat, new_id, offload
from tileferry.application import AuditTrail, IdempotencyManager, RetryManager
from tileferry.application.audit import CallContext
from tileferry.application.ports.clock import Clock
from tileferry.application.retries.idempotent_call import IdempotentCall
from tileferry.domain.audit import AuditEvent, RetryAttempted
from tileferry.domain.canonical import JsonValue
from tileferry.domain.retry import Pace, RetryCategory, RetryPolicy

Result = TypeVar("Result")
LOGGER = logging.getLogger("tests.managers")


async def run_inline(call: Callable[[], Result], /) -> Result:
    """Make the call where we are."""
    return call()


class ScriptedOperation:
    """An operation that raises what it is told, one call after the other, and then returns."""

    def __init__(self, *errors: BaseException, result: Any = "done") -> None:
        self.errors = list(errors)
        self.result = result
        self.calls = 0

    def __call__(self) -> JsonValue:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return cast("JsonValue", self.result)

    async def run_async(self) -> JsonValue:
        """Do the same, awaited."""
        return self()


class ManualHeartbeat:
    """Beats when it is told to."""

    def __init__(self) -> None:
        self.every_s: list[float] = []
        self.beat: Callable[[], bool] = lambda: False

    def start(self, beat: Callable[[], bool], *, every_s: float) -> AbstractContextManager[None]:
        @contextmanager
        def block() -> Iterator[None]:
            self.every_s.append(every_s)
            self.beat = beat
            yield

        return block()


@define
class RetryBench:
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

    def create_idempotency_manager(self, **options: Any) -> IdempotencyManager:
        defaults: dict[str, Any] = {
            "store": self.store,
            "clock": self.clock,
            "new_id": self.new_id,
            "audit": self.trail,
            "sleep": self.clock.sleep_async,
            "offload": run_inline,
            "heartbeat": self.heartbeat,
            "lease": timedelta(seconds=30),
        }
        return IdempotencyManager(**(defaults | options))

    def create_manager(self, **options: Any) -> RetryManager:
        defaults: dict[str, Any] = {
            "clock": self.clock,
            "new_id": self.new_id,
            "audit": self.trail,
            "sleep": self.clock.sleep_async,
            "offload": run_inline,
            "idempotency_manager": self.create_idempotency_manager(),
        }
        return RetryManager(**(defaults | options))

    @property
    def events(self) -> Sequence[AuditEvent]:
        return self.sink.events

    @property
    def retries(self) -> list[RetryAttempted]:
        """Return the retries that were audited, in order."""
        return [event for event in self.events if isinstance(event, RetryAttempted)]

    @property
    def kinds(self) -> list[str]:
        """The types of the events, in order."""
        return [event.event_type for event in self.events]


class FailingSink:
    """A sink that takes nothing."""

    name = "broken"

    def emit(self, _events: object) -> None:
        raise OSError("disk full")


class TelemetryRecorder:
    """Notes what it is told of each call."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def begin(self, call: Any) -> "TelemetryRecorder":
        self.told.append((call.category, call.operation, call.correlation_id))
        return self

    def on_attempt_failed(self, attempt: Any) -> None:
        self.told.append(attempt.error_type)

    def on_idempotency(self, action: Any) -> None:
        self.told.append(str(action))

    def on_success(self, attempts: int) -> None:
        self.told.append(attempts)

    def on_failure(self, error: BaseException) -> None:
        self.told.append(type(error))


def create_pace(clock: Clock, concurrency_max: int = 8) -> SharedPace:
    """Return the pace of a source, at full speed."""
    return SharedPace(clock=clock, pace=Pace(concurrency_max=concurrency_max))


def find_log_messages(caplog: pytest.LogCaptureFixture, kind: str) -> list[str]:
    """Return the messages of one kind."""
    return [
        record.getMessage() for record in caplog.records if getattr(record, "kind", None) == kind
    ]


# Every way in which the retry manager is called, as one kind of function

PUBLISH = RetryCategory.NATS_PUBLISH
PLAIN_POLICY = RetryPolicy(max_attempts=3, jitter_enabled=False)
OPERATION = "Publish to exoarmur.audit.append.v1"

Form = Callable[..., Any]


def call_sync(manager: RetryManager, script: ScriptedOperation, **options: Any) -> Any:
    return manager.execute_with_retry_sync(PUBLISH, OPERATION, script, **options)


def call_async(manager: RetryManager, script: ScriptedOperation, **options: Any) -> Any:
    return asyncio.run(manager.execute_with_retry(PUBLISH, OPERATION, script.run_async, **options))


sync_and_async = pytest.mark.parametrize("form", [call_sync, call_async])


def call_in_loop(manager: RetryManager, script: ScriptedOperation, **options: Any) -> Any:
    for attempt in manager.attempts(PUBLISH, OPERATION, **options):
        with attempt:
            return script()
    raise AssertionError


def call_in_async_loop(manager: RetryManager, script: ScriptedOperation, **options: Any) -> Any:
    async def main() -> Any:
        async for attempt in manager.attempts(PUBLISH, OPERATION, **options):
            async with attempt:
                return await script.run_async()
        raise AssertionError

    return asyncio.run(main())


def call_decorated(manager: RetryManager, script: ScriptedOperation, **options: Any) -> Any:
    @manager.retries(PUBLISH, operation=OPERATION, **options)
    def work() -> Any:
        return script()

    return work()


def call_async_decorated(manager: RetryManager, script: ScriptedOperation, **options: Any) -> Any:
    @manager.retries(PUBLISH, operation=OPERATION, **options)
    async def work() -> Any:
        return await script.run_async()

    return asyncio.run(work())


every_form = pytest.mark.parametrize(
    "form",
    [call_sync, call_async, call_in_loop, call_in_async_loop, call_decorated, call_async_decorated],
)


ONCE_CONTEXT = CallContext(category="RETRY_KV_PUT", operation="Store kill switch state")
ONCE_LEASE = timedelta(seconds=30)
OnceForm = Callable[..., Any]


def create_once_call(**options: Any) -> IdempotentCall:
    return IdempotentCall(key="k", context=ONCE_CONTEXT, **({"result_type": JsonValue} | options))


def call_once(manager: IdempotencyManager, script: ScriptedOperation, **options: Any) -> Any:
    return manager.run_once(script, create_once_call(**options))


def call_once_async(manager: IdempotencyManager, script: ScriptedOperation, **options: Any) -> Any:
    return asyncio.run(manager.run_once_async(script.run_async, create_once_call(**options)))


once_forms = pytest.mark.parametrize("form", [call_once, call_once_async])


def create_threaded_manager(
    store: MemoryIdempotencyStore, bench: RetryBench, *, lease_s: float = 0.15
) -> IdempotencyManager:
    return IdempotencyManager(
        store=store,
        clock=SystemClock(),
        new_id=new_id,
        audit=AuditTrail(logger=bench.trail.logger, sinks=[bench.sink]),
        sleep=SystemClock.sleep_async,
        offload=offload,
        heartbeat=ThreadHeartbeat(),
        lease=timedelta(seconds=lease_s),
    )
