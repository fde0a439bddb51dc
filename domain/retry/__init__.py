"""Retry: policies, classification, the one decision, and the loop that applies it."""

from tileferry.domain.idempotency import compute_idempotency_key
from tileferry.domain.retry.backoff import jittered_delay, nominal_delay
from tileferry.domain.retry.budget import RetryBudget
from tileferry.domain.retry.category import RetryCategory
from tileferry.domain.retry.classify import (
    Classifier,
    ErrorClass,
    Final,
    RateLimited,
    Retryable,
    class_of_failure,
    classify_exception,
)
from tileferry.domain.retry.decide import (
    Decision,
    Failure,
    GiveUp,
    GiveUpReason,
    RetryAt,
    RetryReason,
    calculate_next_retry,
    decide,
    wait_as_told,
)
from tileferry.domain.retry.loop import FailedAttempt, RetryLoop
from tileferry.domain.retry.policies import (
    DOWNLOAD_POLICY,
    PARTITION_POLICY,
    PATIENCE_IN_RUN_S,
    POLICY_MATRIX,
    RUN_POLICY,
    upload_policy,
    within_run,
)
from tileferry.domain.retry.policy import BackoffKind, RetryPolicy
from tileferry.domain.retry.record import DecisionRecord, Difference, replay
from tileferry.domain.retry.retry_after import parse_retry_after
from tileferry.domain.retry.schedule import Schedule, Wait, schedule
from tileferry.domain.retry.simulate import (
    SimulatedAttempt,
    Simulation,
    simulate,
)
from tileferry.domain.retry.what_if import Fate, PastCall, Retold, WhatIf, retold

__all__ = [
    "DOWNLOAD_POLICY",
    "PARTITION_POLICY",
    "PATIENCE_IN_RUN_S",
    "POLICY_MATRIX",
    "RUN_POLICY",
    "BackoffKind",
    "Classifier",
    "Decision",
    "DecisionRecord",
    "Difference",
    "ErrorClass",
    "FailedAttempt",
    "Failure",
    "Fate",
    "Final",
    "GiveUp",
    "GiveUpReason",
    "PastCall",
    "RateLimited",
    "Retold",
    "RetryAt",
    "RetryBudget",
    "RetryCategory",
    "RetryLoop",
    "RetryPolicy",
    "RetryReason",
    "Retryable",
    "Schedule",
    "SimulatedAttempt",
    "Simulation",
    "Wait",
    "WhatIf",
    "calculate_next_retry",
    "class_of_failure",
    "classify_exception",
    "compute_idempotency_key",
    "decide",
    "jittered_delay",
    "nominal_delay",
    "parse_retry_after",
    "replay",
    "retold",
    "schedule",
    "simulate",
    "upload_policy",
    "wait_as_told",
    "within_run",
]
