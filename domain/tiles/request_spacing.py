"""Requests at most so many a second: each gets a moment of its own, none before it is due.

There are no bursts. A server that is not ours to load sees an even trickle, and what any request
waits for follows from the moments at which requests were asked for, and from nothing else.
"""

from attrs import evolve, field, frozen

from tileferry.domain.checks import number

REQUESTS_PER_S_MIN = 0.01
REQUESTS_PER_S_MAX = 100.0


@frozen(kw_only=True)
class RequestSpacing:
    """The state at one moment; taking a turn returns the state that follows."""

    max_per_s: float = field(validator=number(REQUESTS_PER_S_MIN, REQUESTS_PER_S_MAX))
    free_at_s: float = field(default=0.0, validator=number(0))
    """When the next request may go, in monotonic time."""

    def taken(self, now_s: float) -> tuple[float, "RequestSpacing"]:
        """Take the next turn: return how long to wait for it, and what is left for others."""
        at_s = max(now_s, self.free_at_s)
        return at_s - now_s, evolve(self, free_at_s=at_s + 1.0 / self.max_per_s)
