"""NATS with JetStream: idempotency records and the audit log (decision 10: what they promise)."""

from tileferry.adapters.nats.address import NatsAddress
from tileferry.adapters.nats.audit import JetStreamAuditSink
from tileferry.adapters.nats.connection import NatsConnection
from tileferry.adapters.nats.idempotency import JetStreamIdempotencyStore

__all__ = ["JetStreamAuditSink", "JetStreamIdempotencyStore", "NatsAddress", "NatsConnection"]
