"""Both ways in which the idempotency manager is called, and one with real threads and time."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from support.managers import Bench, Script
from tileferry.adapters.memory import MemoryIdempotencyStore
from tileferry.adapters.system import SystemClock, ThreadHeartbeat, new_id, offload
from tileferry.application import AuditTrail, IdempotencyManager
from tileferry.application.audit import CallContext
from tileferry.application.retries.idempotent_call import IdempotentCall

CONTEXT = CallContext(category="RETRY_KV_PUT", operation="Store kill switch state")
LEASE = timedelta(seconds=30)
Form = Callable[..., Any]


def call(**options: Any) -> IdempotentCall:
    return IdempotentCall(key="k", context=CONTEXT, **options)


def sync_form(manager: IdempotencyManager, script: Script, **options: Any) -> Any:
    return manager.once(script, call(**options))


def async_form(manager: IdempotencyManager, script: Script, **options: Any) -> Any:
    return asyncio.run(manager.once_async(script.awaited, call(**options)))


both = pytest.mark.parametrize("form", [sync_form, async_form])


def real_manager(
    store: MemoryIdempotencyStore, bench: Bench, *, lease_s: float = 0.15
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
