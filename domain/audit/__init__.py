"""Audit: the events, their canonical bytes, and the chain that holds them."""

from tileferry.domain.audit.calls import CallCollector
from tileferry.domain.audit.chain import (
    GENESIS,
    ChainEntry,
    ChainHead,
    ChainProblem,
    ChainReport,
    next_entry,
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
    Alert,
    AlertThresholds,
    AuditStatistics,
    CategoryStatistics,
    Series,
    alerts,
)
from tileferry.domain.audit.subjects import FiledUnder, subject_of, tells_of

__all__ = [
    "EVENT_KINDS",
    "GENESIS",
    "Alert",
    "AlertThresholds",
    "AuditEvent",
    "AuditStatistics",
    "CallCollector",
    "CategoryStatistics",
    "ChainEntry",
    "ChainHead",
    "ChainProblem",
    "ChainReport",
    "FiledUnder",
    "IdempotencyAction",
    "IdempotencyUsed",
    "RetryAttempted",
    "RetryExhausted",
    "RetrySucceeded",
    "Series",
    "StateChanged",
    "TileGivenUp",
    "alerts",
    "event_from_bytes",
    "event_from_json",
    "next_entry",
    "subject_of",
    "tells_of",
    "verify_chain",
]
