"""In-memory idempotency store."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Lock

from attrs import define, field

from tileferry.adapters.memory.event_logs import MemoryAuditSink
from tileferry.application.ports.clock import Clock
from tileferry.domain.audit import AuditEvent
from tileferry.domain.idempotency import IdempotencyRecord, claim, require_record


@define(kw_only=True, eq=False)
class MemoryIdempotencyStore:
    """Stores records in a dictionary and serializes changes with a lock."""

    clock: Clock
    audit_sink: MemoryAuditSink | None = None
    """Receives the event of a change; if it raises, the change is not made."""
    _records: dict[str, IdempotencyRecord] = field(factory=dict, init=False)
    _guard: Lock = field(factory=Lock, init=False)

    def claim(
        self, key: str, *, fingerprint: str, owner: str, lease: timedelta
    ) -> IdempotencyRecord:
        """Claim a key, or return the recorded outcome."""
        with self._guard:
            record = claim(
                self._records.get(key),
                key=key,
                fingerprint=fingerprint,
                owner=owner,
                now=self._now(),
                lease=lease,
            )
            self._records[key] = record
            return record

    def renew(self, held: IdempotencyRecord, *, lease: timedelta) -> IdempotencyRecord:
        """Extend a claim's lease."""
        return self._change(
            held,
            lambda record, now: record.renew(held.owner, held.epoch, now=now, lease=lease),
        )

    def complete(
        self,
        held: IdempotencyRecord,
        result: bytes,
        *,
        keep: timedelta | None,
        event: AuditEvent | None = None,
    ) -> IdempotencyRecord:
        """Record a result and its event."""
        return self._change(
            held,
            lambda record, now: record.complete(held.owner, held.epoch, result, now=now, keep=keep),
            event,
        )

    def fail(
        self,
        held: IdempotencyRecord,
        error: Exception,
        *,
        keep: timedelta | None,
        event: AuditEvent | None = None,
    ) -> IdempotencyRecord:
        """Record a permanent failure and its event."""
        return self._change(
            held,
            lambda record, now: record.fail(held.owner, held.epoch, error, now=now, keep=keep),
            event,
        )

    def release(self, held: IdempotencyRecord) -> None:
        """Release a claim, so that it can be claimed at once."""
        self._change(held, lambda record, now: record.release(held.owner, held.epoch, now=now))

    def find(self, key: str) -> IdempotencyRecord | None:
        """Return the record of a key, or ``None`` if it does not exist or has expired."""
        with self._guard:
            return self._find_live(key)

    def clear(self, key: str) -> bool:
        """Delete a key's record; return whether there was an unexpired one."""
        with self._guard:
            known = self._find_live(key)
            self._records.pop(key, None)
            return known is not None

    def forget_expired(self, *, limit: int) -> int:
        """Delete expired and abandoned records; return how many."""
        with self._guard:
            now = self._now()
            over = [key for key, record in self._records.items() if record.is_removable(now)]
            for key in over[:limit]:
                del self._records[key]
            return len(over[:limit])

    def _change(
        self,
        held: IdempotencyRecord,
        change: Callable[[IdempotencyRecord, datetime], IdempotencyRecord],
        event: AuditEvent | None = None,
    ) -> IdempotencyRecord:
        with self._guard:
            changed = change(require_record(self._records.get(held.key), held), self._now())
            if event is not None and self.audit_sink is not None:
                self.audit_sink.emit([event])
            self._records[held.key] = changed
            return changed

    def _find_live(self, key: str) -> IdempotencyRecord | None:
        record = self._records.get(key)
        return None if record is None or record.is_expired(self._now()) else record

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC)
