"""What was done under an idempotency key, and by whom it is being done."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from tileferry.application.ports.audit import AuditSink
from tileferry.domain.audit import AuditEvent
from tileferry.domain.idempotency import IdempotencyRecord


class ExpiringRecords(Protocol):
    """Records that expire and can be removed then."""

    def forget_expired(self, *, limit: int) -> int:
        """Remove up to ``limit`` expired records, and return how many were removed."""
        ...


@runtime_checkable
class IdempotencyStore(ExpiringRecords, Protocol):
    """Keeps the records; the rules are those of ``tileferry.domain.idempotency``.

    Each call is atomic, for threads, processes and hosts alike, and what it returns is as durable
    as the store makes it. A store that cannot answer raises; it never guesses. A call that is made
    again because its answer was lost finds what the first one did.
    """

    @property
    def audit_sink(self) -> AuditSink | None:
        """The sink that gets the ``event`` of a change in the same transaction, if there is one."""
        ...

    def claim(
        self, key: str, *, fingerprint: str, owner: str, lease: timedelta
    ) -> IdempotencyRecord:
        """Take the key for ``owner``, who is one call, or return the outcome that is there."""
        ...

    def renew(self, held: IdempotencyRecord, *, lease: timedelta) -> IdempotencyRecord:
        """Extend the lease of a claim; one that ran out or was lost is refused."""
        ...

    def complete(
        self,
        held: IdempotencyRecord,
        result: bytes,
        *,
        keep: timedelta | None,
        event: AuditEvent | None = None,
    ) -> IdempotencyRecord:
        """Record the result of a claim, unless the key was lost to somebody else."""
        ...

    def fail(
        self,
        held: IdempotencyRecord,
        error: Exception,
        *,
        keep: timedelta | None,
        event: AuditEvent | None = None,
    ) -> IdempotencyRecord:
        """Record a failure that every later caller shall get, unless the key was lost."""
        ...

    def release(self, held: IdempotencyRecord) -> None:
        """Give a claim back at once, for the next caller to try; one that was lost stays lost."""
        ...

    def find(self, key: str) -> IdempotencyRecord | None:
        """Return what is known of a key; what has expired is not known any more."""
        ...

    def clear(self, key: str) -> bool:
        """Forget a key, whatever its state, and tell whether there was one."""
        ...


class ResultCodec(Protocol):
    """Turns results into bytes and back."""

    def check_type(self, result_type: Any) -> None:
        """Refuse a type whose values cannot be encoded, before any of them is made."""
        ...

    def encode(self, result: Any) -> bytes:
        """Return the bytes that ``decode`` turns into an equal result."""
        ...

    def decode(self, content: bytes) -> Any:
        """Return the result."""
        ...


class Heartbeat(Protocol):
    """Does something again and again beside the caller's own work."""

    def start(self, beat: Callable[[], bool], *, every_s: float) -> AbstractContextManager[object]:
        """Call ``beat`` every so often while the block lasts, or until it returns ``False``."""
        ...
