"""Retry: policies, error classes, the retry decision and the loop that applies it."""

from tileferry.domain.idempotency import compute_idempotency_key
from tileferry.domain.retry.budget import RetryBudget
from tileferry.domain.retry.classify import (
    Classifier,
    ErrorClass,
    Final,
    RateLimited,
    Retryable,
    classify_exception,
    classify_failure,
)
from tileferry.domain.retry.decide import (
    Decision,
    Failure,
    GiveUp,
    GiveUpReason,
    RetryAt,
    RetryReason,
    calculate_next_retry,
    cap_retry_after,
    decide,
)
from tileferry.domain.retry.delays import (
    DELAY_FUNCTION_VERSION,
    compute_jittered_delay,
    compute_nominal_delay,
    parse_retry_after,
)
from tileferry.domain.retry.loop import FailedAttempt, RetryLoop
from tileferry.domain.retry.policies import (
    DOWNLOAD_POLICY,
    IN_RUN_WAIT_MAX_S,
    PARTITION_POLICY,
    POLICY_MATRIX,
    RUN_POLICY,
    UPLOAD,
    UPLOAD_TILE,
    RetryCategory,
    build_upload_policy,
    limit_to_run,
)
from tileferry.domain.retry.policy import BackoffKind, RetryPolicy
from tileferry.domain.retry.record import (
    DecisionDifference,
    DecisionRecord,
    UnreplayableDecision,
    replay_decision,
)
from tileferry.domain.retry.simulation import (
    RetrySchedule,
    ScheduledWait,
    SimulatedAttempt,
    Simulation,
    build_schedule,
    simulate,
)
from tileferry.domain.retry.what_if import (
    PastCall,
    ReplayedCall,
    WhatIfOutcome,
    WhatIfSummary,
    replay_call,
)

__all__ = [
    "DELAY_FUNCTION_VERSION",
    "DOWNLOAD_POLICY",
    "IN_RUN_WAIT_MAX_S",
    "PARTITION_POLICY",
    "POLICY_MATRIX",
    "RUN_POLICY",
    "UPLOAD",
    "UPLOAD_TILE",
    "BackoffKind",
    "Classifier",
    "Decision",
    "DecisionDifference",
    "DecisionRecord",
    "ErrorClass",
    "FailedAttempt",
    "Failure",
    "Final",
    "GiveUp",
    "GiveUpReason",
    "PastCall",
    "RateLimited",
    "ReplayedCall",
    "RetryAt",
    "RetryBudget",
    "RetryCategory",
    "RetryLoop",
    "RetryPolicy",
    "RetryReason",
    "RetrySchedule",
    "Retryable",
    "ScheduledWait",
    "SimulatedAttempt",
    "Simulation",
    "UnreplayableDecision",
    "WhatIfOutcome",
    "WhatIfSummary",
    "build_schedule",
    "build_upload_policy",
    "calculate_next_retry",
    "cap_retry_after",
    "classify_exception",
    "classify_failure",
    "compute_idempotency_key",
    "compute_jittered_delay",
    "compute_nominal_delay",
    "decide",
    "limit_to_run",
    "parse_retry_after",
    "replay_call",
    "replay_decision",
    "simulate",
]
