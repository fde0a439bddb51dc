"""A retry budget that threads share."""

from collections.abc import Callable
from threading import RLock

from attrs import define, field

from tileferry.application.ports.clock import Clock
from tileferry.domain.retry import Decision, RetryAt, RetryBudget


@define(kw_only=True, eq=False)
class SharedRetryTokens:
    """One bucket, one decision at a time."""

    clock: Clock
    budget: RetryBudget = field(factory=RetryBudget)
    _guard: RLock = field(factory=RLock, init=False)

    def note_first_attempt(self) -> None:
        """Let an operation that is tried for the first time earn its share."""
        with self._guard:
            self.budget = self.budget.after_first_attempt()

    def charged(self, decide: Callable[[float], Decision]) -> Decision:
        """Have something decided with the tokens there are, and charge a retry if it is one."""
        with self._guard:
            self.budget = self.budget.refilled(self.clock.monotonic())
            decision = decide(self.budget.tokens)
            if isinstance(decision, RetryAt):
                self.budget = self.budget.after_retry()
            return decision
