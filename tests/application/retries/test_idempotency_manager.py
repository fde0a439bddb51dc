"""The idempotency manager: once under a key, the same answer for everybody, or nothing at all."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from support.idempotency_forms import LEASE, Form, async_form, both, call, real_manager, sync_form
from support.managers import Bench, Script

from tileferry.adapters.memory import MemoryIdempotencyStore
from tileferry.adapters.system import SystemClock, offload
from tileferry.application import StoredResult, WhenBusy
from tileferry.domain.audit import IdempotencyUsed
from tileferry.domain.errors import (
    IdempotencyConflictError,
    IdempotencyInProgressError,
    IdempotencyLostError,
    InvalidValueError,
    RecordedFailureError,
    RetryError,
)
from tileferry.domain.idempotency import FailedForGood, InProgress
from tileferry.domain.retry import GiveUpReason


@both
def test_spec2_the_operation_runs_once_and_its_result_is_everybodys(form: Form) -> None:
    bench = Bench()
    first, second = Script(result={"on": True}), Script()
    assert form(bench.idempotency(), first) == {"on": True}
    assert form(bench.idempotency(), second) == {"on": True}
    assert (first.calls, second.calls) == (1, 0)
    assert [event.action for event in bench.events if isinstance(event, IdempotencyUsed)] == [
        "record",
        "hit",
    ]


@both
def test_the_first_caller_gets_what_the_later_ones_get(form: Form) -> None:
    bench = Bench()
    assert form(bench.idempotency(), Script(result=(1, 2.0))) == [1, 2]
    assert form(bench.idempotency(), Script()) == [1, 2]


@both
def test_another_payload_under_the_key_is_refused_and_nothing_runs(form: Form) -> None:
    bench, script = Bench(), Script()
    form(bench.idempotency(), Script(), payload={"switch": "on"})
    with pytest.raises(IdempotencyConflictError, match="use a new key for a new payload"):
        form(bench.idempotency(), script, payload={"switch": "off"})
    assert script.calls == 0


@both
def test_a_final_failure_is_kept_and_given_to_later_callers(form: Form) -> None:
    bench, script = Bench(), Script()
    with pytest.raises(ValueError, match="bad request"):
        form(bench.idempotency(), Script(ValueError("bad request")))
    with pytest.raises(RecordedFailureError, match="ValueError: bad request; use a new key"):
        form(bench.idempotency(), script)
    assert script.calls == 0
    assert bench.kinds == ["idempotency", "idempotency"]


@both
def test_after_a_failure_that_is_not_final_the_next_caller_tries(form: Form) -> None:
    bench = Bench()
    exhausted = RetryError(
        category="c",
        operation="o",
        attempts=3,
        elapsed_s=1.0,
        reason=GiveUpReason.ATTEMPTS_EXHAUSTED,
    )
    with pytest.raises(RetryError):
        form(bench.idempotency(), Script(exhausted))
    assert form(bench.idempotency(), Script()) == "done"
    assert bench.clock.slept == []


@both
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_gives_the_key_back(form: Form, stop: type[BaseException]) -> None:
    bench = Bench()
    with pytest.raises(stop):
        form(bench.idempotency(), Script(stop()))
    assert form(bench.idempotency(), Script(), when_busy=WhenBusy.REFUSE) == "done"


@both
def test_who_refuses_to_wait_is_told_who_has_the_key(form: Form) -> None:
    bench, script = Bench(), Script()
    bench.store.claim("k", fingerprint=fingerprint(), owner="somebody", lease=LEASE)
    with pytest.raises(IdempotencyInProgressError, match="held by somebody until"):
        form(bench.idempotency(), script, when_busy=WhenBusy.REFUSE)
    assert (script.calls, bench.clock.slept) == (0, [])


@both
def test_who_waits_takes_over_when_the_lease_ends(form: Form) -> None:
    bench = Bench()
    bench.store.claim("k", fingerprint=fingerprint(), owner="crashed", lease=LEASE)
    assert form(bench.idempotency(), Script()) == "done"
    assert 30 <= sum(bench.clock.slept) < 32


@both
def test_who_waits_does_so_for_a_bounded_time(form: Form) -> None:
    bench, script = Bench(), Script()
    bench.store.claim("k", fingerprint=fingerprint(), owner="slow", lease=timedelta(hours=1))
    with pytest.raises(IdempotencyInProgressError):
        form(bench.idempotency(wait_s_max=10.0), script)
    assert script.calls == 0
    assert 8 < sum(bench.clock.slept) <= 10


def fingerprint() -> str:
    bench = Bench()
    sync_form(bench.idempotency(), Script())
    record = bench.store.find("k")
    assert record is not None
    return record.fingerprint


def test_a_lease_is_renewed_while_the_operation_runs() -> None:
    bench = Bench()

    def work() -> str:
        for _ in range(10):
            bench.clock.pass_time(20)
            assert bench.heartbeat.beat()
        with pytest.raises(IdempotencyInProgressError):
            sync_form(bench.idempotency(), Script(), when_busy=WhenBusy.REFUSE)
        return "done"

    assert bench.idempotency().once(work, call()) == "done"
    assert bench.heartbeat.every_s == [10.0]


def test_a_claim_that_was_lost_records_nothing_and_says_so() -> None:
    bench = Bench()

    def work() -> str:
        bench.clock.pass_time(31)
        assert sync_form(bench.idempotency(), Script(result="theirs")) == "theirs"
        assert not bench.heartbeat.beat()
        return "mine"

    with pytest.raises(IdempotencyLostError) as lost:
        bench.idempotency().once(work, call())
    assert lost.value.__notes__ == ["the operation was carried out, but its result is not recorded"]
    assert sync_form(bench.idempotency(), Script()) == "theirs"


def test_outcomes_are_forgotten_when_their_time_is_over() -> None:
    bench = Bench()
    manager = bench.idempotency(keep=timedelta(hours=1))
    assert sync_form(manager, Script(result=1)) == 1
    bench.clock.pass_time(3599)
    assert sync_form(manager, Script(result=2)) == 1
    bench.clock.pass_time(1)
    assert sync_form(manager, Script(result=2)) == 2


def test_what_lasts_no_time_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="lease: must be a duration"):
        Bench().idempotency(lease=timedelta(0))
    with pytest.raises(InvalidValueError, match="keep: must be a duration"):
        Bench().idempotency(keep=timedelta(0))
    assert Bench().idempotency(keep=None).keep is None


# By hand


def test_spec2_results_are_checked_recorded_and_cleared_by_hand() -> None:
    async def main() -> None:
        bench = Bench()
        manager = bench.idempotency()
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


def test_the_synchronous_form_by_hand() -> None:
    bench = Bench()
    manager = bench.idempotency()
    manager.record_result_sync("k", 1)
    assert manager.check_idempotency_sync("k") == StoredResult(1)
    assert manager.clear_idempotency_sync("k")
    bench.store.claim("k", fingerprint="f", owner="me", lease=LEASE)
    assert manager.check_idempotency_sync("k") is None
    bench.store.clear("k")
    with pytest.raises(ValueError, match="no"):
        manager.once(Script(ValueError("no")), call())
    record = bench.store.find("k")
    assert record is not None
    assert isinstance(record.state, FailedForGood)
    with pytest.raises(RecordedFailureError):
        manager.check_idempotency_sync("k")


def test_the_asynchronous_form_needs_what_it_waits_with() -> None:
    bench = Bench()
    with pytest.raises(InvalidValueError, match=r"IdempotencyManager\.offload: is needed"):
        async_form(bench.idempotency(offload=None), Script(), when_busy=WhenBusy.REFUSE)
    with pytest.raises(InvalidValueError, match=r"IdempotencyManager\.sleep: is needed"):
        async_form(bench.idempotency(sleep=None), Script())


# Real threads, real time


def test_eight_callers_at_once_lead_to_one_effect_and_one_result() -> None:
    bench, effects = Bench(), []
    store = MemoryIdempotencyStore(clock=SystemClock())
    ready = threading.Barrier(8)

    def work() -> int:
        SystemClock.sleep(1.3)  # longer than the lease, which is renewed meanwhile
        effects.append(1)
        return len(effects)

    def come(number: int) -> Any:
        manager = real_manager(store, bench, lease_s=1.0)  # a busy machine may pause it
        ready.wait()
        if number % 2:
            return manager.once(work, call())

        async def awaited() -> int:
            return await offload(work)

        return asyncio.run(manager.once_async(awaited, call()))

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(come, range(8))) == [1] * 8
    assert effects == [1]
    assert sorted(
        str(event.action) for event in bench.events if isinstance(event, IdempotencyUsed)
    ) == ["hit"] * 7 + ["record"]


def test_a_cancelled_call_gives_the_key_back() -> None:
    async def main() -> None:
        bench = Bench()
        store = MemoryIdempotencyStore(clock=SystemClock())
        manager = real_manager(store, bench)
        begun = asyncio.Event()

        async def work() -> None:
            begun.set()
            await asyncio.sleep(60)

        task = asyncio.ensure_future(manager.once_async(work, call()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        record = store.find("k")
        assert record is not None
        assert isinstance(record.state, InProgress)
        assert record.state.lease_expires_at.timestamp() <= SystemClock.now()

    asyncio.run(main())


def test_outcomes_whose_time_is_over_can_be_removed() -> None:
    bench = Bench()
    manager = bench.idempotency()
    sync_form(manager, Script())
    assert manager.forget_expired_sync() == 0
    bench.clock.pass_time(timedelta(days=8).total_seconds())
    assert asyncio.run(manager.forget_expired(limit=0)) == 0
    assert asyncio.run(manager.forget_expired()) == 1
    assert manager.forget_expired_sync() == 0
