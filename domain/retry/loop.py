"""The retry loop without I/O: it decides what follows a failed attempt, but does not call or wait.

A synchronous or asynchronous driver calls the operation. If it raises, the driver asks the loop::

    loop.record_failure(error, now_s=clock.monotonic())
    delay_s = loop.get_delay(error)

It then waits ``delay_s`` and calls again. A call that succeeds at once needs no loop.
"""

from attrs import define, field, frozen

from tileferry.domain.errors import RetryError
from tileferry.domain.retry.budget import RetryBudget
from tileferry.domain.retry.classify import Classifier, ErrorClass, classify_failure
from tileferry.domain.retry.decision import Decision, Failure, GiveUp, RetryAt, decide
from tileferry.domain.retry.policy import RetryPolicy
from tileferry.domain.text import format_error, printable


@frozen(kw_only=True)
class FailedAttempt:
    """One entry of the history: the failure, its error and the decision."""

    failure: Failure
    decision: Decision
    error_type: str
    error_message: str

    @property
    def summary(self) -> str:
        """The error on one line."""
        return f"{self.error_type}: {self.error_message}" if self.error_message else self.error_type


@define(kw_only=True)
class RetryLoop:
    """The failures of one operation so far."""

    policy: RetryPolicy
    key: str
    started_s: float
    """Monotonic time of the start of the first attempt."""
    classifier: Classifier | None = None
    category: str = ""
    operation: str = ""
    history: list[FailedAttempt] = field(factory=list, init=False)
    _attempt: int = field(default=1, init=False)
    _rate_limited: int = field(default=0, init=False)

    @property
    def waited_s(self) -> float:
        """The total of all waits so far."""
        decisions = (failed.decision for failed in self.history)
        return sum(decision.delay_s for decision in decisions if isinstance(decision, RetryAt))

    def record_failure(
        self,
        error: BaseException,
        *,
        now_s: float,
        budget: RetryBudget | None = None,
        error_class: ErrorClass | None = None,
    ) -> Decision:
        """Record that an attempt raised ``error``, and decide.

        Pass ``error_class`` if a lock is held: the classifier is third-party code and must not run
        under the lock.
        """
        failure = Failure(
            key=self.key,
            attempt=self._attempt,
            error=error_class or self.classify(error),
            rate_limited=self._rate_limited,
            elapsed_s=max(0.0, now_s - self.started_s),
            budget_tokens=None if budget is None else max(0.0, budget.tokens),
            budget_wait_s=None if budget is None else budget.wait_s,
        )
        decision = decide(self.policy, failure)
        if not isinstance(decision, GiveUp):
            self._attempt = decision.attempt
            self._rate_limited = decision.rate_limited
        self.history.append(
            FailedAttempt(
                failure=failure,
                decision=decision,
                error_type=printable(type(error).__name__),
                error_message=format_error(error),
            )
        )
        return decision

    def get_delay(self, error: BaseException) -> float | None:
        """Return the wait before the next attempt; ``None`` if ``error`` is final.

        Raises ``RetryError`` if the decision was to give up for another reason.
        """
        decision = self.history[-1].decision
        if isinstance(decision, RetryAt):
            return decision.delay_s
        if decision.is_final:
            return None
        raise RetryError(
            category=self.category,
            operation=self.operation,
            attempts=len(self.history),
            elapsed_s=self.history[-1].failure.elapsed_s,
            reason=decision.reason,
            history=tuple(self.history),
        ) from error

    def classify(self, error: BaseException) -> ErrorClass:
        """Classify an error with the classifier or by the policy's lists."""
        return classify_failure(error, self.policy, self.classifier)
