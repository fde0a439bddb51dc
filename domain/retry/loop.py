"""The retry loop without its I/O: a driver makes the calls and sleeps, the loop says what is next.

A driver, synchronous or not, calls the operation; only when that raises does it need a loop::

    loop = RetryLoop(policy=policy, key=key, started_s=started_s)
    decision = loop.after_failure(error, now_s=clock.monotonic())

and then sleeps ``decision.delay_s`` and calls again, or gives up.
"""

from attrs import define, field, frozen

from tileferry.domain.errors import RetryError
from tileferry.domain.retry.classify import Classifier, ErrorClass, classify_failure
from tileferry.domain.retry.decide import Decision, Failure, GiveUp, RetryAt, decide
from tileferry.domain.retry.policy import RetryPolicy
from tileferry.domain.text import format_error, printable


@frozen(kw_only=True)
class FailedAttempt:
    """One line of the history: what failed, what it was taken for, and what was decided."""

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
    """Monotonic time at which the first attempt began."""
    classifier: Classifier | None = None
    history: list[FailedAttempt] = field(factory=list, init=False)
    _attempt: int = field(default=1, init=False)
    _rate_limited: int = field(default=0, init=False)

    @property
    def waited_s(self) -> float:
        """What all waits up to now add up to."""
        decisions = (failed.decision for failed in self.history)
        return sum(decision.delay_s for decision in decisions if isinstance(decision, RetryAt))

    def record_failure(
        self,
        error: BaseException,
        *,
        now_s: float,
        budget_tokens: float | None = None,
        error_class: ErrorClass | None = None,
    ) -> Decision:
        """Record that an attempt raised ``error``, and decide.

        Whoever has classified it already says so: a classifier is somebody else's code, and not to
        be called while a lock is held.
        """
        failure = Failure(
            key=self.key,
            attempt=self._attempt,
            error=error_class or self.classify(error),
            rate_limited=self._rate_limited,
            elapsed_s=max(0.0, now_s - self.started_s),
            budget_tokens=budget_tokens,
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

    def build_error(self, decision: GiveUp, *, category: str, operation: str) -> RetryError:
        """Return the error that tells the caller that all tries failed."""
        return RetryError(
            category=category,
            operation=operation,
            attempts=len(self.history),
            elapsed_s=self.history[-1].failure.elapsed_s,
            reason=decision.reason,
            history=tuple(self.history),
        )

    def classify(self, error: BaseException) -> ErrorClass:
        """Classify an error, by the classifier or by the policy's lists."""
        return classify_failure(error, self.policy, self.classifier)
