"""Uploads: the request, the status of each tile, and the reports of a pass and of a call."""

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen, validators

from tileferry.domain.errors import InvalidValueError, MisuseError
from tileferry.domain.tiles.upload_status import PerTileStatus, TileStatuses, TileUploadStatus
from tileferry.domain.validation import instance, integer, name, number

if TYPE_CHECKING:
    from tileferry.domain.tiles.tile_id import TileId

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


def _pack_statuses(entries: Any) -> TileStatuses:
    if isinstance(entries, TileStatuses):
        return entries
    statuses = TileStatuses()
    for entry in entries if isinstance(entries, Iterable) else (entries,):
        if not isinstance(entry, PerTileStatus):
            raise InvalidValueError(
                field="UploadBatchReport.per_tile_status",
                value=entry,
                problem="must be a list of PerTileStatus",
            )
        statuses.append(entry)
    return statuses


@frozen(kw_only=True)
class UploadBatchReport:
    """The result of one upload pass, or of a call with all its retries."""

    flight_id: str = field(validator=name)
    outcome: UploadOutcome = field(validator=instance(UploadOutcome))
    per_tile_status: TileStatuses = field(converter=_pack_statuses)
    tiles_given_up: int = field(default=0, validator=integer(0))
    retry_count: int = field(default=0, validator=integer(0))
    next_retry_at_s: float | None = field(default=None, validator=validators.optional(number(0)))
    undelivered_giveups: int = field(default=0, validator=integer(0))
    """The flight's tiles in giveup, from this call and from earlier ones."""

    def __attrs_post_init__(self) -> None:
        if self.per_tile_status.has_repeated_tile():
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
        return self.per_tile_status.tiles_acknowledged

    @property
    def tiles_rejected(self) -> int:
        return self.per_tile_status.tally[TileUploadStatus.REJECTED]

    @property
    def tiles_unreadable(self) -> int:
        """The number of tiles that the cache could not read and that were therefore not sent."""
        return self.per_tile_status.tally[TileUploadStatus.UNREADABLE]

    def with_giveups(self, count: int) -> "UploadBatchReport":
        """Return the report of a flight with ``count`` tiles in giveup.

        Their upload is not a success, even if this call delivered every pending tile.
        """
        is_partial = count and self.outcome is UploadOutcome.SUCCESS
        outcome = UploadOutcome.PARTIAL if is_partial else self.outcome
        return evolve(self, undelivered_giveups=count, outcome=outcome)

    @classmethod
    def from_statuses(
        cls, flight_id: str, statuses: Iterable[PerTileStatus]
    ) -> "UploadBatchReport":
        """Build the report of a completed pass.

        The outcome is partial if any tile is not acknowledged, even if none is, because each may
        still be retried. Failure is for a pass that could not be completed; the uploader sets it
        explicitly.
        """
        entries = _pack_statuses(statuses)
        is_whole = entries.tiles_acknowledged == len(entries)
        outcome = UploadOutcome.SUCCESS if is_whole else UploadOutcome.PARTIAL
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
    """Merges the passes of one call: one entry per tile."""

    _passes: list[UploadBatchReport] = field(factory=list, init=False)

    def add(self, report: UploadBatchReport) -> None:
        """Add the next pass."""
        if self._passes and report.flight_id != self._passes[-1].flight_id:
            raise MisuseError(
                what="upload passes",
                problem=f"a pass of flight {report.flight_id} follows passes of flight "
                f"{self._passes[-1].flight_id}",
            )
        self._passes.append(report)

    def build_report(self, *, next_retry_at_s: float | None = None) -> UploadBatchReport:
        """Return the report of the call. A single pass is returned unchanged."""
        if not self._passes:
            raise MisuseError(what="upload passes", problem="there is no pass to report")
        last = self._passes[-1]
        if next_retry_at_s is None:
            next_retry_at_s = last.next_retry_at_s
        if len(self._passes) == 1:
            return evolve(last, next_retry_at_s=next_retry_at_s)
        statuses = self._merge_statuses()
        tiles_given_up = sum(report.tiles_given_up for report in self._passes)
        left = len(statuses) - statuses.tiles_acknowledged + tiles_given_up
        return UploadBatchReport(
            flight_id=last.flight_id,
            outcome=_correct_outcome(last.outcome, statuses.tiles_acknowledged, left),
            per_tile_status=statuses,
            tiles_given_up=tiles_given_up,
            retry_count=sum(report.retry_count for report in self._passes) + len(self._passes) - 1,
            next_retry_at_s=next_retry_at_s,
        )

    def _merge_statuses(self) -> TileStatuses:
        """Return the latest status of each tile, in the order of the first pass.

        An acknowledged tile stays acknowledged: the provider has it.
        """
        first, *others = self._passes
        later: dict[TileId, PerTileStatus] = {}  # few: later passes repeat what was rejected
        for report in others:
            for entry in report.per_tile_status:
                later[entry.tile_id] = _choose_status(later.get(entry.tile_id), entry)
        merged = TileStatuses()
        for entry in first.per_tile_status:
            merged.append(_choose_status(entry, later.pop(entry.tile_id, entry)))
        merged.extend(later.values())
        return merged


def _choose_status(known: PerTileStatus | None, entry: PerTileStatus) -> PerTileStatus:
    if known is None or entry.status.acknowledged or not known.status.acknowledged:
        return entry
    return known


def _correct_outcome(last: UploadOutcome, acknowledged: int, left: int) -> UploadOutcome:
    """Return the outcome of the last pass, corrected for the earlier passes.

    Success requires that every tile of every pass was acknowledged; a tile in giveup makes the call
    partial. If the last pass failed but tiles were delivered before, the call is partial.
    """
    if last is UploadOutcome.FAILURE and acknowledged:
        return UploadOutcome.PARTIAL
    if last is UploadOutcome.SUCCESS and left:
        return UploadOutcome.PARTIAL
    return last
