"""The idempotency manager: once under a key, the same answer for everybody, or nothing at all."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from support.managers import (
    ONCE_LEASE,
    OnceForm,
    RetryBench,
    ScriptedOperation,
    call_once,
    call_once_async,
    create_once_call,
    create_threaded_manager,
    once_forms,
)

from tileferry.adapters.memory import MemoryIdempotencyStore
from tileferry.adapters.system import SystemClock, offload
from tileferry.application import StoredResult, WhenBusy
from tileferry.domain.audit import IdempotencyUsed
from tileferry.domain.errors import (
    IdempotencyConflictError,
    IdempotencyInProgressError,
    IdempotencyLostError,
    InvalidValueError,
    MisuseError,
    RecordedFailureError,
    ResultNotStorableError,
    RetryError,
)
from tileferry.domain.idempotency import InProgress, PermanentFailure
from tileferry.domain.retry import GiveUpReason


@once_forms
def test_spec2_operation_runs_once_and_result_is_shared(form: OnceForm) -> None:
    bench = RetryBench()
    first, second = ScriptedOperation(result={"on": True}), ScriptedOperation()
    assert form(bench.create_idempotency_manager(), first) == {"on": True}
    assert form(bench.create_idempotency_manager(), second) == {"on": True}
    assert (first.calls, second.calls) == (1, 0)
    assert [event.action for event in bench.events if isinstance(event, IdempotencyUsed)] == [
        "record",
        "hit",
    ]


@once_forms
def test_first_caller_gets_same_decoded_result_as_later_ones(form: OnceForm) -> None:
    bench = RetryBench()
    assert form(bench.create_idempotency_manager(), ScriptedOperation(result=(1, 2.0))) == [1, 2]
    assert form(bench.create_idempotency_manager(), ScriptedOperation()) == [1, 2]


@once_forms
def test_different_payload_under_same_key_is_rejected(form: OnceForm) -> None:
    bench, script = RetryBench(), ScriptedOperation()
    form(bench.create_idempotency_manager(), ScriptedOperation(), payload={"switch": "on"})
    with pytest.raises(IdempotencyConflictError, match="use a new key for a new payload"):
        form(bench.create_idempotency_manager(), script, payload={"switch": "off"})
    assert script.calls == 0


@once_forms
def test_spec2_store_keeps_successes_only(form: OnceForm) -> None:
    bench = RetryBench()
    with pytest.raises(ValueError, match="bad request"):
        form(bench.create_idempotency_manager(), ScriptedOperation(ValueError("bad request")))
    assert bench.kinds == []
    for _ in range(2):
        assert form(bench.create_idempotency_manager(), ScriptedOperation()) == "done"
    assert bench.clock.slept == []  # the key was released at once
    assert read_idempotency_events(bench) == [("record", "success"), ("hit", "success")]


@once_forms
def test_final_failure_is_kept_on_request_and_raised_to_later_callers(form: OnceForm) -> None:
    bench, script = RetryBench(), ScriptedOperation()
    manager = bench.create_idempotency_manager(keep_failures=True)
    with pytest.raises(ValueError, match="bad request"):
        form(manager, ScriptedOperation(ValueError("bad request")))
    with pytest.raises(
        RecordedFailureError, match="ValueError: bad request; to retry, use a new key"
    ):
        form(manager, script)
    assert script.calls == 0
    assert read_idempotency_events(bench) == [("record", "failure"), ("hit", "failure")]


def read_idempotency_events(bench: RetryBench) -> list[tuple[str, str | None]]:
    events = [event for event in bench.events if isinstance(event, IdempotencyUsed)]
    return [(event.action, event.outcome) for event in events]


@once_forms
def test_next_caller_runs_after_nonfinal_failure(form: OnceForm) -> None:
    bench = RetryBench()
    exhausted = RetryError(
        category="c",
        operation="o",
        attempts=3,
        elapsed_s=1.0,
        reason=GiveUpReason.ATTEMPTS_EXHAUSTED,
    )
    with pytest.raises(RetryError):
        form(bench.create_idempotency_manager(), ScriptedOperation(exhausted))
    assert form(bench.create_idempotency_manager(), ScriptedOperation()) == "done"
    assert bench.clock.slept == []


@once_forms
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_interrupt_releases_key(form: OnceForm, stop: type[BaseException]) -> None:
    bench = RetryBench()
    with pytest.raises(stop):
        form(bench.create_idempotency_manager(), ScriptedOperation(stop()))
    assert (
        form(bench.create_idempotency_manager(), ScriptedOperation(), when_busy=WhenBusy.REFUSE)
        == "done"
    )


@once_forms
def test_busy_key_raises_with_holder_when_not_waiting(form: OnceForm) -> None:
    bench, script = RetryBench(), ScriptedOperation()
    bench.store.claim("k", fingerprint=default_fingerprint(), owner="somebody", lease=ONCE_LEASE)
    with pytest.raises(IdempotencyInProgressError, match="held by somebody until"):
        form(bench.create_idempotency_manager(), script, when_busy=WhenBusy.REFUSE)
    assert (script.calls, bench.clock.slept) == (0, [])


@once_forms
def test_waiting_caller_takes_over_expired_lease(form: OnceForm) -> None:
    bench = RetryBench()
    bench.store.claim("k", fingerprint=default_fingerprint(), owner="crashed", lease=ONCE_LEASE)
    assert form(bench.create_idempotency_manager(), ScriptedOperation()) == "done"
    assert 30 <= sum(bench.clock.slept) < 32


@once_forms
def test_waiting_for_busy_key_is_bounded(form: OnceForm) -> None:
    bench, script = RetryBench(), ScriptedOperation()
    bench.store.claim(
        "k", fingerprint=default_fingerprint(), owner="slow", lease=timedelta(hours=1)
    )
    with pytest.raises(IdempotencyInProgressError):
        form(bench.create_idempotency_manager(wait_s_max=10.0), script)
    assert script.calls == 0
    assert 8 < sum(bench.clock.slept) <= 10


def default_fingerprint() -> str:
    bench = RetryBench()
    call_once(bench.create_idempotency_manager(), ScriptedOperation())
    record = bench.store.find("k")
    assert record is not None
    return record.fingerprint


def test_lease_is_renewed_while_operation_runs() -> None:
    bench = RetryBench()

    def work() -> str:
        for _ in range(10):
            bench.clock.advance(20)
            assert bench.heartbeat.beat()
        with pytest.raises(IdempotencyInProgressError):
            call_once(
                bench.create_idempotency_manager(), ScriptedOperation(), when_busy=WhenBusy.REFUSE
            )
        return "done"

    assert bench.create_idempotency_manager().run_once(work, create_once_call()) == "done"
    assert bench.heartbeat.every_s == [10.0]


def test_lost_claim_raises_and_records_nothing() -> None:
    bench = RetryBench()

    def work() -> str:
        bench.clock.advance(31)
        assert (
            call_once(bench.create_idempotency_manager(), ScriptedOperation(result="theirs"))
            == "theirs"
        )
        assert not bench.heartbeat.beat()
        return "mine"

    with pytest.raises(IdempotencyLostError) as lost:
        bench.create_idempotency_manager().run_once(work, create_once_call())
    assert lost.value.__notes__ == ["the operation was carried out, but its result is not recorded"]
    assert call_once(bench.create_idempotency_manager(), ScriptedOperation()) == "theirs"


def test_recorded_outcome_expires() -> None:
    bench = RetryBench()
    manager = bench.create_idempotency_manager(keep=timedelta(hours=1))
    assert call_once(manager, ScriptedOperation(result=1)) == 1
    bench.clock.advance(3599)
    assert call_once(manager, ScriptedOperation(result=2)) == 1
    bench.clock.advance(1)
    assert call_once(manager, ScriptedOperation(result=2)) == 2


def test_zero_lease_or_keep_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match="lease: must be a positive duration"):
        RetryBench().create_idempotency_manager(lease=timedelta(0))
    with pytest.raises(InvalidValueError, match="keep: must be a positive duration"):
        RetryBench().create_idempotency_manager(keep=timedelta(0))
    assert RetryBench().create_idempotency_manager(keep=None).keep is None


# By hand


def test_spec2_check_record_and_clear_async() -> None:
    async def main() -> None:
        bench = RetryBench()
        manager = bench.create_idempotency_manager()
        key = manager.compute_idempotency_key("kill_switch_update", "tenant-123", "corr-456")
        assert await manager.check_idempotency(key) is None
        await manager.record_result(key, None, {"by": "operator"})
        assert await manager.check_idempotency(key) == StoredResult(None)
        event, hit = bench.events
        assert isinstance(hit, IdempotencyUsed)
        assert hit.action == "hit"
        assert isinstance(event, IdempotencyUsed)
        assert (event.idempotency_key, event.action) == (key, "record")
        assert event.additional_context == {"by": "operator"}
        await manager.record_result(key, None)  # the same again changes nothing
        with pytest.raises(IdempotencyConflictError) as conflict:
            await manager.record_result(key, "other")
        told = (conflict.value.recorded_fingerprint, conflict.value.offered_fingerprint)
        assert [len(text) for text in set(told)] == [64, 64]
        assert await manager.clear_idempotency(key)
        assert not await manager.clear_idempotency(key)
        cleared = bench.events[-1]
        assert isinstance(cleared, IdempotencyUsed)
        assert (cleared.action, cleared.retry_category) == ("clear", "RETRY_KV_DELETE")
        assert await manager.check_idempotency(key) is None

    asyncio.run(main())


def test_check_record_and_clear_sync() -> None:
    bench = RetryBench()
    manager = bench.create_idempotency_manager()
    manager.record_result_sync("k", 1)
    assert manager.check_idempotency_sync("k") == StoredResult(1)
    assert manager.clear_idempotency_sync("k")
    bench.store.claim("k", fingerprint="f", owner="me", lease=ONCE_LEASE)
    assert manager.check_idempotency_sync("k") is None
    bench.store.clear("k")
    keeping = bench.create_idempotency_manager(keep_failures=True)
    with pytest.raises(ValueError, match="no"):
        keeping.run_once(ScriptedOperation(ValueError("no")), create_once_call())
    record = bench.store.find("k")
    assert record is not None
    assert isinstance(record.state, PermanentFailure)
    with pytest.raises(RecordedFailureError):
        manager.check_idempotency_sync("k")


def test_unstorable_result_claims_no_key() -> None:
    bench = RetryBench()
    with pytest.raises(ResultNotStorableError):
        bench.create_idempotency_manager().record_result_sync("k", {1, 2})
    assert (bench.store.find("k"), bench.kinds) == (None, [])


def test_async_form_requires_offload_and_sleep() -> None:
    bench = RetryBench()
    with pytest.raises(MisuseError, match=r"IdempotencyManager\.offload: is required"):
        call_once_async(
            bench.create_idempotency_manager(offload=None),
            ScriptedOperation(),
            when_busy=WhenBusy.REFUSE,
        )
    with pytest.raises(MisuseError, match=r"IdempotencyManager\.sleep: is required"):
        call_once_async(bench.create_idempotency_manager(sleep=None), ScriptedOperation())


# Real threads, real time


def test_eight_concurrent_callers_share_one_effect_and_result() -> None:
    bench, effects = RetryBench(), []
    store = MemoryIdempotencyStore(clock=SystemClock())
    ready = threading.Barrier(8)

    def work() -> int:
        SystemClock.sleep(1.3)  # longer than the lease, which is renewed meanwhile
        effects.append(1)
        return len(effects)

    def come(number: int) -> Any:
        manager = create_threaded_manager(store, bench, lease_s=1.0)  # a busy machine may pause it
        ready.wait()
        if number % 2:
            return manager.run_once(work, create_once_call())

        async def awaited() -> int:
            return await offload(work)

        return asyncio.run(manager.run_once_async(awaited, create_once_call()))

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(come, range(8))) == [1] * 8
    assert effects == [1]
    assert sorted(
        str(event.action) for event in bench.events if isinstance(event, IdempotencyUsed)
    ) == ["hit"] * 7 + ["record"]


def test_cancelled_call_releases_key() -> None:
    async def main() -> None:
        bench = RetryBench()
        store = MemoryIdempotencyStore(clock=SystemClock())
        manager = create_threaded_manager(store, bench)
        begun = asyncio.Event()

        async def work() -> None:
            begun.set()
            await asyncio.sleep(60)

        task = asyncio.ensure_future(manager.run_once_async(work, create_once_call()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        record = store.find("k")
        assert record is not None
        assert isinstance(record.state, InProgress)
        assert record.state.lease_expires_at.timestamp() <= SystemClock.now()

    asyncio.run(main())


def test_expired_outcomes_can_be_removed() -> None:
    bench = RetryBench()
    manager = bench.create_idempotency_manager()
    call_once(manager, ScriptedOperation())
    assert manager.forget_expired_sync() == 0
    bench.clock.advance(timedelta(days=8).total_seconds())
    assert asyncio.run(manager.forget_expired(limit=0)) == 0
    assert asyncio.run(manager.forget_expired()) == 1
    assert manager.forget_expired_sync() == 0
