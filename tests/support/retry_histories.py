"""Audit events of whole calls, made as the product makes them: by the loop and its context."""

from collections.abc import Iterable, Sequence
from random import Random

from tileferry.adapters.memory import ManualClock
from tileferry.application.audit import CallContext
from tileferry.domain.audit import AuditEvent
from tileferry.domain.retry import (
    POLICY_MATRIX,
    BackoffKind,
    ErrorClass,
    Final,
    GiveUp,
    RateLimited,
    Retryable,
    RetryCategory,
    RetryLoop,
    RetryPolicy,
)

API = RetryCategory.API_REQUEST


def call_events(
    errors: Sequence[ErrorClass],
    *,
    clock: ManualClock,
    key: str = "k",
    category: RetryCategory = API,
    policy: RetryPolicy | None = None,
    operation: str = "GET tile",
    correlation_id: str | None = None,
    call_s: float = 0.0,
) -> list[AuditEvent]:
    """Return the events of a call that fails with ``errors`` and then succeeds, if it may."""
    chosen = policy or POLICY_MATRIX[category]
    context = CallContext(category=category, operation=operation, correlation_id=correlation_id)
    told = iter(errors)
    loop = RetryLoop(
        policy=chosen,
        key=key,
        started_s=clock.monotonic(),
        classifier=lambda _: next(told),
    )
    events: list[AuditEvent] = []
    for _ in errors:
        clock.pass_time(call_s)
        decision = loop.after_failure(TimeoutError("too slow"), now_s=clock.monotonic())
        events.append(context.attempt_failed(loop.history[-1], chosen, clock))
        if isinstance(decision, GiveUp):
            return events
        clock.pass_time(decision.delay_s)
    if not errors:
        return events
    attempts = len(loop.history) + 1
    success = context.succeeded(attempts=attempts, waited_s=loop.waited_s, clock=clock)
    return [*events, success]


def random_history(chance: Random) -> Iterable[AuditEvent]:
    """Return the events of one call with a policy and errors of any kind."""
    base_delay = chance.choice([0.0, 1.0, 2, chance.uniform(0, 100), chance.expovariate(0.01)])
    policy = RetryPolicy(
        max_attempts=chance.randint(1, 8),
        base_delay=base_delay,
        max_delay=base_delay + chance.choice([0, 1, chance.expovariate(0.001)]),
        backoff_multiplier=chance.choice([1, 2, 1.5, chance.uniform(1, 100)]),
        jitter_enabled=chance.random() < 0.8,
        jitter_factor=chance.choice([0, 0.1, 1, chance.random()]),
        backoff=chance.choice(list(BackoffKind)),
        deadline_s=chance.choice([None, None, chance.expovariate(0.001)]),
        max_rate_limited=chance.randint(0, 4),
        max_retry_after_s=chance.choice([0, 300, chance.uniform(0, 600)]),
    )
    kinds: list[ErrorClass] = [
        Retryable(),
        Retryable(),
        RateLimited(),
        RateLimited(retry_after_s=chance.expovariate(0.01)),
        Final(),
    ]
    errors = chance.choices(kinds, k=chance.randint(1, 5))
    return call_events(
        errors,
        clock=ManualClock(chance.uniform(0, 4e9)),
        key="".join(chance.choices("kKé☁0:\n", k=chance.randint(0, 12))),
        category=chance.choice(list(RetryCategory)),
        policy=policy,
        call_s=chance.expovariate(1.0),
    )
