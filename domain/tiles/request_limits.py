"""Requests at most so many a second: each gets a moment of its own, none before it is due.

There are no bursts. A server that is not ours to load sees an even trickle, and what any request
waits for follows from the moments at which requests were asked for, and from nothing else.
"""

from attrs import evolve, field, frozen

from tileferry.domain.validation import number

REQUESTS_PER_S_MIN = 0.01
REQUESTS_PER_S_MAX = 100.0


@frozen(kw_only=True)
class RequestSpacing:
    """The state at one moment; taking a turn returns the state that follows."""

    max_per_s: float = field(validator=number(REQUESTS_PER_S_MIN, REQUESTS_PER_S_MAX))
    free_at_s: float = field(default=0.0, validator=number(0))
    """When the next request may go, in monotonic time."""

    def take_turn(self, now_s: float) -> tuple[float, "RequestSpacing"]:
        """Take the next turn: return how long to wait for it, and what is left for others."""
        at_s = max(now_s, self.free_at_s)
        return at_s - now_s, evolve(self, free_at_s=at_s + 1.0 / self.max_per_s)


SENDING_RATE_BYTES_S_MIN = 1_000.0
SENDING_GRACE_S = 30.0


@frozen(kw_only=True)
class SendingLimits:
    """The time for sending grows with what is sent; no request takes for ever."""

    rate_bytes_s_min: float = field(default=SENDING_RATE_BYTES_S_MIN, validator=number(1))
    """A link that is slower, taken over the whole request, is given up."""
    grace_s: float = field(default=SENDING_GRACE_S, validator=number(0.001, 3600))
    """On top of it: for the connection, and for a link that pauses."""

    def compute_deadline_s(self, size_bytes: int) -> float:
        """Return how long a request of that size may take until its last byte is sent."""
        return self.grace_s + size_bytes / self.rate_bytes_s_min
