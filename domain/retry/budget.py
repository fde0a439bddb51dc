"""The retry budget: a token bucket that delays retries and never cancels them.

Each retry costs a token; each success earns a fraction of one, and time refills the bucket. While
most calls succeed, a retry finds a token. During an outage nothing is earned, so the refill alone
limits the rate of retries: each reserves the next token and waits until it is there.
"""

import math

from attrs import evolve, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import number

RETRY_COST_TOKENS = 1.0
REFILL_PER_S_MIN = 0.001
"""Without a refill, a retry could wait forever."""
# Tolerance for floating-point error: 0.1 added ten times is slightly less than 1.
_ROUNDING_TOKENS = 1e-9
_DEBT_TOKENS_MAX = 1e6


def can_pay_retry(tokens: float) -> bool:
    """Return whether this many tokens are enough for a retry."""
    return tokens >= RETRY_COST_TOKENS - _ROUNDING_TOKENS


@frozen(kw_only=True)
class RetryBudget:
    """The state of a token bucket. It is immutable; each method returns a new one."""

    capacity: float = field(default=10.0, validator=number(RETRY_COST_TOKENS))
    earned_per_success: float = field(default=0.5, validator=number(0, 1))
    refill_per_s: float = field(default=1.0, validator=number(REFILL_PER_S_MIN))
    tokens: float = field(validator=number(-_DEBT_TOKENS_MAX))
    """Below zero, waiting retries have reserved tokens that are still to come."""
    updated_s: float = field(default=0.0, validator=number(0))
    """Monotonic time of the last refill."""

    @tokens.default
    def _full(self) -> float:
        return self.capacity

    def __attrs_post_init__(self) -> None:
        if self.tokens > self.capacity:
            raise InvalidValueError(
                field="RetryBudget.tokens",
                value=self.tokens,
                problem=f"exceeds the capacity, {self.capacity:g}",
            )

    def refill(self, now_s: float) -> "RetryBudget":
        """Return the bucket at ``now_s``. A clock that went back adds no tokens."""
        elapsed_s = max(0.0, now_s - self.updated_s)
        return self._with(
            self.tokens + elapsed_s * self.refill_per_s, updated_s=max(now_s, self.updated_s)
        )

    @property
    def retries_allowed(self) -> int:
        """The number of retries that the tokens allow now."""
        return max(0, math.floor(self.tokens / RETRY_COST_TOKENS + _ROUNDING_TOKENS))

    @property
    def wait_s(self) -> float:
        """How long the next retry waits for its token, if nothing is earned meanwhile."""
        if can_pay_retry(self.tokens):
            return 0.0
        return (RETRY_COST_TOKENS - self.tokens) / self.refill_per_s

    def earn(self, count: int = 1) -> "RetryBudget":
        """Return the bucket after ``count`` successes."""
        if self.tokens >= self.capacity:
            return self  # the common case: a full bucket costs a download nothing
        earned = count * self.earned_per_success
        return self._with(self.tokens + earned, updated_s=self.updated_s)

    def spend(self, count: int = 1) -> "RetryBudget":
        """Return the bucket after ``count`` retries. It never goes below empty."""
        left = self.tokens - count * RETRY_COST_TOKENS
        return self._with(max(0.0, left), updated_s=self.updated_s)

    def reserve(self) -> "RetryBudget":
        """Return the bucket after a retry that takes its token ``wait_s`` from now."""
        left = max(-_DEBT_TOKENS_MAX, self.tokens - RETRY_COST_TOKENS)
        return self._with(left, updated_s=self.updated_s)

    def _with(self, tokens: float, *, updated_s: float) -> "RetryBudget":
        return evolve(self, tokens=min(tokens, self.capacity), updated_s=updated_s)


QUEUE_BUDGET = RetryBudget(capacity=100.0, earned_per_success=0.1, refill_per_s=1.0)
"""The default retry budget of one source, shared by all workers.

Each retry of a failed run costs one token. The refill keeps a queue moving that contains only
retries; without one, a line whose head needs a token would never move again. A run costs nothing
if it is new, was rescued from a lost worker, was returned, was retried by an operator, or waited
because its source asked for it. None of these adds load that the source did not have before.
"""
