"""Audit sink that writes to a structured log."""

from collections.abc import Sequence
from typing import Any, Protocol

from attrs import define, field

from tileferry.domain.audit import AlertChanged, AuditEvent, CallFailed, RetryAttempted


class StructuredLogger(Protocol):
    """The methods of a structlog logger that the sink uses."""

    def info(self, event: str, **fields: Any) -> Any: ...

    def warning(self, event: str, **fields: Any) -> Any: ...

    def error(self, event: str, **fields: Any) -> Any: ...


@define(kw_only=True)
class LogAuditSink:
    """Logs each event with kind ``audit.<event type>`` and the event's fields."""

    logger: StructuredLogger
    name: str = field(default="log", init=False)

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Log retries as warnings, failed calls and alerts as errors, and other events as info."""
        for event in events:
            fields = event.as_json()
            log = self.logger.info
            if isinstance(event, RetryAttempted):
                log = self.logger.warning
            elif isinstance(event, CallFailed | AlertChanged):
                log = self.logger.error
            log(f"audit: {event.event_type}", kind=f"audit.{event.event_type}", **fields)
