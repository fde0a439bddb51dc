"""Audit: the events, their canonical bytes, and the chain that holds them."""

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
    event_from_json,
)

__all__ = [
    "EVENT_KINDS",
    "GENESIS",
    "AuditEvent",
    "ChainEntry",
    "ChainHead",
    "ChainProblem",
    "ChainReport",
    "IdempotencyAction",
    "IdempotencyUsed",
    "RetryAttempted",
    "RetryExhausted",
    "RetrySucceeded",
    "StateChanged",
    "TileGivenUp",
    "event_from_json",
    "next_entry",
    "verify_chain",
]
