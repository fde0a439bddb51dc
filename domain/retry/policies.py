"""The retry categories of the product and their policies."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from attrs import evolve

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry.policy import ATTEMPTS_MAX, BackoffKind, RetryPolicy


class RetryCategory(StrEnum):
    """The kind of infrastructure call that is retried. The value is its code in the audit log.

    NATS and KV are the message bus and its key-value store; EXECUTION is the work of queued runs
    (executing a run, quarantining one that kills workers, expiring leases); APPROVAL is the
    confirmation of large resets; REPLAY is reprocessing and checking the audit; API is the imagery
    provider.
    """

    NATS_CONNECT = "RETRY_NATS_CONNECT"
    NATS_PUBLISH = "RETRY_NATS_PUBLISH"
    NATS_SUBSCRIBE = "RETRY_NATS_SUBSCRIBE"
    NATS_STREAM_CREATE = "RETRY_NATS_STREAM_CREATE"

    KV_CREATE = "RETRY_KV_CREATE"
    KV_GET = "RETRY_KV_GET"
    KV_PUT = "RETRY_KV_PUT"
    KV_DELETE = "RETRY_KV_DELETE"

    EXECUTION_INTENT = "RETRY_EXECUTION_INTENT"
    EXECUTION_CONTAINMENT = "RETRY_EXECUTION_CONTAINMENT"
    EXECUTION_EXPIRATION = "RETRY_EXECUTION_EXPIRATION"

    APPROVAL_CHECK = "RETRY_APPROVAL_CHECK"
    APPROVAL_GRANT = "RETRY_APPROVAL_GRANT"

    # These two codes deviate from the pattern; consumers already depend on them.
    REPLAY_PROCESSING = "REPLAY_REPLAY_PROCESSING"
    REPLAY_VALIDATION = "REPLAY_REPLAY_VALIDATION"

    API_REQUEST = "RETRY_API_REQUEST"
    API_VALIDATION = "RETRY_API_VALIDATION"

    @classmethod
    def parse(cls, text: str) -> "RetryCategory":
        """Return a category by its name or code, ignoring case."""
        wanted = str(text).strip().upper()
        for category in cls:
            if wanted in (category.name, category.value):
                return category
        raise InvalidValueError(
            field="category",
            value=text,
            problem="is not a category of retries",
            remedy=f"use one of {', '.join(cls.__members__)}",
        )


# Attempts, first delay and maximum delay.
_LIMITS = {
    RetryCategory.NATS_CONNECT: (5, 1.0, 30.0),
    RetryCategory.NATS_PUBLISH: (3, 0.5, 10.0),
    RetryCategory.NATS_SUBSCRIBE: (3, 0.5, 10.0),
    RetryCategory.NATS_STREAM_CREATE: (2, 2.0, 60.0),
    RetryCategory.KV_CREATE: (2, 1.0, 30.0),
    RetryCategory.KV_GET: (3, 0.5, 10.0),
    RetryCategory.KV_PUT: (3, 0.5, 10.0),
    RetryCategory.KV_DELETE: (2, 1.0, 30.0),
    RetryCategory.EXECUTION_INTENT: (2, 2.0, 60.0),
    RetryCategory.EXECUTION_CONTAINMENT: (2, 2.0, 60.0),
    RetryCategory.EXECUTION_EXPIRATION: (1, 1.0, 30.0),
    RetryCategory.APPROVAL_CHECK: (3, 1.0, 30.0),
    RetryCategory.APPROVAL_GRANT: (2, 2.0, 60.0),
    RetryCategory.REPLAY_PROCESSING: (1, 1.0, 30.0),
    RetryCategory.REPLAY_VALIDATION: (2, 1.0, 30.0),
    RetryCategory.API_REQUEST: (3, 1.0, 30.0),
    RetryCategory.API_VALIDATION: (2, 0.5, 10.0),
}

POLICY_MATRIX: Mapping[RetryCategory, RetryPolicy] = MappingProxyType(
    {
        category: RetryPolicy(
            name=category.name,
            max_attempts=max_attempts,
            base_delay=base_delay,
            max_delay=max_delay,
        )
        for category, (max_attempts, base_delay, max_delay) in _LIMITS.items()
    }
)

DOWNLOAD_POLICY = RetryPolicy(
    name="DOWNLOAD",
    max_attempts=5,
    base_delay=1.0,
    max_delay=4.0,
    jitter_enabled=False,
    max_rate_limited=1,
)
"""A tile's GET: 1, 2, 4, 4 s after server errors. A second 429 ends it."""

