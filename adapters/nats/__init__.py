"""NATS JetStream adapters: idempotency store and audit log (guarantees: decision 10)."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.adapters.nats.audit import JetStreamAuditSink
    from tileferry.adapters.nats.connection import NatsConnection
    from tileferry.adapters.nats.deferred_sink import DeferredAuditSink
    from tileferry.adapters.nats.idempotency import JetStreamIdempotencyStore
    from tileferry.adapters.nats.session import NatsAddress

__all__ = [
    "DeferredAuditSink",
    "JetStreamAuditSink",
    "JetStreamIdempotencyStore",
    "NatsAddress",
    "NatsConnection",
]
