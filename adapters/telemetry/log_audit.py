"""Audit events in the log, for who watches it."""

from collections.abc import Sequence
from typing import Any, Protocol

from attrs import define, field

from tileferry.domain.audit import AuditEvent, RetryAttempted, RetryExhausted


class StructuredLogger(Protocol):
    """What structlog's loggers do."""

    def info(self, event: str, **fields: Any) -> Any:
        """Log that something went as it should."""
        ...

    def warning(self, event: str, **fields: Any) -> Any:
        """Log that something was handled."""
        ...

    def error(self, event: str, **fields: Any) -> Any:
        """Log that something did not get there."""
        ...


@define(kw_only=True)
class LogAuditSink:
    """Writes each event as a log record of kind ``audit.<event type>``, its fields beside it."""

    logger: StructuredLogger
    name: str = field(default="log", init=False)

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Log the events, each at the level that its kind has."""
        for event in events:
            fields = event.as_json()
            log = self.logger.info
            if isinstance(event, RetryAttempted):
                log = self.logger.warning
            elif isinstance(event, RetryExhausted):
                log = self.logger.error
            log(f"audit: {event.event_type}", kind=f"audit.{event.event_type}", **fields)
