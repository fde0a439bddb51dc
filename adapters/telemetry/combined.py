"""Several kinds of telemetry for the same calls."""

from collections.abc import Sequence

from attrs import frozen

from tileferry.application.ports.retries import CallInfo, CallObserver, Telemetry
from tileferry.domain.audit import IdempotencyAction
from tileferry.domain.retry import FailedAttempt


@frozen
class CombinedTelemetry:
    """Notifies all of them."""

    members: Sequence[Telemetry]

    def begin(self, call: CallInfo) -> "_CombinedObserver":
        """Return an observer that notifies an observer of each member."""
        return _CombinedObserver([member.begin(call) for member in self.members])


@frozen
class _CombinedObserver:
    _observers: Sequence[CallObserver]

    def on_attempt_failed(self, attempt: FailedAttempt) -> None:
        for observer in self._observers:
            observer.on_attempt_failed(attempt)

    def on_idempotency(self, action: IdempotencyAction) -> None:
        for observer in self._observers:
            observer.on_idempotency(action)

    def on_success(self, attempts: int) -> None:
        for observer in self._observers:
            observer.on_success(attempts)

    def on_failure(self, error: BaseException) -> None:
        for observer in self._observers:
            observer.on_failure(error)
