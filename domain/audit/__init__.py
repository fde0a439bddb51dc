"""Audit: events, their canonical bytes, the hash chain and retry statistics."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.domain.audit.alert_thresholds import AlertThresholds
    from tileferry.domain.audit.alerts import AlertRule, AlertTracker
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
        AlertChanged,
        AlertState,
        AuditEvent,
        CallFailed,
        EventsLost,
        IdempotencyAction,
        IdempotencyOutcome,
        IdempotencyUsed,
        LossCause,
        NotRetryable,
        RetryAttempted,
        RetryExhausted,
        RetrySucceeded,
        StateChanged,
        TileGivenUp,
        event_from_bytes,
        event_from_json,
    )
    from tileferry.domain.audit.statistics import (
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
    "AlertChanged",
    "AlertRule",
    "AlertState",
    "AlertThresholds",
    "AlertTracker",
    "AuditEvent",
    "AuditStatistics",
    "CallCollector",
    "CallFailed",
    "CategoryStatistics",
    "ChainEntry",
    "ChainHead",
    "ChainProblem",
    "ChainReport",
    "EntryIndexKeys",
    "EventsLost",
    "IdempotencyAction",
    "IdempotencyOutcome",
    "IdempotencyUsed",
    "LossCause",
    "NotRetryable",
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
