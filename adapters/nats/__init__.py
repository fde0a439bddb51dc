"""NATS JetStream adapters: idempotency store and audit log (guarantees: decision 10)."""

from tileferry.adapters.nats.audit import JetStreamAuditSink
from tileferry.adapters.nats.connection import NatsConnection
from tileferry.adapters.nats.idempotency import JetStreamIdempotencyStore
from tileferry.adapters.nats.session import NatsAddress

__all__ = ["JetStreamAuditSink", "JetStreamIdempotencyStore", "NatsAddress", "NatsConnection"]
