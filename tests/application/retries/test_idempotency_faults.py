"""What must not go wrong around an operation that runs once: stores, codecs, waits and renewals."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from support.managers import (
    ONCE_LEASE,
    OnceForm,
    RetryBench,
    ScriptedOperation,
    create_once_call,
    create_threaded_manager,
    once_forms,
)

from tileferry.adapters.memory import MemoryIdempotencyStore
from tileferry.adapters.system import SystemClock, new_id, offload
from tileferry.application import IdempotencyManager, WhenBusy
from tileferry.domain.errors import (
    DatabaseError,
    InvalidValueError,
    MisuseError,
    RecordedFailureError,
    ResultNotStorableError,
)
from tileferry.domain.idempotency import InProgress

# A store or a codec that fails


class UnreachableStore:
    """A store that cannot answer."""

    audit_sink = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def refuse(*_args: object, **_named: object) -> Any:
            raise DatabaseError(problem=f"{name}: cannot be reached", remedy="start the server")

        return refuse


@once_forms
def test_invariant_11_nothing_runs_if_store_is_unreachable(form: OnceForm) -> None:
    bench, script = RetryBench(), ScriptedOperation()
    with pytest.raises(DatabaseError, match="claim: cannot be reached"):
        form(bench.create_idempotency_manager(store=UnreachableStore()), script)
    assert script.calls == 0


@once_forms
def test_lease_is_not_renewed_without_heartbeat(form: OnceForm) -> None:
    bench, script = RetryBench(), ScriptedOperation()
    assert form(bench.create_idempotency_manager(heartbeat=None), script) == "done"
    assert (script.calls, bench.heartbeat.every_s) == (1, [])


class StoreFailingAfterClaim(MemoryIdempotencyStore):
    """A store that is gone once the claim is granted."""

    def complete(self, *_args: object, **_named: object) -> Any:
        raise DatabaseError(problem="gone", remedy="start the server")

    fail = renew = release = complete


@once_forms
def test_unrecorded_result_raises_with_explanatory_note(
    form: OnceForm, caplog: pytest.LogCaptureFixture
) -> None:
    bench = RetryBench()
    bench.store = StoreFailingAfterClaim(clock=bench.clock)
    with pytest.raises(DatabaseError) as failure:
        form(bench.create_idempotency_manager(), ScriptedOperation())
    assert failure.value.__notes__ == [
        "the operation was carried out, but its result is not recorded"
    ]
    bench.store.clear("k")
    with pytest.raises(ValueError, match="final") as final:
        form(
            bench.create_idempotency_manager(keep_failures=True),
            ScriptedOperation(ValueError("final")),
        )
    assert final.value.__notes__ == [
        "its failure was not recorded: database: gone; start the server"
    ]
    bench.store.clear("k")
    with pytest.raises(KeyboardInterrupt):
        form(bench.create_idempotency_manager(), ScriptedOperation(KeyboardInterrupt()))
    assert bench.heartbeat.beat()  # the store may be back before the lease ends
    assert caplog.messages == [
        "the lease of idempotency key k was not renewed: database: gone; start the server"
    ]


@once_forms
def test_unserializable_result_type_is_rejected_before_running(form: OnceForm) -> None:
    bench, script = RetryBench(), ScriptedOperation()
    with pytest.raises(MisuseError, match=r"result_type: .* cannot be stored as JSON"):
        form(bench.create_idempotency_manager(), script, result_type=set[int])
    assert script.calls == 0
    assert bench.store.find("k") is None


@once_forms
def test_unserializable_result_is_not_computed_twice(form: OnceForm) -> None:
    bench, second = RetryBench(), ScriptedOperation()
    with pytest.raises(ResultNotStorableError, match="was carried out and will not run again"):
        form(bench.create_idempotency_manager(), ScriptedOperation(result={1, 2}))
    with pytest.raises(RecordedFailureError, match="ResultNotStorableError"):
        form(bench.create_idempotency_manager(), second)
    assert second.calls == 0


@once_forms
def test_wrong_claim_answer_prevents_operation(form: OnceForm) -> None:
    bench, script = RetryBench(), ScriptedOperation()
    right = bench.store.claim("other", fingerprint="f", owner="x", lease=ONCE_LEASE)

    class Lying(MemoryIdempotencyStore):
        answer: Any = None

        def claim(self, *_args: object, **_named: object) -> Any:
            return self.answer

    lying = Lying(clock=bench.clock)
    for answer in (None, right, evolve(right, key="k")):
        Lying.answer = answer
        with pytest.raises(MisuseError, match="returned an unrelated record for key k"):
            form(bench.create_idempotency_manager(store=lying), script)
    assert script.calls == 0


@once_forms
def test_codec_returning_non_bytes_does_not_repeat_effect(form: OnceForm) -> None:
    class Texts:
        def check_type(self, _type: object) -> None: ...

        def encode(self, _result: object) -> Any:
            return "text"

        def decode(self, content: bytes) -> Any:
            return content

    bench, second = RetryBench(), ScriptedOperation()
    with pytest.raises(ResultNotStorableError, match="the codec made a str of it"):
        form(bench.create_idempotency_manager(codec=Texts()), ScriptedOperation())
    with pytest.raises(RecordedFailureError):
        form(bench.create_idempotency_manager(), second)
    assert second.calls == 0


def test_when_busy_accepts_strings() -> None:
    assert create_once_call(when_busy="refuse").when_busy is WhenBusy.REFUSE
    with pytest.raises(InvalidValueError, match="when_busy: must be one of wait, refuse"):
        create_once_call(when_busy="perhaps")


def test_default_wait_exceeds_lease_of_crashed_caller() -> None:
    manager = IdempotencyManager(
        store=RetryBench().store, clock=RetryBench().clock, new_id=new_id, audit=RetryBench().trail
    )
    assert manager.wait_s_max > manager.lease.total_seconds() + 2
    with pytest.raises(InvalidValueError, match="wait_s_max"):
        RetryBench().create_idempotency_manager(wait_s_max=1e9)


def test_slow_renewal_does_not_block_event_loop() -> None:
    class Slow(MemoryIdempotencyStore):
        def renew(self, *args: Any, **named: Any) -> Any:
            SystemClock.sleep(0.6)
            return super().renew(*args, **named)

    async def main() -> float:
        manager = create_threaded_manager(Slow(clock=SystemClock()), RetryBench())
        gaps = [0.0]

        async def tick() -> None:
            while True:
                before = SystemClock.monotonic()
                await asyncio.sleep(0.01)
                gaps.append(SystemClock.monotonic() - before)

        ticking = asyncio.ensure_future(tick())

        async def work() -> None:
            await asyncio.sleep(0.1)  # until a renewal is under way

        await manager.run_once_async(work, create_once_call())
        ticking.cancel()
        return max(gaps)

    assert asyncio.run(main()) < 0.5


def test_claim_granted_after_cancellation_is_released() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(MemoryIdempotencyStore):
        def claim(self, *args: Any, **named: Any) -> Any:
            begun.set()
            go_on.wait(10)
            return super().claim(*args, **named)

    async def main() -> None:
        store = Slow(clock=SystemClock())
        task = asyncio.ensure_future(
            create_threaded_manager(store, RetryBench()).run_once_async(
                ScriptedOperation().run_async, create_once_call()
            )
        )
        await offload(lambda: begun.wait(10))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        while (record := store.find("k")) is None or (  # noqa: ASYNC110  # nobody tells
            isinstance(record.state, InProgress)
            and record.state.lease_expires_at.timestamp() > SystemClock.now()
        ):
            await asyncio.sleep(0.005)

    begun_s = SystemClock.monotonic()
    asyncio.run(main())
    assert SystemClock.monotonic() - begun_s < 5
