"""Past calls, as the audit log has them."""

from collections.abc import Sequence

from tileferry.domain.retry import (
    DecisionRecord,
    ErrorClass,
    PastCall,
    Retryable,
    RetryPolicy,
    simulate,
)


def create_past_call(
    policy: RetryPolicy, errors: Sequence[ErrorClass], *, key: str = "k", call_s: float = 0.0
) -> PastCall:
    """Return a call that failed with ``errors`` and then succeeded, if the policy allowed it."""
    played = simulate(policy, errors, key=key, call_s=call_s)
    records = tuple(
        DecisionRecord(policy=policy, failure=step.failure, decision=step.decision)
        for step in played.failures
    )
    return PastCall(records=records, succeeded=played.succeeds)


def create_past_calls(policy: RetryPolicy, failures: Sequence[int]) -> list[PastCall]:
    """Return one call for each number: it failed that often, and then succeeded if it could."""
    return [
        create_past_call(policy, [Retryable()] * count, key=f"k{number}")
        for number, count in enumerate(failures)
    ]
