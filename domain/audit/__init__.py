"""Audit: events, their canonical bytes, the hash chain and retry statistics."""

from tileferry.domain.audit.calls import CallCollector, get_policy_name
from tileferry.domain.audit.chain import (
    GENESIS,
    ChainEntry,
    ChainHead,
    ChainProblem,
    ChainReport,
    build_next_entry,
    verify_chain,
)
from tileferry.domain.audit.events import (
    EVENT_KINDS,
    AuditEvent,
    IdempotencyAction,
    IdempotencyUsed,
    RetryAttempted,
    RetryExhausted,
    RetrySucceeded,
    StateChanged,
    TileGivenUp,
    event_from_bytes,
    event_from_json,
)
from tileferry.domain.audit.statistics import (
    AlertThresholds,
    AuditStatistics,
    CategoryStatistics,
    RetryAlert,
    RetrySeries,
    find_alerts,
)
from tileferry.domain.audit.subjects import EntryIndexKeys, get_subject, is_about

__all__ = [
    "EVENT_KINDS",
    "GENESIS",
    "AlertThresholds",
    "AuditEvent",
    "AuditStatistics",
    "CallCollector",
    "CategoryStatistics",
    "ChainEntry",
    "ChainHead",
    "ChainProblem",
    "ChainReport",
    "EntryIndexKeys",
    "IdempotencyAction",
    "IdempotencyUsed",
    "RetryAlert",
    "RetryAttempted",
    "RetryExhausted",
    "RetrySeries",
    "RetrySucceeded",
    "StateChanged",
    "TileGivenUp",
    "build_next_entry",
    "event_from_bytes",
    "event_from_json",
    "find_alerts",
    "get_policy_name",
    "get_subject",
    "is_about",
    "verify_chain",
]
