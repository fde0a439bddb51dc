"""What becomes of calls that are tried again, or made once under a key."""

from datetime import datetime
from typing import TYPE_CHECKING

from attrs import define

from tileferry.domain.errors.base import TileManagerError, format_line
from tileferry.domain.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tileferry.domain.retry.decide import GiveUpReason
    from tileferry.domain.retry.loop import FailedAttempt


@define(kw_only=True, eq=False)
class RetryError(TileManagerError):
    """An operation was tried as often as its policy allows, and failed each time.

    The last failure is chained as ``__cause__``.
    """

    category: str
    operation: str
    attempts: int
    elapsed_s: float
    reason: "GiveUpReason"
    history: "Sequence[FailedAttempt]" = ()

    def __str__(self) -> str:
        last = f"; last error: {self.history[-1].summary}" if self.history else ""
        return (
            f"{printable(self.operation)} ({printable(self.category)}) gave up after "
            f"{self.attempts} attempt{'' if self.attempts == 1 else 's'} in {self.elapsed_s:.1f} s"
            f": {self.reason.explanation}{last}"
        )


@define(kw_only=True, eq=False)
class IdempotencyConflictError(TileManagerError):
    """One idempotency key was used with two different payloads."""

    key: str
    recorded_fingerprint: str
    offered_fingerprint: str

    def __str__(self) -> str:
        return (
            f"idempotency key {printable(self.key)} was first used with payload "
            f"{self.recorded_fingerprint[:12]} and now comes with {self.offered_fingerprint[:12]}; "
            f"use a new key for a new payload"
        )


@define(kw_only=True, eq=False)
class IdempotencyInProgressError(TileManagerError):
    """Another caller holds the key and has not finished."""

    key: str
    owner: str
    lease_expires_at: datetime

    def __str__(self) -> str:
        return (
            f"idempotency key {printable(self.key)} is held by {printable(self.owner)} until "
            f"{self.lease_expires_at.isoformat()}; wait for it, or try again after that"
        )


@define(kw_only=True, eq=False)
class IdempotencyLostError(TileManagerError):
    """A claim on a key ended before its holder was done with it."""

    key: str
    owner: str
    problem: str

    def __str__(self) -> str:
        return (
            f"{printable(self.owner)} does not hold idempotency key {printable(self.key)}: "
            f"{format_line(self.problem)}; read the record again: "
            "somebody else may have done the work"
        )


@define(kw_only=True, eq=False)
class RecordedFailureError(TileManagerError):
    """The operation failed for good when it was tried under this key; it is not tried again."""

    key: str
    error_type: str
    error_message: str
    recorded_at: datetime

    def __str__(self) -> str:
        return (
            f"the operation of idempotency key {printable(self.key)} failed for good at "
            f"{self.recorded_at.isoformat()}: {printable(self.error_type)}: "
            f"{format_line(self.error_message)}; use a new key, or clear this one, to try it again"
        )


@define(kw_only=True, eq=False)
class ResultNotStorableError(TileManagerError):
    """A result that cannot be kept, so that it could not be given to the next caller."""

    key: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return (
            f"the result under idempotency key {printable(self.key)} cannot be stored: "
            f"{format_line(self.problem)}; {self.remedy}"
        )
