"""Errors of retried calls, and of calls under an idempotency key."""

from datetime import datetime
from typing import TYPE_CHECKING

from attrs import define

from tileferry.domain.errors.base import TileManagerError, format_line
from tileferry.domain.errors.remedies import Remedy
from tileferry.domain.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tileferry.domain.retry.decision import GiveUpReason
    from tileferry.domain.retry.loop import FailedAttempt


@define(kw_only=True, eq=False)
class RetryError(TileManagerError):
    """An operation failed in every attempt that its policy allows.

    The last failure is chained as ``__cause__``.
    """

    category: str
    operation: str
    attempts: int
    elapsed_s: float
    reason: "GiveUpReason"
    history: "Sequence[FailedAttempt]" = ()

    @property
    def summary(self) -> str:
        last = f"; last error: {self.history[-1].summary}" if self.history else ""
        return (
            f"{printable(self.operation)} ({printable(self.category)}) gave up after "
            f"{self.attempts} attempt{'' if self.attempts == 1 else 's'} in {self.elapsed_s:.1f} s"
            f": {self.reason.explanation}{last}"
        )


@define(kw_only=True, eq=False)
class IdempotencyConflictError(TileManagerError):
    """One idempotency key was used with two different payloads."""

    remedy = "use a new key for a new payload"
    key: str
    recorded_fingerprint: str
    offered_fingerprint: str

    @property
    def summary(self) -> str:
        return (
            f"idempotency key {printable(self.key)} was first used with payload "
            f"{self.recorded_fingerprint[:12]}, and now with {self.offered_fingerprint[:12]}"
        )


@define(kw_only=True, eq=False)
class IdempotencyInProgressError(TileManagerError):
    """Another caller holds the key and has not finished."""

    remedy = "wait for it, or retry after that time"
    key: str
    owner: str
    lease_expires_at: datetime

    @property
    def summary(self) -> str:
        return (
            f"idempotency key {printable(self.key)} is held by {printable(self.owner)} until "
            f"{self.lease_expires_at.isoformat()}"
        )


@define(kw_only=True, eq=False)
class IdempotencyLostError(TileManagerError):
    """A claim on a key ended before its holder finished."""

    remedy = "read the record again: another caller may have done the work"
    key: str
    owner: str
    problem: str

    @property
    def summary(self) -> str:
        return (
            f"{printable(self.owner)} does not hold idempotency key {printable(self.key)}: "
            f"{format_line(self.problem)}"
        )


@define(kw_only=True, eq=False)
class RecordedFailureError(TileManagerError):
    """The operation failed permanently under this key and is not retried."""

    remedy = "to retry, use a new key or clear this one"
    key: str
    error_type: str
    error_message: str
    recorded_at: datetime

    @property
    def summary(self) -> str:
        return (
            f"the operation of idempotency key {printable(self.key)} failed permanently at "
            f"{self.recorded_at.isoformat()}: {printable(self.error_type)}: "
            f"{format_line(self.error_message)}"
        )


@define(kw_only=True, eq=False)
class ResultNotStorableError(TileManagerError):
    """A result cannot be stored, so the next caller could not get it."""

    key: str
    problem: str
    remedy: Remedy | str

    @property
    def summary(self) -> str:
        return (
            f"the result under idempotency key {printable(self.key)} cannot be stored: "
            f"{format_line(self.problem)}"
        )
