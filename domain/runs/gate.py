"""A source that asked for patience gets it from every run, not only from the one it told."""

from datetime import datetime, timedelta

from attrs import evolve, field, frozen, validators

from tileferry.domain.checks import aware, check_moment, name
from tileferry.domain.retry import RUN_POLICY, ErrorClass, RateLimited, RetryPolicy, wait_as_told


@frozen(kw_only=True)
class SourceGate:
    """Until when no run of one source is started. Waiting at it costs a run nothing."""

    source: str = field(validator=name)
    closed_until: datetime | None = field(default=None, validator=validators.optional(aware))
    """``None`` when it was never closed; at that very instant it is open."""

    def is_open(self, now: datetime) -> bool:
        """Tell whether runs of the source may start."""
        check_moment(now)
        return self.closed_until is None or self.closed_until <= now

    def after(
        self, error: ErrorClass, *, now: datetime, policy: RetryPolicy = RUN_POLICY
    ) -> "SourceGate":
        """Return the gate after a run's error: closed for the wait that the source asked for.

        The wait is cut as the run's own is. A gate never opens earlier than was promised before.
        """
        if not isinstance(error, RateLimited) or error.retry_after_s is None:
            return self
        until = now + timedelta(seconds=wait_as_told(error.retry_after_s, policy))
        if self.closed_until is not None and self.closed_until >= until:
            return self
        return evolve(self, closed_until=until)
