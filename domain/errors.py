"""Every error that tileferry raises on purpose: one family, each carrying its data.

A message says what happened, names the field and the value, and ends with what to do. Values from
outside are escaped; no error ever holds a secret.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import attrs
from attrs import define

from tileferry.domain.text import printable, shown

if TYPE_CHECKING:
    from tileferry.domain.retry.decide import GiveUpReason
    from tileferry.domain.retry.loop import FailedAttempt
    from tileferry.domain.tiles.provider_faults import ProviderFault


_LINE_CHARS_MAX = 1_000
_DRIFT_SHOWN_MAX = 10
_SPOKEN = {
    "mark_terminal": "mark it terminal",
    "record_error": "record an error of it",
    "retry_now": "retry it now",
}
"""Transitions whose names are no verb that "it" can follow."""


def _line(text: str) -> str:
    """A sentence of our own, in which somebody else's words may stand."""
    return printable(text, limit=_LINE_CHARS_MAX)


class TileManagerError(Exception):
    """Parent of the family."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only fields do not survive Exception's own pickling, and workers send errors home.
        kind = type(self)
        if not attrs.has(kind):
            return (kind, self.args)
        return (
            _rebuilt,
            (kind, {item.name: getattr(self, item.name) for item in attrs.fields(kind)}),
        )


def _rebuilt(kind: type[TileManagerError], fields: Mapping[str, Any]) -> TileManagerError:
    return kind(**fields)


@define(kw_only=True, eq=False)
class InvalidValueError(TileManagerError, ValueError):
    """A value that cannot be worked with, in a field that the message names."""

    field: str
    value: object
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{printable(self.field)}: {_line(self.problem)}"
        if self.value is not None:  # nothing was given: there is nothing to show
            text += f" (got {shown(self.value)})"
        return f"{text}; {_line(self.remedy)}" if self.remedy else text


@define(kw_only=True, eq=False)
class SatelliteProviderError(TileManagerError):
    """The provider failed in a way that the caller must know about."""

    reason: str
    url: str | None = None
    status: int | None = None
    attempts: int = 1
    body_excerpt: str | None = None
    fault: "ProviderFault | None" = None
    """What kind of failure it was."""
    retry_after_s: float | None = None

    def __str__(self) -> str:
        parts = [f"satellite-provider: {printable(self.reason)}"]
        if self.status is not None:
            parts.append(f"HTTP {self.status}")
        if self.url is not None:
            parts.append(f"at {printable(self.url)}")
        parts.append(f"after {self.attempts} attempt{'' if self.attempts == 1 else 's'}")
        if self.body_excerpt:
            parts.append(f"it said: {printable(self.body_excerpt)}")
        return ", ".join(parts)


@define(kw_only=True, eq=False)
class ResponseSchemaError(SatelliteProviderError):
    """The provider answered, but not in the agreed form."""

    field: str

    def __str__(self) -> str:
        return f"{SatelliteProviderError.__str__(self)}, in field {printable(self.field)}"


@define(kw_only=True, eq=False)
class RateLimitedError(TileManagerError):
    """The provider asked for patience more often than we are allowed to give it."""

    url: str
    attempts: int
    retry_after_s: float | None = None

    def __str__(self) -> str:
        when = (
            "it gave no time to come back"
            if self.retry_after_s is None
            else f"come back in {self.retry_after_s:g} s"
        )
        return (
            f"satellite-provider limits our rate at {printable(self.url)}, "
            f"{self.attempts} attempts; {when}"
        )


@define(kw_only=True, eq=False)
class ResolutionRejectionError(TileManagerError):
    """A tile's resolution lies outside what the operator accepts."""

    tile: str
    resolution_m_per_px: float
    min_m_per_px: float
    max_m_per_px: float | None = None

    def __str__(self) -> str:
        upper = "" if self.max_m_per_px is None else f" and at most {self.max_m_per_px:g}"
        return (
            f"tile {printable(self.tile)} has {self.resolution_m_per_px:g} m/px; "
            f"accepted is at least {self.min_m_per_px:g}{upper}"
        )


@define(kw_only=True, eq=False)
class FreshnessRejectionError(TileManagerError):
    """A tile is too old for its sector, or its date lies in the future and proves nothing."""

    tile: str
    sector_class: str
    produced_at: datetime
    max_age_days: float

    def __str__(self) -> str:
        return (
            f"tile {printable(self.tile)}, produced {self.produced_at.isoformat()}, is refused for "
            f"sector {printable(self.sector_class)}: it must be at most {self.max_age_days:g} days "
            f"old, and not from the future"
        )


@define(kw_only=True, eq=False)
class CacheBudgetExceededError(TileManagerError):
    """The cache cannot hold the batch, whatever may be evicted."""

    requested_bytes: int
    available_bytes: int

    @property
    def shortfall_bytes(self) -> int:
        """How much is missing."""
        return self.requested_bytes - self.available_bytes

    def __str__(self) -> str:
        return (
            f"the batch needs {self.requested_bytes} bytes and the cache can free "
            f"{self.available_bytes}: {self.shortfall_bytes} short; ask for a smaller area "
            f"or fewer zoom levels, unpin a flight, or raise c6.budget_bytes"
        )


@define(kw_only=True, eq=False)
class FlightStateNotOnGroundError(TileManagerError):
    """Uploading is for aircraft that have landed."""

    flight_id: str
    state: str

    def __str__(self) -> str:
        return (
            f"flight {printable(self.flight_id)} is {printable(self.state)}, not on the ground; "
            f"upload after landing, with a flight record that says on_ground"
        )