DOWNLOAD_SESSION_POLICY = RetryPolicy(
    name="DOWNLOAD_SESSION",
    max_attempts=ATTEMPTS_MAX,
    base_delay=2.0,
    max_delay=60.0,
    max_rate_limited=ATTEMPTS_MAX,
    deadline_s=30 * 60.0,
)
"""The passes of a download over an area: 2 s, doubling, at most 1 minute.

Each pass that stores a tile starts a new series, so the deadline counts from the last improvement.
"""

DATABASE_POLICY = RetryPolicy(
    name="DATABASE",
    max_attempts=ATTEMPTS_MAX,
    base_delay=0.2,
    max_delay=5.0,
    deadline_s=DOWNLOAD_SESSION_POLICY.deadline_s,
)
"""Connecting to a database server that is away: 0.2 s, doubling, at most 5 s.

It waits as long as a download without progress does.
"""

RUN_FIELDS: Mapping[str, Any] = MappingProxyType(
    {
        "name": "RUN",
        "max_attempts": 8,
        "base_delay": 60.0,
        "max_delay": 3600.0,
        "jitter_enabled": False,
        "max_rate_limited": 100,
        "max_retry_after_s": 24 * 3600.0,
        "deadline_s": 30 * 24 * 3600.0,
    }
)
"""What a run changes of its category's policy, unless the deployment configures it."""
RUN_POLICY = evolve(POLICY_MATRIX[RetryCategory.EXECUTION_INTENT], **RUN_FIELDS)
"""A queued run after an infrastructure error: 1 minute, doubling, at most 1 hour.

No user waits for a run, so a source may request a wait of up to a day. The deadline counts from the
run's submission, so rate limits cannot keep a run forever.
"""


def build_quarantine_policy(
    max_rescues: int = 5,
    base: RetryPolicy = POLICY_MATRIX[RetryCategory.EXECUTION_CONTAINMENT],
) -> RetryPolicy:
    """Return the policy for a run that loses workers: due again at once, until it has lost too
    many.
    """
    return evolve(
        base,
        name="QUARANTINE",
        max_attempts=max_rescues + 1,
        base_delay=0.0,
        jitter_enabled=False,
        deadline_s=None,
    )


QUARANTINE_POLICY = build_quarantine_policy()
"""The sixth lost worker quarantines the run."""

PARTITION_FIELDS: Mapping[str, Any] = MappingProxyType(
    {
        "name": "PARTITION",
        "max_attempts": 4,
        "base_delay": 300.0,
        "max_delay": 7200.0,
        "backoff_multiplier": 6.0,
    }
)
"""What a partition changes of its category's policy, unless the deployment configures it."""
PARTITION_POLICY = evolve(POLICY_MATRIX[RetryCategory.REPLAY_PROCESSING], **PARTITION_FIELDS)
"""Automatic requeues of a partition that the validator rejected: 5 min, 30 min, 2 h."""


IN_RUN_WAIT_MAX_S = 20.0
"""The maximum total wait of a worker for one call within a run, over all its retries."""


def limit_to_run(policy: RetryPolicy) -> RetryPolicy:
    """Return the policy for a call inside a queued run.

    Short outages are waited out. Longer waits are left to the queue, which applies a source's rate
    limit to all its runs without blocking a worker.
    """
    deadline_s = policy.deadline_s
    return evolve(
        policy,
        deadline_s=IN_RUN_WAIT_MAX_S if deadline_s is None else min(deadline_s, IN_RUN_WAIT_MAX_S),
        max_retry_after_s=min(policy.max_retry_after_s, IN_RUN_WAIT_MAX_S),
    )


UPLOAD = "UPLOAD"
UPLOAD_TILE = "UPLOAD_TILE"
"""The name of the policy for a tile's upload attempts over all calls."""


def build_upload_policy(
    max_in_call_retries: int, backoff_base_s: float, cap_s: float, *, name: str = UPLOAD
) -> RetryPolicy:
    """Return the policy for upload retries within a call: the n-th retry waits ``min(base ** n,
    cap)``.
    """
    if max_in_call_retries < 0:
        raise InvalidValueError(
            field="max_in_call_retries", value=max_in_call_retries, problem="must be 0 or more"
        )
    return RetryPolicy(
        name=name,
        max_attempts=max_in_call_retries + 1,
        base_delay=backoff_base_s,
        max_delay=cap_s,
        backoff=BackoffKind.POWER,
        jitter_enabled=False,
    )
