"""The policies of the product. Deployments may override them; the figures here are the contract."""

from collections.abc import Mapping
from types import MappingProxyType

from attrs import evolve

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry.category import RetryCategory
from tileferry.domain.retry.policy import BackoffKind, RetryPolicy


def _policy(max_attempts: int, base_delay: float, max_delay: float) -> RetryPolicy:
    return RetryPolicy(max_attempts=max_attempts, base_delay=base_delay, max_delay=max_delay)


POLICY_MATRIX: Mapping[RetryCategory, RetryPolicy] = MappingProxyType(
    {
        RetryCategory.NATS_CONNECT: _policy(5, 1.0, 30.0),
        RetryCategory.NATS_PUBLISH: _policy(3, 0.5, 10.0),
        RetryCategory.NATS_SUBSCRIBE: _policy(3, 0.5, 10.0),
        RetryCategory.NATS_STREAM_CREATE: _policy(2, 2.0, 60.0),
        RetryCategory.KV_CREATE: _policy(2, 1.0, 30.0),
        RetryCategory.KV_GET: _policy(3, 0.5, 10.0),
        RetryCategory.KV_PUT: _policy(3, 0.5, 10.0),
        RetryCategory.KV_DELETE: _policy(2, 1.0, 30.0),
        RetryCategory.EXECUTION_INTENT: _policy(2, 2.0, 60.0),
        RetryCategory.EXECUTION_CONTAINMENT: _policy(2, 2.0, 60.0),
        RetryCategory.EXECUTION_EXPIRATION: _policy(1, 1.0, 30.0),
        RetryCategory.APPROVAL_CHECK: _policy(3, 1.0, 30.0),
        RetryCategory.APPROVAL_GRANT: _policy(2, 2.0, 60.0),
        RetryCategory.REPLAY_PROCESSING: _policy(1, 1.0, 30.0),
        RetryCategory.REPLAY_VALIDATION: _policy(2, 1.0, 30.0),
        RetryCategory.API_REQUEST: _policy(3, 1.0, 30.0),
        RetryCategory.API_VALIDATION: _policy(2, 0.5, 10.0),
    }
)

DOWNLOAD_POLICY = RetryPolicy(
    max_attempts=5, base_delay=1.0, max_delay=4.0, jitter_enabled=False, max_rate_limited=1
)
"""A tile's GET: 1, 2, 4, 4 s after server errors; a second 429 is the last."""

RUN_POLICY = RetryPolicy(
    max_attempts=8,
    base_delay=60.0,
    max_delay=3600.0,
    jitter_enabled=False,
    max_rate_limited=100,
    max_retry_after_s=24 * 3600.0,
    deadline_s=30 * 24 * 3600.0,
)
"""A queued run after an infrastructure error: a minute, doubling, an hour at most.

Nobody sits and waits for a run, so a source may ask for a day. The deadline counts from the run's
submission, so not even rate limits keep it for ever.
"""

PARTITION_POLICY = RetryPolicy(
    max_attempts=4, base_delay=300.0, max_delay=7200.0, backoff_multiplier=6.0
)
"""A partition that the validator rejected, when automation may requeue it: 5 min, 30 min, 2 h."""


PATIENCE_IN_RUN_S = 20.0
"""How long a worker waits for a source in the middle of a run, all retries of a call together."""


def within_run(policy: RetryPolicy) -> RetryPolicy:
    """Return how a call is tried again inside a queued run.

    Short troubles are waited out. For long ones there is the queue: a source that asks for patience
    gets it from all its runs there, and no worker sits and waits.
    """
    deadline_s = policy.deadline_s
    return evolve(
        policy,
        deadline_s=PATIENCE_IN_RUN_S if deadline_s is None else min(deadline_s, PATIENCE_IN_RUN_S),
        max_retry_after_s=min(policy.max_retry_after_s, PATIENCE_IN_RUN_S),
    )


def upload_policy(max_in_call_retries: int, backoff_base_s: float, cap_s: float) -> RetryPolicy:
    """Return the in-call upload retry's policy: the n-th retry waits ``min(base ** n, cap)``."""
    if max_in_call_retries < 0:
        raise InvalidValueError(
            field="max_in_call_retries", value=max_in_call_retries, problem="must be 0 or more"
        )
    return RetryPolicy(
        max_attempts=max_in_call_retries + 1,
        base_delay=backoff_base_s,
        max_delay=cap_s,
        backoff=BackoffKind.POWER,
        jitter_enabled=False,
    )
