"""Before each retry under an idempotency key, the claim is renewed: without it, nothing runs."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attrs import define
from support.managers import Form, RetryBench, ScriptedOperation, sync_and_async

from tileferry.adapters.memory import MemoryIdempotencyStore
from tileferry.application import StoredResult
from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import (
    DatabaseError,
    IdempotencyInProgressError,
    IdempotencyLostError,
    TileManagerError,
)
from tileferry.domain.idempotency import compute_payload_fingerprint

KEY = "k"
LEASE = timedelta(seconds=30)


class FailingOnce(ScriptedOperation):
    """An operation during whose first attempt something happens; that attempt fails."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__(OSError("reset"))
        self.meanwhile = meanwhile

    def __call__(self) -> JsonValue:
        if self.calls == 0:
            self.meanwhile()
        return super().__call__()


@define
class Interference:
    """What happens to a claim while its operation runs."""

    bench: RetryBench

    def let_another_caller_finish(self) -> None:
        self.bench.clock.sleep(31)  # the lease ends
        other = self.claim("other")
        self.bench.store.complete(other, b'"theirs"', keep=None)

    def clear(self) -> None:
        self.bench.store.clear(KEY)

    def let_lease_end(self) -> None:
        self.bench.clock.sleep(31)

    def claim(self, owner: str) -> Any:
        return self.bench.store.claim(
            KEY, fingerprint=compute_payload_fingerprint(None), owner=owner, lease=LEASE
        )


@sync_and_async
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("let_another_caller_finish", "already finished"),
        ("clear", "was cleared"),
        ("let_lease_end", "lease expired"),
    ],
)
def test_operation_is_not_retried_when_its_claim_is_lost(
    form: Form, name: str, problem: str
) -> None:
    bench = RetryBench()
    script = FailingOnce(getattr(Interference(bench), name))
    keys = bench.create_idempotency_manager(keep_failures=True)
    with pytest.raises(IdempotencyLostError, match=problem) as lost:
        form(bench.create_manager(idempotency_manager=keys), script, idempotency_key=KEY)
    assert script.calls == 1
    assert lost.value.__notes__ == ["the operation had failed before, and was not tried again"]
    assert bench.kinds == ["retry_attempt", "not_retryable"]
    found = keys.check_idempotency_sync(KEY)
    assert found == (StoredResult("theirs") if name == "let_another_caller_finish" else None)


class AbsentStore(MemoryIdempotencyStore):
    """A store that cannot be reached at times."""

    is_away = False

    def renew(self, *args: Any, **named: Any) -> Any:
        if self.is_away:
            raise DatabaseError(problem="connection lost", remedy="start the server")
        return super().renew(*args, **named)


@sync_and_async
def test_invariant_11_operation_is_not_retried_when_the_store_cannot_answer(form: Form) -> None:
    bench = RetryBench()
    bench.store = store = AbsentStore(clock=bench.clock)
    script = FailingOnce(lambda: setattr(store, "is_away", True))
    keys = bench.create_idempotency_manager(keep_failures=True)
    with pytest.raises(DatabaseError, match="connection lost"):
        form(bench.create_manager(idempotency_manager=keys), script, idempotency_key=KEY)
    assert script.calls == 1
    assert keys.check_idempotency_sync(KEY) is None  # an error of the store is no result
    store.is_away = False
    retried = form(bench.create_manager(idempotency_manager=keys), script, idempotency_key=KEY)
    assert (retried, script.calls) == ("done", 2)


@sync_and_async
def test_retry_renews_the_lease(form: Form) -> None:
    bench = RetryBench()
    interference = Interference(bench)
    refused: list[TileManagerError] = []

    class Slow(ScriptedOperation):
        def __call__(self) -> JsonValue:
            bench.clock.sleep(20)
            with pytest.raises(IdempotencyInProgressError) as error:
                interference.claim("other")
            refused.append(error.value)
            return super().__call__()

    keys = bench.create_idempotency_manager(heartbeat=None)
    script = Slow(OSError(), OSError())
    manager = bench.create_manager(idempotency_manager=keys)
    assert form(manager, script, idempotency_key=KEY) == "done"
    assert (script.calls, len(refused)) == (3, 3)
