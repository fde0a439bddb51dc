"""The retry budget: retries may add only a fraction of the normal load.

Each first attempt earns a fraction of a token, and each retry costs a whole token. During an outage
retries are therefore limited to that fraction of the first attempts; after it, the bucket refills.
A slow refill over time ensures that a rare operation can still be retried.
"""

import math

from attrs import evolve, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import number

RETRY_COST_TOKENS = 1.0
# Tolerance for floating-point error: 0.1 added ten times is slightly less than 1.
_ROUNDING_TOKENS = 1e-9


def can_pay_retry(tokens: float) -> bool:
    """Return whether this many tokens are enough for a retry."""
    return tokens >= RETRY_COST_TOKENS - _ROUNDING_TOKENS


@frozen(kw_only=True)
class RetryBudget:
    """The state of a token bucket. It is immutable; each method returns a new one."""

    capacity: float = field(default=10.0, validator=number(RETRY_COST_TOKENS))
    earned_per_attempt: float = field(default=0.1, validator=number(0, 1))
    refill_per_s: float = field(default=0.0, validator=number(0))
    tokens: float = field(validator=number(0))
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
        """The number of retries that the tokens allow."""
        return math.floor(self.tokens / RETRY_COST_TOKENS + _ROUNDING_TOKENS)

    def earn(self, count: int = 1) -> "RetryBudget":
        """Return the bucket after ``count`` first attempts."""
        if self.tokens >= self.capacity:
            return self  # the common case: a full bucket costs a download nothing
        earned = count * self.earned_per_attempt
        return self._with(self.tokens + earned, updated_s=self.updated_s)

    def spend(self, count: int = 1) -> "RetryBudget":
        """Return the bucket after ``count`` retries. It never goes below empty."""
        left = self.tokens - count * RETRY_COST_TOKENS
        return self._with(max(0.0, left), updated_s=self.updated_s)

    def _with(self, tokens: float, *, updated_s: float) -> "RetryBudget":
        return evolve(self, tokens=min(tokens, self.capacity), updated_s=updated_s)
