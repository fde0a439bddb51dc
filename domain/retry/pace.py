"""The pace of requests to one source: how many run at a time, and how far apart they start.

One number, the level, sets both. It drops by a factor when the source is overloaded and recovers by
steps with successes, as TCP does with its window. From 1 upwards it is the number of requests at a
time. Below 1 there is one request at a time, and requests start further apart.
"""

import math
from enum import StrEnum

from attrs import evolve, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import integer, number

DROP_FACTOR = 0.7
"""TCP Cubic's factor. Halving would leave a third less speed at 20 % random errors."""
LEVEL_MIN = 0.1
LOW_STEP = 0.2
"""What a success adds below level 1. From 1 upwards, one round of successes adds 1."""
SPACING_S = 0.1
"""Requests start this far apart at level 0.5. Where half of all requests fail, the level stays near
0.7 and costs 0.05 s per request; with 0.25 s and steps of 0.1 it cost 0.6 s.
"""


class HoldRule(StrEnum):
    """Why a request waits before it is sent. The rules for retries are in ``RetryReason``."""

    SOURCE_GATE = "source_gate"
    """The provider asked another request to wait, so all requests to the source wait."""
    PACE = "pace"

    @property
    def label(self) -> str:
        """The rule as text, as it is shown beside a wait."""
        return self.value.replace("_", " ")


@frozen(kw_only=True)
class Pace:
    """The pace of one source. It is immutable; each method returns a new one."""

    concurrency_max: int = field(validator=integer(1))
    level: float = field(validator=number(LEVEL_MIN))
    cause: str = ""
    """What made it drop last; empty at full speed."""
    dropped_s: float = field(default=0.0, validator=number(0))
    """Monotonic time of the last drop."""

    @level.default
    def _full(self) -> float:
        return float(self.concurrency_max)

    def __attrs_post_init__(self) -> None:
        if self.level > self.concurrency_max:
            raise InvalidValueError(
                field="Pace.level", value=self.level, problem=f"exceeds {self.concurrency_max}"
            )

    @property
    def concurrency(self) -> int:
        """How many requests may run at a time."""
        return max(1, math.floor(self.level))

    @property
    def spacing_s(self) -> float:
        """The least time between the starts of two requests."""
        return SPACING_S * (1 / self.level - 1) if self.level < 1 else 0.0

    @property
    def is_full(self) -> bool:
        return self.level >= self.concurrency_max

    def is_slower_than(self, other: "Pace") -> bool:
        """Return whether this pace allows fewer requests."""
        return self.level < other.level

    def speed_up(self) -> "Pace":
        """Return the pace after a success."""
        if self.is_full:
            return self
        step = 1 / self.level if self.level >= 1 else LOW_STEP
        level = min(self.level + step, float(self.concurrency_max))
        cause = "" if level >= self.concurrency_max else self.cause
        return evolve(self, level=level, cause=cause)

    def slow_down(self, cause: str, *, started_s: float, now_s: float) -> "Pace":
        """Return the pace after a sign of overload in a request that started at ``started_s``.

        Requests that started before the last drop say nothing about the new pace, so many that fail
        together count once.
        """
        if started_s < self.dropped_s:
            return self
        level = max(LEVEL_MIN, self.level * DROP_FACTOR)
        return evolve(self, level=level, cause=cause, dropped_s=max(now_s, self.dropped_s))
