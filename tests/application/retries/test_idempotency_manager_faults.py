"""What must not go wrong around an operation that runs once: stores, codecs, waits and renewals."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from support.idempotency_forms import LEASE, Form, both, call, real_manager
from support.managers import Bench, Script

from tileferry.adapters.memory import MemoryIdempotencyStore
from tileferry.adapters.system import SystemClock, new_id, offload
from tileferry.application import IdempotencyManager, WhenBusy
from tileferry.domain.errors import (
    DatabaseError,
    InvalidValueError,
    RecordedFailureError,
    ResultNotStorableError,
)
from tileferry.domain.idempotency import InProgress

# A store or a codec that fails


class DeafStore:
    """A store that cannot answer."""

    audit_sink = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def refuse(*_args: object, **_named: object) -> Any:
            raise DatabaseError(problem=f"{name}: cannot be reached", remedy="start the server")

        return refuse


@both
def test_invariant_11_when_the_store_cannot_answer_nothing_runs(form: Form) -> None:
    bench, script = Bench(), Script()
    with pytest.raises(DatabaseError, match="claim: cannot be reached"):
        form(bench.idempotency(store=DeafStore()), script)
    assert script.calls == 0


@both
def test_without_a_heart_a_lease_is_not_renewed(form: Form) -> None:
    bench, script = Bench(), Script()
    assert form(bench.idempotency(heartbeat=None), script) == "done"
    assert (script.calls, bench.heartbeat.every_s) == (1, [])


class ForgetfulStore(MemoryIdempotencyStore):
    """A store that is gone once the claim is granted."""

    def complete(self, *_args: object, **_named: object) -> Any:
        raise DatabaseError(problem="gone", remedy="start the server")

    fail = renew = release = complete


@both
def test_a_result_that_could_not_be_recorded_is_an_error_that_says_what_happened(
    form: Form, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.store = ForgetfulStore(clock=bench.clock)
    with pytest.raises(DatabaseError) as failure:
        form(bench.idempotency(), Script())
    assert failure.value.__notes__ == [
        "the operation was carried out, but its result is not recorded"
    ]
    bench.store.clear("k")
    with pytest.raises(ValueError, match="final") as final:
        form(bench.idempotency(), Script(ValueError("final")))
    assert final.value.__notes__ == [
        "its failure was not recorded: database: gone; start the server"
    ]
    bench.store.clear("k")
    with pytest.raises(KeyboardInterrupt):
        form(bench.idempotency(), Script(KeyboardInterrupt()))
    assert bench.heartbeat.beat()  # the store may be back before the lease ends
    assert caplog.messages == [
        "the lease of idempotency key k was not renewed: database: gone; start the server"
    ]


@both
def test_a_declared_type_that_cannot_be_kept_is_refused_before_anything_runs(form: Form) -> None:
    bench, script = Bench(), Script()
    with pytest.raises(InvalidValueError, match="result_type: has no form in JSON"):
        form(bench.idempotency(), script, result_type=set[int])
    assert script.calls == 0
    assert bench.store.find("k") is None


@both
def test_an_undeclared_result_that_cannot_be_kept_does_not_happen_twice(form: Form) -> None:
    bench, second = Bench(), Script()
    with pytest.raises(ResultNotStorableError, match="was carried out and will not be again"):
        form(bench.idempotency(), Script(result={1, 2}))
    with pytest.raises(RecordedFailureError, match="ResultNotStorableError"):
        form(bench.idempotency(), second)
    assert second.calls == 0


@both
def test_a_store_that_answers_something_else_keeps_the_operation_from_running(form: Form) -> None:
    bench, script = Bench(), Script()
    right = bench.store.claim("other", fingerprint="f", owner="x", lease=LEASE)

    class Lying(MemoryIdempotencyStore):
        answer: Any = None

        def claim(self, *_args: object, **_named: object) -> Any:
            return self.answer

    lying = Lying(clock=bench.clock)
    for answer in (None, right, evolve(right, key="k")):
        Lying.answer = answer
        with pytest.raises(InvalidValueError, match="does not answer what was asked of key k"):
            form(bench.idempotency(store=lying), script)
    assert script.calls == 0


@both
def test_a_codec_that_makes_no_bytes_does_not_lead_to_a_second_effect(form: Form) -> None:
    class Texts:
        def check_type(self, _type: object) -> None: ...

        def encode(self, _result: object) -> Any:
            return "text"

        def decode(self, content: bytes) -> Any:
            return content

    bench, second = Bench(), Script()
    with pytest.raises(ResultNotStorableError, match="the codec made a str of it"):
        form(bench.idempotency(codec=Texts()), Script())
    with pytest.raises(RecordedFailureError):
        form(bench.idempotency(), second)
    assert second.calls == 0


def test_what_to_do_when_busy_may_be_said_in_words() -> None:
    assert call(when_busy="refuse").when_busy is WhenBusy.REFUSE
    with pytest.raises(InvalidValueError, match="when_busy: must be one of wait, refuse"):
        call(when_busy="perhaps")


def test_who_waits_by_default_outlives_a_caller_that_died() -> None:
    manager = IdempotencyManager(
        store=Bench().store, clock=Bench().clock, new_id=new_id, audit=Bench().trail
    )
    assert manager.wait_s_max > manager.lease.total_seconds() + 2
    with pytest.raises(InvalidValueError, match="wait_s_max"):
        Bench().idempotency(wait_s_max=1e9)


def test_a_renewal_that_hangs_does_not_hold_up_the_event_loop() -> None:
    class Slow(MemoryIdempotencyStore):
        def renew(self, *args: Any, **named: Any) -> Any:
            SystemClock.sleep(0.6)
            return super().renew(*args, **named)

    async def main() -> float:
        manager = real_manager(Slow(clock=SystemClock()), Bench())
        gaps = [0.0]

        async def tick() -> None:
            while True:
                before = SystemClock.monotonic()
                await asyncio.sleep(0.01)
                gaps.append(SystemClock.monotonic() - before)

        ticking = asyncio.ensure_future(tick())

        async def work() -> None:
            await asyncio.sleep(0.1)  # until a renewal is under way

        await manager.once_async(work, call())
        ticking.cancel()
        return max(gaps)

    assert asyncio.run(main()) < 0.5


def test_a_claim_that_comes_after_its_caller_was_cancelled_is_given_back() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(MemoryIdempotencyStore):
        def claim(self, *args: Any, **named: Any) -> Any:
            begun.set()
            go_on.wait(10)
            return super().claim(*args, **named)

    async def main() -> None:
        store = Slow(clock=SystemClock())
        task = asyncio.ensure_future(
            real_manager(store, Bench()).once_async(Script().awaited, call())
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
