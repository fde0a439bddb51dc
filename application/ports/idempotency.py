"""Idempotency records: claims and results by key, the result codec and the heartbeat."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # for annotations
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
    """Stores the records; the rules are those of ``tileferry.domain.idempotency``.

    Each call is atomic across threads, processes and hosts; durability depends on the store. A
    store that is unavailable raises; it never guesses. A call that is repeated because its answer
    was lost returns the result of the first one.
    """

    @property
    def audit_sink(self) -> AuditSink | None:
        """The sink that stores the ``event`` of a change in the same transaction, if any."""
        ...

    def claim(
        self, key: str, *, fingerprint: str, owner: str, lease: timedelta
    ) -> IdempotencyRecord:
        """Claim the key for ``owner``, one call, or return the recorded outcome."""
        ...

    def renew(self, held: IdempotencyRecord, *, lease: timedelta) -> IdempotencyRecord:
        """Extend the lease of a claim; raise if the claim has expired or was lost."""
        ...

    def complete(
        self,
        held: IdempotencyRecord,
        result: bytes,
        *,
        keep: timedelta | None,
        event: AuditEvent | None = None,
    ) -> IdempotencyRecord:
        """Record the result of a claim, unless another caller has the key."""
        ...

    def fail(
        self,
        held: IdempotencyRecord,
        error: Exception,
        *,
        keep: timedelta | None,
        event: AuditEvent | None = None,
    ) -> IdempotencyRecord:
        """Record a failure for all later callers, unless another caller has the key."""
        ...

    def release(self, held: IdempotencyRecord) -> None:
        """Release a claim for the next caller; a claim that was lost is left alone."""
        ...

    def find(self, key: str) -> IdempotencyRecord | None:
        """Return the record of a key, unless it has expired."""
        ...

    def clear(self, key: str) -> bool:
        """Delete a key in any state; return whether it existed."""
        ...


class ResultCodec(Protocol):
    """Encodes results as bytes and decodes them."""

    def check_type(self, result_type: Any) -> None:
        """Raise if values of a type cannot be encoded."""
        ...

    def encode(self, result: Any) -> bytes:
        """Return the bytes that ``decode`` turns into an equal result."""
        ...

    def decode(self, content: bytes) -> Any: ...


class Heartbeat(Protocol):
    """Repeats a call in the background."""

    def start(self, beat: Callable[[], bool], *, every_s: float) -> AbstractContextManager[object]:
        """Call ``beat`` every ``every_s`` seconds in the block, until it returns ``False``."""
        ...
