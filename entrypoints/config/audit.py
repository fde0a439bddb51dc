"""Audit log, alerts, idempotency keys and telemetry: where they go, and the NATS server."""

from enum import StrEnum
from pathlib import Path

from attrs import field, frozen, validators

from tileferry.domain.addresses import PORT_MAX, is_host
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import integer, number
from tileferry.entrypoints.config.fields import Secret, data_path, doc, to_secret


class SinkName(StrEnum):
    """The destinations of audit events."""

    POSTGRES = "postgres"
    JSONL = "jsonl"
    LOG = "log"
    NATS = "nats"


@frozen(kw_only=True)
class AuditConfig:
    """The audit log and its alerts."""

    sinks: list[SinkName] = field(
        factory=lambda: [SinkName.POSTGRES],
        metadata=doc(
            "Where events go: `postgres`, `nats`, `jsonl`, `log`. Only events in Postgres, or else "
            "in NATS, can be verified, replayed and counted."
        ),
    )
    jsonl_path: Path = field(
        factory=lambda: data_path("audit.jsonl"), metadata=doc("The file of the sink `jsonl`.")
    )
    fail_closed: bool = field(
        default=False,
        metadata=doc("Stop an operation when its events can neither be stored nor kept for later."),
    )
    outbox_bytes: int = field(
        default=64 * 1024 * 1024,
        validator=integer(0),
        metadata=doc(
            "Bytes of events that are kept for each unavailable sink, below `c11.cache_root`, and "
            "delivered later."
        ),
    )
    alert_retries_per_minute: float | None = field(
        default=None,
        metadata=doc(
            "Alert threshold of `audit stats` and of workers; each `retry.<CATEGORY>` can have its "
            "own.",
            10,
        ),
    )

    alert_window_s: float = field(
        default=60.0,
        validator=number(1, 86_400),
        metadata=doc("Period over which workers count retries for an alert, in seconds."),
    )
    alert_clear_share: float = field(
        default=0.5,
        validator=number(0, 1),
        metadata=doc("An alert is cleared when the rate is down to this share of its threshold."),
    )
    alert_webhook_url: Secret | None = field(
        default=None,
        converter=to_secret,
        metadata=doc(
            "Workers POST alerts to this address as JSON; https, or http on this machine."
        ),
    )

    @sinks.validator
    def _check_sinks(self, _attribute: object, value: list[SinkName]) -> None:
        if not value:
            raise InvalidValueError(
                field="audit.sinks", value=value, problem="must name at least one sink"
            )


class StoreName(StrEnum):
    """The stores of idempotency keys."""

    POSTGRES = "postgres"
    NATS = "nats"


@frozen(kw_only=True)
class IdempotencyConfig:
    """Idempotency keys of embedding programs and of alerts."""

    store: StoreName = field(
        default=StoreName.POSTGRES, metadata=doc("Where keys are stored: `postgres` or `nats`.")
    )
    keep_failures: bool = field(
        default=False,
        metadata=doc("Store final failures too, so that later callers get them without a call."),
    )


@frozen(kw_only=True)
class NatsConfig:
    """The NATS server, for `audit.sinks` and `idempotency.store`."""

    url: Secret | None = field(
        default=None,
        converter=to_secret,
        metadata=doc(
            "`nats://user:password@host:port`, or `tls://` to require TLS; several with commas."
        ),
    )
    ca_file: Path | None = field(
        default=None,
        metadata=doc("Certificates of a private CA, in PEM format.", "/etc/ssl/nats-ca.pem"),
    )
    timeout_s: float = field(
        default=5.0,
        validator=number(0.01, 3600),
        metadata=doc("Time limit of one request, in seconds."),
    )
    replicas: int = field(
        default=1,
        validator=integer(1, 5),
        metadata=doc("Replicas of a stream or bucket that is created; three survive a power cut."),
    )
    accept_weak_durability: bool = field(
        default=False,
        metadata=doc(
            "Do not warn about fewer than three replicas; for servers with `sync_interval: always`."
        ),
    )
    audit_stream: str = field(
        default="TILEFERRY_AUDIT", metadata=doc("The stream of the sink `nats`.")
    )
    audit_subject: str = field(
        default="tileferry.audit", metadata=doc("The prefix of its subjects.")
    )
    idempotency_bucket: str = field(
        default="tileferry_idempotency", metadata=doc("The bucket of the store `nats`.")
    )


@frozen(kw_only=True)
class ListenAddress:
    """A host and a port to listen on."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, *, field: str) -> "ListenAddress":
        """Parse ``host:port``, with brackets around an IPv6 address."""
        host, _, port = text.rpartition(":")
        plain = host.removeprefix("[").removesuffix("]")
        is_port = port.isascii() and port.isdecimal() and int(port) <= PORT_MAX
        if not (is_port and is_host(plain)):
            raise InvalidValueError(
                field=field, value=text, problem="is not an address such as 127.0.0.1:9464"
            )
        return cls(host=plain, port=int(port))


def _check_listen(_instance: object, _attribute: object, value: str) -> None:
    ListenAddress.parse(value, field="telemetry.prometheus_listen")


@frozen(kw_only=True)
class TelemetryConfig:
    """Metrics and traces of retried calls."""

    opentelemetry: bool = field(
        default=False,
        metadata=doc(
            "Spans and metrics for the OpenTelemetry SDK of the process, as set up by "
            "`opentelemetry-instrument`."
        ),
    )
    prometheus_listen: str | None = field(
        default=None,
        validator=validators.optional(_check_listen),
        metadata=doc("Address on which each worker serves Prometheus metrics.", "127.0.0.1:9464"),
    )
