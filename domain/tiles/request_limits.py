"""Limits for requests: their rate, and the time allowed for sending one.

The rate limit spaces requests evenly, without bursts. The wait of a request depends only on when
the requests were made.
"""

from attrs import evolve, field, frozen

from tileferry.domain.tiles.limits import REQUESTS_PER_S_MAX, REQUESTS_PER_S_MIN
from tileferry.domain.validation import number


@frozen(kw_only=True)
class RequestSpacing:
    """The state of the rate limit at one moment. It is immutable; ``take_turn`` returns the next
    state.
    """

    max_per_s: float = field(validator=number(REQUESTS_PER_S_MIN, REQUESTS_PER_S_MAX))
    free_at_s: float = field(default=0.0, validator=number(0))
    """The earliest time of the next request, in monotonic time."""

    def take_turn(self, now_s: float) -> tuple[float, "RequestSpacing"]:
        """Return how long to wait before the next request, and the state after it."""
        at_s = max(now_s, self.free_at_s)
        return at_s - now_s, evolve(self, free_at_s=at_s + 1.0 / self.max_per_s)


SENDING_RATE_BYTES_S_MIN = 1_000.0
SENDING_GRACE_S = 30.0


@frozen(kw_only=True)
class SendingLimits:
    """Limits the time for sending a request. It grows with the size of the request."""

    rate_bytes_s_min: float = field(default=SENDING_RATE_BYTES_S_MIN, validator=number(1))
    """The minimum average rate over the whole request. A slower request is aborted."""
    grace_s: float = field(default=SENDING_GRACE_S, validator=number(0.001, 3600))
    """Extra time for connecting and for pauses of the link."""

    def compute_deadline_s(self, size_bytes: int) -> float:
        """Return the maximum time until the last byte of a request of this size is sent."""
        return self.grace_s + size_bytes / self.rate_bytes_s_min
