"""The token bucket that retries are paid from; all who call one source share it."""

from collections.abc import Callable
from typing import Protocol

from attrs import frozen

from tileferry.domain.audit import IdempotencyAction
from tileferry.domain.retry import Decision, FailedAttempt


class RetryTokens(Protocol):
    """Keeps a ``RetryBudget``. Any thread may ask."""

    def note_first_attempt(self) -> None:
        """Let an operation that is tried for the first time earn its share."""
        ...

    def charge(self, decide: Callable[[float], Decision]) -> Decision:
        """Have something decided with the tokens there are, and charge a retry if it is one."""
        ...


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

    def on_attempt_failed(self, attempt: FailedAttempt) -> None:
        """Note an attempt that raised, and what was decided then."""
        ...

    def on_idempotency(self, action: IdempotencyAction) -> None:
        """Note that a stored result was given back, or a new one was stored."""
        ...

    def on_success(self, attempts: int) -> None:
        """Note the end of a call that returned; no attempts when a stored result was given."""
        ...

    def on_failure(self, error: BaseException) -> None:
        """Note the end of a call that raised."""
        ...


class Telemetry(Protocol):
    """Makes an observer for each call. What it raises is logged and changes nothing."""

    def begin(self, call: CallInfo) -> CallObserver:
        """Note that a call begins."""
        ...
