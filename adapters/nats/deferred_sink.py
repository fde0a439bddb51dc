"""An audit sink that connects at its first event, and pauses after a failure."""

from collections.abc import Callable, Sequence
from uuid import uuid4

from attrs import define, field

from tileferry.adapters.nats.audit import JetStreamAuditSink
from tileferry.application.ports.audit import EventGroup
from tileferry.application.ports.clock import Clock
from tileferry.domain.audit import AuditEvent
from tileferry.domain.errors import MessagingError, RetryError
from tileferry.domain.text import format_error

PAUSE_S = 60.0


@define(kw_only=True, eq=False)
class DeferredAuditSink:
    """Opens its sink at the first event.

    Connecting is retried for about 15 s. Work must not wait that long for every event while the
    server is away, so after a failure new events are refused for ``pause_s``. Events that are sent
    again need no pause: one call of ``probe`` finds out whether the server is back.
    """

    open_sink: Callable[[], JetStreamAuditSink]
    clock: Clock
    probe: Callable[[], object] = lambda: None
    """Calls the server once; raises ``MessagingError`` if it is not available."""
    pause_s: float = PAUSE_S
    name: str = "jetstream"
    _sink: JetStreamAuditSink | None = field(default=None, init=False, repr=False)
    _paused_until_s: float = field(default=0.0, init=False)
    _problem: str | None = field(default=None, init=False)

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Append a group of events; raise at once during a pause."""
        self.emit_group(EventGroup(group_id=uuid4().hex, events=events))

    def emit_group(self, group: EventGroup) -> None:
        """Append a group of events, unless it is stored already; raise at once during a pause."""
        if group.sent_at is not None:
            self.probe()
        elif self._problem is not None and self.clock.monotonic() < self._paused_until_s:
            raise MessagingError(
                problem=f"paused after a failure: {self._problem}",
                remedy="start the server; events are sent again within a minute",
            )
        try:
            if self._sink is None:
                self._sink = self.open_sink()
            self._sink.emit_group(group)
        except (MessagingError, RetryError) as error:
            self._problem = format_error(error)
            self._paused_until_s = self.clock.monotonic() + self.pause_s
            raise
        self._problem = None
