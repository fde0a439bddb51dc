"""Factories of the optional parts: NATS and telemetry. Their libraries are imported on demand."""

import logging
from typing import TYPE_CHECKING

from attrs import define, field

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.entrypoints.config import Config
from tileferry.entrypoints.extras import require_extra

with import_on_call(globals()):
    from tileferry.adapters.telemetry.combined import CombinedTelemetry
    from tileferry.application import RetryManager
    from tileferry.application.ports import AuditSink, Clock, IdempotencyStore, Telemetry
    from tileferry.application.ports.idempotency import ExpiringRecords
    from tileferry.entrypoints.config.loader import get_nats_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tileferry.adapters.nats import JetStreamAuditSink, NatsConnection
    from tileferry.entrypoints.metrics import Metrics

_LOGGER = logging.getLogger("tileferry.nats")


def open_nats_connection(config: Config, retry: RetryManager) -> "Iterator[NatsConnection]":
    """Return a connection that connects at its first call.

    The audit sinks of ``retry`` must not use the connection.
    """
    with require_extra("nats", needed_by="nats.url"):
        from tileferry.adapters.nats import NatsConnection
    try:
        connection = NatsConnection.from_url(
            get_nats_url(config),
            retry=retry,
            timeout_s=config.nats.timeout_s,
            ca_file=config.nats.ca_file,
        )
    except InvalidValueError as error:
        name = {"nats_url": "nats.url", "ca_file": "nats.ca_file"}.get(error.field, error.field)
        raise InvalidValueError(
            field=name, value=error.value, problem=error.problem, remedy=error.remedy
        ) from None
    yield connection
    connection.close()


def open_nats_audit_log(
    config: Config, connection: "Callable[[], NatsConnection]"
) -> "JetStreamAuditSink":
    """Return the audit log in JetStream; its stream is created if needed."""
    with require_extra("nats", needed_by="audit.sinks"):
        from tileferry.adapters.nats import JetStreamAuditSink
    return JetStreamAuditSink.open(
        connection(),
        logger=_LOGGER,
        stream=config.nats.audit_stream,
        subject=config.nats.audit_subject,
        replicas=config.nats.replicas,
        accept_weak_durability=config.nats.accept_weak_durability,
    )


def build_nats_sink(
    open_log: "Callable[[], JetStreamAuditSink]",
    connection: "Callable[[], NatsConnection]",
    clock: Clock,
) -> AuditSink:
    """Return a sink that opens the audit log in JetStream at its first event."""
    with require_extra("nats", needed_by="audit.sinks"):
        from tileferry.adapters.nats import DeferredAuditSink
    return DeferredAuditSink(
        open_sink=open_log, clock=clock, probe=lambda: connection().check_jetstream()
    )


def build_nats_store(
    config: Config, connection: "Callable[[], NatsConnection]", clock: Clock
) -> IdempotencyStore:
    """Return a store of idempotency keys that opens its bucket at its first call."""
    with require_extra("nats", needed_by="idempotency.store"):
        from tileferry.adapters.nats import JetStreamIdempotencyStore
    return JetStreamIdempotencyStore.open_later(
        connection(),
        clock=clock,
        logger=_LOGGER,
        bucket=config.nats.idempotency_bucket,
        replicas=config.nats.replicas,
        accept_weak_durability=config.nats.accept_weak_durability,
    )


_EXPIRY_S = 3_600.0


@define
class HourlyExpiry:
    """Removes expired records once an hour.

    JetStream drops them itself since version 2.11, and a look for them reads the whole bucket.
    """

    _records: ExpiringRecords
    _clock: Clock
    _next_s: float = field(default=0.0, init=False)

    def forget_expired(self, *, limit: int) -> int:
        """Remove expired records if an hour has passed; return how many."""
        now_s = self._clock.monotonic()
        if now_s < self._next_s:
            return 0
        self._next_s = now_s + _EXPIRY_S
        return self._records.forget_expired(limit=limit)


def build_telemetry(config: Config, metrics: "Metrics | None") -> Telemetry | None:
    """Return the configured telemetry of calls; ``metrics`` counts them for Prometheus."""
    members: list[Telemetry] = []
    if config.telemetry.opentelemetry:
        members.append(_build_opentelemetry())
    if metrics is not None:
        members.append(metrics.calls)
    return _combine(members)


def _build_opentelemetry() -> Telemetry:
    with require_extra("telemetry", needed_by="telemetry.opentelemetry"):
        from opentelemetry import metrics, trace

        from tileferry.adapters.telemetry.tracing import OpenTelemetry
    return OpenTelemetry(trace.get_tracer("tileferry"), metrics.get_meter("tileferry"))


def _combine(members: list[Telemetry]) -> Telemetry | None:
    if len(members) <= 1:
        return members[0] if members else None
    return CombinedTelemetry(members)


def check_prometheus() -> None:
    """Raise unless the library for Prometheus metrics is installed."""
    with require_extra("telemetry", needed_by="telemetry.prometheus_listen"):
        import prometheus_client  # noqa: F401  # only whether it is there


def has_opentelemetry_sdk() -> bool:
    """Return whether the process has an OpenTelemetry SDK; without one, spans go nowhere."""
    with require_extra("telemetry", needed_by="telemetry.opentelemetry"):
        from opentelemetry import trace
    return not isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider
    )
