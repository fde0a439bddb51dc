"""A standalone retry manager: no database, no cache, no configuration."""

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta

from tileferry.adapters.system import SystemClock, ThreadHeartbeat, new_id, offload
from tileferry.application import AuditTrail, IdempotencyManager, RetryManager
from tileferry.application.ports import AuditSink, IdempotencyStore, Telemetry
from tileferry.domain.retry import POLICY_MATRIX, RetryCategory, RetryPolicy


def build_retry_manager(
    *,
    store: IdempotencyStore | None = None,
    sinks: Sequence[AuditSink] = (),
    policies: Mapping[RetryCategory, RetryPolicy] | None = None,
    telemetry: Telemetry | None = None,
    fail_closed: bool = False,
    lease: timedelta = timedelta(seconds=60),
    keep: timedelta | None = timedelta(days=7),
    keep_failures: bool = False,
    logger: logging.Logger | None = None,
) -> RetryManager:
    """Return a retry manager on real time; ``policies`` override single categories.

    Without a ``store``, operations cannot have idempotency keys. With ``keep_failures`` a final
    failure is recorded under its key too. Managers share no state, so a program may have several.
    """
    clock = SystemClock()
    trail = AuditTrail(
        logger=logger or logging.getLogger("tileferry.retry"), sinks=sinks, fail_closed=fail_closed
    )
    keys = None
    if store is not None:
        keys = IdempotencyManager(
            store=store,
            clock=clock,
            new_id=new_id,
            audit=trail,
            sleep=clock.sleep_async,
            offload=offload,
            heartbeat=ThreadHeartbeat(),
            lease=lease,
            keep=keep,
            keep_failures=keep_failures,
        )
    return RetryManager(
        clock=clock,
        new_id=new_id,
        audit=trail,
        sleep=clock.sleep_async,
        offload=offload,
        policies={**POLICY_MATRIX, **(policies or {})},
        idempotency_manager=keys,
        telemetry=telemetry,
    )