@define(kw_only=True, eq=False)
class IllegalTransitionError(TileManagerError):
    """Somebody asked a state machine for a move that is not declared, or not theirs."""

    subject: str
    transition: str
    status: str
    actor: str
    problem: str

    def __str__(self) -> str:
        return (
            f"{printable(self.subject)} is {printable(self.status)}: {printable(self.actor)} "
            f"may not {_SPOKEN.get(self.transition, f'{self.transition} it')}: "
            f"{_line(self.problem)}"
        )


@define(kw_only=True, eq=False)
class PlanDriftedError(TileManagerError):
    """A plan was made from what is not so any more; nothing of it was done."""

    count: int
    drifted: Sequence[str]
    """What has changed, a line each."""

    def __str__(self) -> str:
        shown = " | ".join(printable(line) for line in self.drifted[:_DRIFT_SHOWN_MAX])
        more = (
            "" if self.count <= _DRIFT_SHOWN_MAX else f" | and {self.count - _DRIFT_SHOWN_MAX} more"
        )
        return (
            f"{self.count} partition{'' if self.count == 1 else 's'} changed since the plan was "
            f"made, so nothing was done: {shown}{more}; make a new plan"
        )


@define(kw_only=True, eq=False)
class IncompleteWorkError(TileManagerError):
    """A run did what could be done now; there is more to do later."""

    what: str
    problem: str

    def __str__(self) -> str:
        return (
            f"{printable(self.what)} is not complete: {_line(self.problem)}; what is done stays, "
            f"and the next attempt goes on from there"
        )


@define(kw_only=True, eq=False)
class LeaseLostError(TileManagerError):
    """A worker brought something for a run that is its own no more; nothing of it was kept."""

    run_id: str
    worker: str
    epoch: int

    def __str__(self) -> str:
        return (
            f"worker {printable(self.worker)} has lost run {printable(self.run_id)} (claim "
            f"{self.epoch}): its lease ran out, so that the run may be somebody else's; what it "
            f"did for it is not counted. Start it again; if that comes often, raise worker.lease_s"
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
            f"{_line(self.problem)}; read the record again: somebody else may have done the work"
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
            f"{_line(self.error_message)}; use a new key, or clear this one, to try it again"
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
            f"{_line(self.problem)}; {self.remedy}"
        )


@define(kw_only=True, eq=False)
class AuditError(TileManagerError):
    """The audit log did not take an event, and nothing may happen without it."""

    sink: str
    problem: str

    def __str__(self) -> str:
        return (
            f"audit sink {printable(self.sink)} took no event: {_line(self.problem)}; "
            f"mend it, or set audit.fail_closed to false to work without it"
        )


@define(kw_only=True, eq=False)
class MessagingError(TileManagerError):
    """The message bus cannot be used as it is."""

    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"NATS: {_line(self.problem)}; {self.remedy}"


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
class TileNotFoundError(TileManagerError):
    """The cache has no such tile."""

    tile: str

    def __str__(self) -> str:
        return f"tile {printable(self.tile)} is not in the cache; download its area first"


@define(kw_only=True, eq=False)
class DamagedTileError(TileManagerError):
    """What the disk holds for a tile is not what was stored."""

    tile: str
    problem: str

    def __str__(self) -> str:
        return (
            f"tile {printable(self.tile)} is damaged: {printable(self.problem)}; "
            f"run cache verify, then download its area again"
        )


@define(kw_only=True, eq=False)
class TileTooLargeError(TileManagerError):
    """A tile has more bytes than any tile may have."""

    tile: str
    limit_bytes: int

    def __str__(self) -> str:
        return (
            f"tile {printable(self.tile)} is larger than {self.limit_bytes} bytes; it was refused"
        )


@define(kw_only=True, eq=False)
class StorageError(TileManagerError):
    """The disk did not do what it was asked; nothing that it did not confirm counts as stored."""

    action: str
    path: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        problem = _line(self.problem)
        return f"could not {self.action} {printable(self.path)}: {problem}; {self.remedy}"


@define(kw_only=True, eq=False)
class CacheLockError(TileManagerError):
    """The cache's lock is somebody else's, or nobody's where somebody must hold it."""

    path: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"lock {printable(self.path)}: {_line(self.problem)}; {self.remedy}"


@define(kw_only=True, eq=False)
class NothingToResumeError(TileManagerError):
    """Somebody wants the rest of a download that was never begun."""

    flight_id: str

    def __str__(self) -> str:
        return (
            f"no earlier download of this area for flight {printable(self.flight_id)} stored "
            f"anything; run without --only-failed, or check area, zoom, sector and flight"
        )


@define(kw_only=True, eq=False)
class DatabaseError(TileManagerError):
    """The database cannot be used as it is."""

    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"database: {_line(self.problem)}; {self.remedy}"


@define(kw_only=True, eq=False)
class ConfirmationNeededError(TileManagerError):
    """An action touches so many partitions that somebody has to say how many are meant."""

    count: int
    confirmed: int | None = None

    def __str__(self) -> str:
        said = "nobody confirmed" if self.confirmed is None else f"{self.confirmed} were confirmed"
        return (
            f"this would touch {self.count} partition{'' if self.count == 1 else 's'}, and "
            f"{said}; check the range, then type the count or give --confirm-count {self.count}"
        )


@define(kw_only=True, eq=False)
class NoRawPartitionError(TileManagerError):
    """Somebody wants a retry of a partition whose newest run brought nothing."""

    partition: str
    run_id: str

    def __str__(self) -> str:
        return (
            f"{printable(self.partition)}: its newest run, {printable(self.run_id)}, left no raw "
            f"partition that could be retried; use backfill plan and backfill apply for its date, "
            f"which start a new extraction"
        )
