"""What a program may want to observe of its retries, beside the audit log."""

from typing import Protocol

from attrs import frozen

from tileferry.domain.audit import IdempotencyAction
from tileferry.domain.retry import FailedAttempt


@frozen(kw_only=True)
class CallInfo:
    """Which call is observed."""

    category: str
    operation: str
    tenant_id: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None


class CallObserver(Protocol):
    """Sees one call through; exactly one of ``succeeded`` and ``failed`` ends it."""

    def attempt_failed(self, attempt: FailedAttempt) -> None:
        """Note an attempt that raised, and what was decided then."""
        ...

    def idempotency(self, action: IdempotencyAction) -> None:
        """Note that a stored result was given back, or a new one was stored."""
        ...

    def succeeded(self, attempts: int) -> None:
        """Note the end of a call that returned; no attempts when a stored result was given."""
        ...

    def failed(self, error: BaseException) -> None:
        """Note the end of a call that raised."""
        ...


class Telemetry(Protocol):
    """Makes an observer for each call. What it raises is logged and changes nothing."""

    def begin(self, call: CallInfo) -> CallObserver:
        """Note that a call begins."""
        ...
