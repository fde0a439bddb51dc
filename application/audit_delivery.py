"""Delivery of audit events to a sink that may be unavailable: directly, or later from an outbox."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from logging import Logger

from attrs import define, evolve, field

from tileferry.application.ports.audit import AuditOutbox, AuditSink, EventGroup, GroupSink
from tileferry.application.ports.clock import Clock
from tileferry.domain.audit import AuditEvent, EventsLost, LossCause
from tileferry.domain.errors import InvalidStateError, InvalidValueError, StorageError
from tileferry.domain.retry import RetryPolicy, compute_nominal_delay
from tileferry.domain.text import format_error

DELIVERY_S = 2.0
"""How long one call delivers waiting events; the next one continues."""
_PAUSES = RetryPolicy(max_attempts=2, base_delay=1.0, max_delay=30.0)
"""The pauses between deliveries to a sink that is unavailable; their number is not limited."""


@define(kw_only=True, eq=False)
class BufferedSink:
    """Passes events to a sink; while it is unavailable, an outbox keeps them, in order.

    Events that cannot be kept either are recorded as a gap, which is delivered as an event of its
    own, and the caller gets the error. The outbox may hold events of earlier processes, so it is
    checked before the first event. After that, a sink that works costs nothing more.
    """

    sink: AuditSink
    outbox: AuditOutbox
    clock: Clock
    new_id: Callable[[], str]
    logger: Logger
    _emit_group: Callable[[EventGroup], None] = field(init=False)
    # The outbox may hold events if these two differ. Threads assign numbers without a lock: each
    # announces a group before and after it appends it, and the outbox is known to be empty only up
    # to the number that was read before it was emptied.
    _numbers: Iterator[int] = field(factory=lambda: count(1), init=False)
    _announced: int = field(default=0, init=False)
    _emptied: int = field(default=-1, init=False)
    _failures: int = field(default=0, init=False)
    _pause_until_s: float = field(default=0.0, init=False)
    _unrecorded: list[EventsLost] = field(factory=list, init=False)
    """Losses that the outbox could not record."""

    @_emit_group.default
    def _choose_emit(self) -> Callable[[EventGroup], None]:
        sink = self.sink
        if isinstance(sink, GroupSink):
            return sink.emit_group
        return lambda group: sink.emit(group.events)

    @property
    def name(self) -> str:
        """The sink's name in logs and counters."""
        return self.sink.name

    def emit(self, events: Sequence[AuditEvent]) -> None:
        """Store a group of events in the sink, or keep it in the outbox; both are durable."""
        if not events:
            return
        if self._is_waiting:
            self.deliver()
        group = EventGroup(group_id=self.new_id(), events=events)
        if self._is_waiting:
            self._keep(group)
            return
        try:
            self._emit_group(group)
        except InvalidValueError:
            self._record_loss(events, LossCause.REFUSED)
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the events must not be lost
            self._note_failure(error)
            self._keep(group)

    def deliver(self, *, at_once: bool = False) -> bool:
        """Deliver what waits in the outbox for a limited time; return whether nothing is left.

        After a failure, nothing is done during a pause, except with ``at_once``.
        """
        if not self._is_waiting:
            return True
        now_s, announced = self.clock.monotonic(), self._announced
        if now_s < self._pause_until_s and not at_once:
            return False
        try:
            self._save_unrecorded()
            is_empty = self.outbox.deliver(
                self._send_again, has_time=lambda: self.clock.monotonic() < now_s + DELIVERY_S
            )
        except Exception as error:  # noqa: BLE001  # the work goes on, and the events are kept
            self._note_failure(error)
            return False
        if is_empty:
            if self._failures:
                self._failures = 0
                self.logger.info(
                    "audit sink %s is available again; all buffered events are delivered",
                    self.name,
                    extra={"kind": "audit.outbox_delivered", "sink": self.name},
                )
            self._emptied = announced
        return is_empty

    @property
    def _is_waiting(self) -> bool:
        return self._announced != self._emptied

    def _send_again(self, group: EventGroup) -> None:
        try:
            self._emit_group(group)
        except InvalidValueError as error:
            if isinstance(group.events[0], EventsLost):
                raise  # a gap stays recorded until the log has it
            self._record_loss(group.events, LossCause.REFUSED)
            self.logger.error(  # noqa: TRY400  # the message is complete
                "audit sink %s refused %d events: %s",
                self.name,
                len(group.events),
                format_error(error),
                extra={"kind": "audit.sink_failed", "sink": self.name, "events": len(group.events)},
            )

    def _keep(self, group: EventGroup) -> None:
        """Append a group to the outbox; if that fails, record the loss and raise."""
        self._announced = next(self._numbers)
        try:
            is_kept = self.outbox.append(evolve(group, sent_at=read_time(self.clock)))
        except StorageError:
            self._record_loss(group.events, LossCause.OUTBOX_FAILED)
            raise
        finally:
            self._announced = next(self._numbers)
        if not is_kept:
            self._record_loss(group.events, LossCause.OUTBOX_FULL)
            raise InvalidStateError(
                subject=f"the outbox of audit sink {self.name}",
                problem="is full",
                remedy="make the sink available, or raise audit.outbox_bytes",
            )

    def _record_loss(self, events: Sequence[AuditEvent], cause: LossCause) -> None:
        moments = [event.timestamp for event in events]
        self._unrecorded.append(
            EventsLost(
                timestamp=read_time(self.clock),
                sink=self.name,
                events=len(events),
                lost_from=min(moments),
                lost_until=max(moments),
                cause=cause,
            )
        )
        self._announced = next(self._numbers)
        try:
            self._save_unrecorded()
        except StorageError as error:
            self.logger.error(  # noqa: TRY400  # the message is complete
                "the loss of audit events is recorded in memory only: %s",
                format_error(error),
                extra={"kind": "audit.gap_unrecorded", "sink": self.name},
            )

    def _save_unrecorded(self) -> None:
        while self._unrecorded:
            lost = self._unrecorded.pop(0)
            try:
                self.outbox.record_loss(lost)
            except BaseException:
                self._unrecorded.insert(0, lost)
                raise

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        pause_s = compute_nominal_delay(_PAUSES, self._failures)
        self._pause_until_s = self.clock.monotonic() + pause_s
        if self._failures == 1:
            self.logger.warning(
                "audit sink %s is unavailable; its events are buffered and delivered later: %s",
                self.name,
                format_error(error),
                extra={"kind": "audit.buffering", "sink": self.name},
            )


def read_time(clock: Clock) -> datetime:
    """Return the time; a time before the calendar's range becomes its first moment."""
    try:
        return datetime.fromtimestamp(clock.now(), UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)
