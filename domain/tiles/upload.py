"""Uploads: the request, the status of each tile, and the reports of a pass and of a call."""

from collections.abc import Iterable
from enum import StrEnum

from attrs import define, evolve, field, frozen, validators

from tileferry.domain.errors import InvalidValueError, MisuseError
from tileferry.domain.text import printable
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.validation import as_tuple, each, instance, integer, name, number

_SECONDS_MAX = 10**12


@frozen(kw_only=True)
class UploadRequest:
    """A request to upload the pending captures of a flight."""

    flight_id: str = field(validator=name)


class UploadOutcome(StrEnum):
    """How an upload ended."""

    SUCCESS = "success"
    PARTIAL = "partial"
    FAILURE = "failure"


class TileUploadStatus(StrEnum):
    """The result for one tile: the provider's response, or that the tile could not be sent."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    UNREADABLE = "unreadable"
    """The cache could not read the tile, so it was not sent."""

    @property
    def acknowledged(self) -> bool:
        """Whether the provider has the tile, from this upload or an earlier one."""
        return self in (TileUploadStatus.ACCEPTED, TileUploadStatus.DUPLICATE)


def _sanitize_reason(reason: str | None) -> str | None:
    return printable(reason) if isinstance(reason, str) else reason


@frozen(kw_only=True, weakref_slot=False)  # a report has one for each tile of a flight
class PerTileStatus:
    """The upload status of one tile."""

    tile_id: TileId = field(validator=instance(TileId))
    status: TileUploadStatus = field(validator=instance(TileUploadStatus))
    reason: str | None = field(
        default=None, converter=_sanitize_reason, validator=validators.optional(instance(str))
    )
    """The provider's reason or the cache's fault, sanitized for terminals, logs and the audit."""
    attempt: str | None = field(default=None, validator=validators.optional(instance(str)))
    """The id of a failed attempt. It is counted once, even if reported again after a crash."""

    @property
    def is_charged(self) -> bool:
        """Whether the tile failed in a way that costs one of its attempts.

        A rejection always does. An unreadable tile is charged if its own bytes are damaged, which
        its attempt's id says; the cache may be unavailable as a whole otherwise.
        """
        if self.status is TileUploadStatus.UNREADABLE:
            return self.attempt is not None
        return self.status is TileUploadStatus.REJECTED


@frozen(kw_only=True)
class UploadBatchReport:
    """The result of one upload pass, or of a call with all its retries."""

    flight_id: str = field(validator=name)
    outcome: UploadOutcome = field(validator=instance(UploadOutcome))
    per_tile_status: tuple[PerTileStatus, ...] = field(
        converter=as_tuple, validator=each(instance(PerTileStatus))
    )
    tiles_given_up: int = field(default=0, validator=integer(0))
    retry_count: int = field(default=0, validator=integer(0))
    next_retry_at_s: float | None = field(default=None, validator=validators.optional(number(0)))
    undelivered_giveups: int = field(default=0, validator=integer(0))
    """The flight's tiles in giveup, from this call and from earlier ones."""

    def __attrs_post_init__(self) -> None:
        if len({entry.tile_id for entry in self.per_tile_status}) < len(self.per_tile_status):
            raise InvalidValueError(
                field="UploadBatchReport.per_tile_status",
                value=len(self.per_tile_status),
                problem="contains a tile twice",
            )
        left = len(self.per_tile_status) - self.tiles_acknowledged
        left += max(self.tiles_given_up, self.undelivered_giveups)
        if self.outcome is UploadOutcome.SUCCESS and left:
            raise InvalidValueError(
                field="UploadBatchReport.outcome",
                value=self.outcome.value,
                problem=f"cannot be success: {left} tiles were rejected, unreadable or given up",
            )

    @property
    def tiles_acknowledged(self) -> int:
        return sum(entry.status.acknowledged for entry in self.per_tile_status)

    @property
    def tiles_rejected(self) -> int:
        return self._count(TileUploadStatus.REJECTED)

    @property
    def tiles_unreadable(self) -> int:
        """The number of tiles that the cache could not read and that were therefore not sent."""
        return self._count(TileUploadStatus.UNREADABLE)

    def with_giveups(self, count: int) -> "UploadBatchReport":
        """Return the report of a flight with ``count`` tiles in giveup.

        Their upload is not a success, even if this call delivered every pending tile.
        """
        is_partial = count and self.outcome is UploadOutcome.SUCCESS
        outcome = UploadOutcome.PARTIAL if is_partial else self.outcome
        return evolve(self, undelivered_giveups=count, outcome=outcome)

    def _count(self, status: TileUploadStatus) -> int:
        return sum(entry.status is status for entry in self.per_tile_status)

    @classmethod
    def from_statuses(
        cls, flight_id: str, statuses: Iterable[PerTileStatus]
    ) -> "UploadBatchReport":
        """Build the report of a completed pass.

        The outcome is partial if any tile is not acknowledged, even if none is, because each may
        still be retried. Failure is for a pass that could not be completed; the uploader sets it
        explicitly.
        """
        entries = tuple(statuses)
        left = any(not entry.status.acknowledged for entry in entries)
        outcome = UploadOutcome.PARTIAL if left else UploadOutcome.SUCCESS
        return cls(flight_id=flight_id, outcome=outcome, per_tile_status=entries)


