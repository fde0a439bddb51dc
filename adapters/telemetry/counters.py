"""Prometheus counters for retried calls."""

from attrs import define, field, frozen
from prometheus_client import CollectorRegistry, Counter

from tileferry.application.ports.retries import CallInfo
from tileferry.domain.audit import IdempotencyAction
from tileferry.domain.retry import FailedAttempt, RetryAt


@define
class PrometheusCounters:
    """Counts calls, failed attempts, waiting time and idempotency actions, by category."""

    _registry: CollectorRegistry
    calls: Counter = field(init=False)
    failed_attempts: Counter = field(init=False)
    waited_seconds: Counter = field(init=False)
    idempotency: Counter = field(init=False)

    def __attrs_post_init__(self) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(
                f"tileferry_{name}", text, ["category", *labels], registry=self._registry
            )

        self.calls = counter("retry_calls", "Calls by outcome", "outcome")
        self.failed_attempts = counter(
            "retry_failed_attempts", "Failed attempts by decision", "decision"
        )
        self.waited_seconds = counter("retry_waited_seconds", "Seconds waited between attempts")
        self.idempotency = counter("idempotency", "Idempotency actions", "action")

    def begin(self, call: CallInfo) -> "_CountingObserver":
        """Return an observer that counts one call."""
        return _CountingObserver(self, call.category)


@frozen
class _CountingObserver:
    """Counts the events of one call."""

    _counters: PrometheusCounters
    _category: str

    def on_attempt_failed(self, attempt: FailedAttempt) -> None:
        decision = attempt.decision
        self._counters.failed_attempts.labels(self._category, decision.reason.value).inc()
        if isinstance(decision, RetryAt):
            self._counters.waited_seconds.labels(self._category).inc(decision.delay_s)

    def on_idempotency(self, action: IdempotencyAction) -> None:
        self._counters.idempotency.labels(self._category, action.value).inc()

    def on_success(self, attempts: int) -> None:
        outcome = "succeeded" if attempts else "given_back"
        self._counters.calls.labels(self._category, outcome).inc()

    def on_failure(self, _error: BaseException) -> None:
        self._counters.calls.labels(self._category, "failed").inc()
