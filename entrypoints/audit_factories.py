"""Factories of the audit log: its sinks, outboxes and alerts."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tileferry.domain.lazy_imports import import_on_call
from tileferry.entrypoints.config import Config, SinkName

with import_on_call(globals()):
    from tileferry.adapters.filesystem import FileAuditOutbox, JsonLinesAuditSink
    from tileferry.adapters.http.webhook import AlertWebhook, check_webhook_url
    from tileferry.adapters.postgres import PostgresAuditLog
    from tileferry.adapters.system import new_id
    from tileferry.adapters.telemetry.log_audit import LogAuditSink
    from tileferry.application import AuditTrail
    from tileferry.application.audit_delivery import BufferedSink
    from tileferry.application.ports import AuditSink, Clock
    from tileferry.application.ports.audit import AlertReceiver, AuditLog
    from tileferry.domain.audit import AlertRule
    from tileferry.entrypoints.config.loader import get_nats_url
    from tileferry.entrypoints.config.retry_overrides import build_alert_thresholds
    from tileferry.entrypoints.logs import get_structured_logger


def open_local_sinks(
    config: Config, audit_log: Callable[[], AuditSink], clock: Clock
) -> Iterator[dict[SinkName, AuditSink]]:
    """Open the configured audit sinks, except NATS; an outbox keeps what they cannot take."""
    with ExitStack() as closing:
        makers: dict[SinkName, Callable[[], AuditSink]] = {
            SinkName.POSTGRES: audit_log,
            SinkName.JSONL: partial(_open_jsonl_sink, config.audit.jsonl_path, closing),
        }
        sinks: dict[SinkName, AuditSink] = {
            name: buffer_sink(config, name, makers[name](), clock)
            for name in config.audit.sinks
            if name in makers
        }
        if SinkName.LOG in config.audit.sinks:
            sinks[SinkName.LOG] = LogAuditSink(logger=get_structured_logger("tileferry.audit"))
        yield sinks


def buffer_sink(config: Config, name: SinkName, sink: AuditSink, clock: Clock) -> BufferedSink:
    """Return a sink with an outbox below the cache's root, one for each destination.

    So events never reach another database or server that is configured for the same cache later.
    """
    digest = sha256(describe_destination(config, name).encode()).hexdigest()[:8]
    return BufferedSink(
        sink=sink,
        outbox=FileAuditOutbox(
            root=config.c11.cache_root,
            name=f"{sink.name}-{digest}",
            sink=sink.name,
            bytes_max=config.audit.outbox_bytes,
        ),
        clock=clock,
        new_id=new_id,
        logger=logging.getLogger("tileferry.audit"),
    )


def describe_destination(config: Config, name: SinkName) -> str:
    """Return where a sink writes, without credentials."""
    match name:
        case SinkName.POSTGRES:
            url = config.database_url
            return (
                str(config.data_dir.absolute())
                if url is None
                else _strip_credentials(url.get_secret_value())
            )
        case SinkName.NATS:
            servers = map(_strip_credentials, get_nats_url(config).split(","))
            return f"{','.join(sorted(servers))} {config.nats.audit_stream}"
        case SinkName.JSONL | SinkName.LOG:
            return str(config.audit.jsonl_path.absolute())


def _strip_credentials(url: str) -> str:
    parts = urlsplit(url.strip())
    place = parts.netloc.rpartition("@")[2]
    query = parse_qs(parts.query)
    sockets = [*query.get("host", ()), *query.get("port", ())]
    return " ".join([place.lower(), parts.path, *sockets])


def build_audit_trail(
    config: Config,
    local: dict[SinkName, AuditSink],
    nats_sink: Callable[[], AuditSink] | None = None,
) -> AuditTrail:
    """Return a trail of the configured sinks; without ``nats_sink``, of the local ones."""
    sinks = dict(local)
    if nats_sink is not None and SinkName.NATS in config.audit.sinks:
        sinks[SinkName.NATS] = nats_sink()
    return AuditTrail(
        logger=logging.getLogger("tileferry.audit"),
        sinks=[sinks[name] for name in dict.fromkeys(config.audit.sinks) if name in sinks],
        fail_closed=config.audit.fail_closed,
    )


def select_audit_log(
    config: Config, postgres: Callable[[], PostgresAuditLog], nats: Callable[[], AuditLog]
) -> AuditLog:
    """Return the log that is read."""
    return nats() if is_log_in_nats(config) else postgres()


def is_log_in_nats(config: Config) -> bool:
    """Return whether the log that is read is in NATS: events go there, and not to Postgres."""
    sinks = config.audit.sinks
    return SinkName.NATS in sinks and SinkName.POSTGRES not in sinks


def _open_jsonl_sink(path: Path, closing: ExitStack) -> JsonLinesAuditSink:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    sink = JsonLinesAuditSink(path=path)
    closing.callback(sink.close)
    return sink


def build_alert_rule(config: Config) -> AlertRule:
    """Return the thresholds of alerts, their window and their hysteresis."""
    audit = config.audit
    return AlertRule(
        thresholds=build_alert_thresholds(audit.alert_retries_per_minute, config.retry),
        window_s=audit.alert_window_s,
        clear_share=audit.alert_clear_share,
    )


def build_alert_receivers(config: Config) -> list[AlertReceiver]:
    """Return the configured webhook, if there is one."""
    url = config.audit.alert_webhook_url
    if url is None:
        return []
    setting = "audit.alert_webhook_url"
    return [AlertWebhook(url=check_webhook_url(url.get_secret_value(), setting=setting))]
