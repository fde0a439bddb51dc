"""The retry budget: retries may add only a fraction of the normal load.

Each first attempt earns a fraction of a token and each retry costs a whole one. While everything
fails, retries are therefore at most that fraction of the first attempts; when things work again the
bucket fills by itself. A slow refill over time keeps a rare operation from being locked out.
"""

import math

from attrs import evolve, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import number

RETRY_COST_TOKENS = 1.0
# Ten times a tenth of a token is a hair less than one.
_ROUNDING_TOKENS = 1e-9


def can_pay_retry(tokens: float) -> bool:
    """Tell whether a bucket with so many tokens can pay a retry."""
    return tokens >= RETRY_COST_TOKENS - _ROUNDING_TOKENS


@frozen(kw_only=True)
class RetryBudget:
    """A token bucket at one moment; each method returns the bucket that follows."""

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
        """Return the bucket at ``now_s``; a clock that went back earns nothing."""
        elapsed_s = max(0.0, now_s - self.updated_s)
        return self._with(
            self.tokens + elapsed_s * self.refill_per_s, updated_s=max(now_s, self.updated_s)
        )

    @property
    def retries_allowed(self) -> int:
        """How many retries can be paid now."""
        return math.floor(self.tokens / RETRY_COST_TOKENS + _ROUNDING_TOKENS)

    def earn(self, count: int = 1) -> "RetryBudget":
        """Return the bucket after operations were tried for the first time."""
        if self.tokens >= self.capacity:
            return self  # as nearly always: a full bucket costs a download nothing
        earned = count * self.earned_per_attempt
        return self._with(self.tokens + earned, updated_s=self.updated_s)

    def spend(self, count: int = 1) -> "RetryBudget":
        """Return the bucket after retries were granted; never below empty."""
        left = self.tokens - count * RETRY_COST_TOKENS
        return self._with(max(0.0, left), updated_s=self.updated_s)

    def _with(self, tokens: float, *, updated_s: float) -> "RetryBudget":
        return evolve(self, tokens=min(tokens, self.capacity), updated_s=updated_s)
