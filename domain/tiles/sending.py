"""How long it may take to send a request: as long as a slow link that moves needs for its bytes."""

from attrs import field, frozen

from tileferry.domain.checks import number

SENDING_RATE_BYTES_S_MIN = 1_000.0
SENDING_GRACE_S = 30.0


@frozen(kw_only=True)
class SendingLimits:
    """The time for sending grows with what is sent; no request takes for ever."""

    rate_bytes_s_min: float = field(default=SENDING_RATE_BYTES_S_MIN, validator=number(1))
    """A link that is slower, taken over the whole request, is given up."""
    grace_s: float = field(default=SENDING_GRACE_S, validator=number(0.001, 3600))
    """On top of it: for the connection, and for a link that pauses."""

    def deadline_s(self, size_bytes: int) -> float:
        """Return how long a request of that size may take until its last byte is sent."""
        return self.grace_s + size_bytes / self.rate_bytes_s_min
