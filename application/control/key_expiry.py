"""The expiry of idempotency keys, which workers sweep."""

from attrs import frozen

from tileferry.application.control.control_calls import ControlCalls, call_once
from tileferry.application.ports.idempotency import ExpiringRecords
from tileferry.domain.retry import RetryCategory

KEYS_PER_SWEEP_MAX = 500
"""Maximum number of records that one sweep removes; the next sweep continues."""


@frozen(kw_only=True)
class KeyExpiry:
    """Removes expired idempotency keys."""

    store: ExpiringRecords
    calls: ControlCalls = call_once

    def sweep(self, *, limit: int = KEYS_PER_SWEEP_MAX) -> int:
        """Remove expired records; return how many."""
        return self.calls(
            RetryCategory.EXECUTION_EXPIRATION,
            "ForgetKeys",
            lambda: self.store.forget_expired(limit=limit),
        )
