"""The retry budget that all callers of a source share, and telemetry of calls."""

from collections.abc import Callable
from typing import Protocol

from attrs import frozen

from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # for annotations
    from tileferry.domain.audit import IdempotencyAction
    from tileferry.domain.retry import Decision, FailedAttempt, Pace, RetryBudget


class RetryTokens(Protocol):
    """Holds a ``RetryBudget``. Thread-safe."""

    def note_success(self) -> None:
        """Credit the budget for an operation that succeeded."""
        ...

    def charge(self, decide: Callable[[RetryBudget], Decision]) -> Decision:
        """Decide on the budget as it is now; reserve a token if the decision costs one."""
        ...


class RequestPace(Protocol):
    """Holds the ``Pace`` of a source and lets only so many requests run. Thread-safe."""

    def begin_request(self) -> float:
        """Wait until a request may start; return the monotonic time of its start.

        Without an error, ``end_request`` must follow.
        """
        ...

    def try_begin_request(self) -> float | None:
        """Do the same without waiting: return when to start, or ``None`` if too many run already.

        The time may be in the future. If there is one, ``end_request`` must follow.
        """
        ...

    def end_request(self, update: Callable[[Pace], Pace]) -> tuple[Pace, Pace]:
        """End a request and update the pace by its outcome; return the pace before and after."""
        ...


@frozen(kw_only=True)
class CallInfo:
    """The observed call."""

    category: str
    operation: str
    tenant_id: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None


class CallObserver(Protocol):
    """Observes one call; exactly one of ``on_success`` and ``on_failure`` ends it."""

    def on_attempt_failed(self, attempt: FailedAttempt) -> None:
        """Handle a failed attempt and its retry decision."""
        ...

    def on_idempotency(self, action: IdempotencyAction) -> None:
        """Handle the return of a stored result, or the storing of a new one."""
        ...

    def on_success(self, attempts: int) -> None:
        """Handle the success of a call; ``attempts`` is 0 if a stored result was returned."""
        ...

    def on_failure(self, error: BaseException) -> None:
        """Handle the failure of a call."""
        ...


class Telemetry(Protocol):
    """Creates an observer for each call. Its errors are logged and do not affect the call."""

    def begin(self, call: CallInfo) -> CallObserver:
        """Return the observer of a new call."""
        ...
