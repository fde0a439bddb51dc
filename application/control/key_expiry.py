"""Idempotency keys whose time is over, removed beside the work."""

from attrs import frozen

from tileferry.application.control.control_calls import ControlCalls, at_once
from tileferry.application.ports.idempotency import IdempotencyStore
from tileferry.domain.retry import RetryCategory

SWEEP_MAX = 500
"""How many records one sweep removes; the next one takes the rest."""


@frozen(kw_only=True)
class KeyExpiry:
    """Removes what nobody can find any more."""

    store: IdempotencyStore
    calls: ControlCalls = at_once

    def sweep(self, *, limit: int = SWEEP_MAX) -> int:
        """Remove records that have expired; return how many."""
        return self.calls(
            RetryCategory.EXECUTION_EXPIRATION,
            "ForgetKeys",
            lambda: self.store.forget_expired(limit=limit),
        )