def build_damaged_attempt(attempts: int, attempts_max: int) -> str:
    """Return the id of the attempt to send a damaged tile after ``attempts`` earlier ones.

    If a crash hits between counting the last attempt and giving the tile up, the next call builds
    the same id again, so that the count stays within its bound.
    """
    return f"damaged/{min(attempts, attempts_max - 1)}"


def compute_next_retry_hint(now_s: float, backoff_cap_s: float) -> float:
    """Return when an operator should upload again after a call has used up its retries."""
    for field_name, value in (("now_s", now_s), ("backoff_cap_s", backoff_cap_s)):
        if not 0.0 <= value <= _SECONDS_MAX:  # false for NaN
            raise InvalidValueError(
                field=field_name, value=value, problem=f"must be a number from 0 to {_SECONDS_MAX}"
            )
    return now_s + backoff_cap_s


@define(kw_only=True)
class UploadPasses:
    """Merges the passes of one call. Keeps one entry per tile, and handles each status once."""

    _statuses: dict[TileId, PerTileStatus] = field(factory=dict, init=False)
    _last: UploadBatchReport | None = field(default=None, init=False)
    _count: int = field(default=0, init=False)
    _tiles_given_up: int = field(default=0, init=False)
    _inner_retries: int = field(default=0, init=False)

    def add(self, report: UploadBatchReport) -> None:
        """Add the next pass.

        The latest status of a tile counts, but an acknowledged tile stays acknowledged: the
        provider has it.
        """
        if self._last is not None and report.flight_id != self._last.flight_id:
            raise MisuseError(
                what="upload passes",
                problem=f"a pass of flight {report.flight_id} follows passes of flight "
                f"{self._last.flight_id}",
            )
        for entry in report.per_tile_status:
            known = self._statuses.get(entry.tile_id)
            if known is None or entry.status.acknowledged or not known.status.acknowledged:
                self._statuses[entry.tile_id] = entry
        self._last = report
        self._count += 1
        self._tiles_given_up += report.tiles_given_up
        self._inner_retries += report.retry_count

    def build_report(self, *, next_retry_at_s: float | None = None) -> UploadBatchReport:
        """Return the report of the call. A single pass is returned unchanged."""
        if self._last is None:
            raise MisuseError(what="upload passes", problem="there is no pass to report")
        if next_retry_at_s is None:
            next_retry_at_s = self._last.next_retry_at_s
        if self._count == 1:
            return evolve(self._last, next_retry_at_s=next_retry_at_s)
        return UploadBatchReport(
            flight_id=self._last.flight_id,
            outcome=self._determine_outcome(self._last.outcome),
            per_tile_status=self._statuses.values(),
            tiles_given_up=self._tiles_given_up,
            retry_count=self._inner_retries + self._count - 1,
            next_retry_at_s=next_retry_at_s,
        )

    def _determine_outcome(self, last: UploadOutcome) -> UploadOutcome:
        """Return the outcome of the last pass, corrected for the earlier passes.

        Success requires that every tile of every pass was acknowledged; a tile in giveup makes the
        call partial. If the last pass failed but tiles were delivered before, the call is partial.
        """
        acknowledged = sum(entry.status.acknowledged for entry in self._statuses.values())
        if last is UploadOutcome.FAILURE and acknowledged:
            return UploadOutcome.PARTIAL
        left = len(self._statuses) - acknowledged + self._tiles_given_up
        if last is UploadOutcome.SUCCESS and left:
            return UploadOutcome.PARTIAL
        return last
