"""Retries for calls that nearly always succeed at once, in commands that start fast."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from attrs import frozen

from tileferry.application.retries.driver import RetryState, drive
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.retry import RetryCategory

with import_on_call(globals()):  # for annotations
    from tileferry.application.ports.clock import Clock
    from tileferry.application.retries.manager import RetryManager
    from tileferry.domain.retry import Classifier

Result = TypeVar("Result")


class RetriedCalls(Protocol):
    """Makes calls, with the retries of their category; ``RetryManager`` is one."""

    def execute_with_retry_sync(
        self,
        category: RetryCategory,
        operation: str,
        call: Callable[[], Result],
        *,
        classifier: Classifier | None = None,
    ) -> Result:
        """Return the result of the call, or raise the error of its last attempt."""
        ...


@frozen
class RetriesOnFailure:
    """Builds the retry manager at the first failure; it decides, waits and audits as always.

    The manager imports the audit log and its outbox, and a call that succeeds needs neither. Such a
    call is not reported to telemetry: where that is configured, use the manager itself.
    """

    clock: Clock
    build_manager: Callable[[], RetryManager]

    def execute_with_retry_sync(
        self,
        category: RetryCategory,
        operation: str,
        call: Callable[[], Result],
        *,
        classifier: Classifier | None = None,
    ) -> Result:
        """Return the result of the call, or raise the error of its last attempt."""
        return drive(call, self.clock, None, self._begin, (category, operation, classifier))

    def _begin(
        self,
        started_s: float,
        category: RetryCategory,
        operation: str,
        classifier: Classifier | None,
    ) -> RetryState:
        attempts = self.build_manager().attempts(category, operation, classifier=classifier)
        return attempts.begin(started_s)
