"""Uploads: the request, what the provider said of each tile, and the report of one pass."""

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
    """Upload what a flight captured and has not delivered yet."""

    flight_id: str = field(validator=name)


class UploadOutcome(StrEnum):
    """How an upload ended."""

    SUCCESS = "success"
    PARTIAL = "partial"
    FAILURE = "failure"


class TileUploadStatus(StrEnum):
    """What became of one tile: the provider's answer, or that it was never asked."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    UNREADABLE = "unreadable"
    """The cache does not give its bytes: it was not sent, and is no answer of the provider's."""

    @property
    def acknowledged(self) -> bool:
        """Whether the provider has the tile, be it since now or from before."""
        return self in (TileUploadStatus.ACCEPTED, TileUploadStatus.DUPLICATE)


def _sanitize_reason(reason: str | None) -> str | None:
    return printable(reason) if isinstance(reason, str) else reason


@frozen(kw_only=True, weakref_slot=False)  # a report has one for each tile of a flight
class PerTileStatus:
    """One tile's answer."""

    tile_id: TileId = field(validator=instance(TileId))
    status: TileUploadStatus = field(validator=instance(TileUploadStatus))
    reason: str | None = field(
        default=None, converter=_sanitize_reason, validator=validators.optional(instance(str))
    )
    """What the provider said, or what is wrong in the cache; safe for a terminal, log and audit."""
    attempt: str | None = field(default=None, validator=validators.optional(instance(str)))
    """Which attempt was rejected: reported again after a crash, it is counted once."""


@frozen(kw_only=True)
class UploadBatchReport:
    """The result of an upload: of one pass, or of a call with all its retries."""

    flight_id: str = field(validator=name)
    outcome: UploadOutcome = field(validator=instance(UploadOutcome))
    per_tile_status: tuple[PerTileStatus, ...] = field(
        converter=as_tuple, validator=each(instance(PerTileStatus))
    )
    tiles_given_up: int = field(default=0, validator=integer(0))
    retry_count: int = field(default=0, validator=integer(0))
    next_retry_at_s: float | None = field(default=None, validator=validators.optional(number(0)))

    def __attrs_post_init__(self) -> None:
        if len({entry.tile_id for entry in self.per_tile_status}) < len(self.per_tile_status):
            raise InvalidValueError(
                field="UploadBatchReport.per_tile_status",
                value=len(self.per_tile_status),
                problem="names a tile twice",
            )
        left = len(self.per_tile_status) - self.tiles_acknowledged + self.tiles_given_up
        if self.outcome is UploadOutcome.SUCCESS and left:
            raise InvalidValueError(
                field="UploadBatchReport.outcome",
                value=self.outcome.value,
                problem=f"cannot be: {left} tiles were rejected, unreadable or given up",
            )

    @property
    def tiles_acknowledged(self) -> int:
        """How many tiles the provider has."""
        return sum(entry.status.acknowledged for entry in self.per_tile_status)

    @property
    def tiles_rejected(self) -> int:
        """How many tiles it refused."""
        return self._count(TileUploadStatus.REJECTED)

    @property
    def tiles_unreadable(self) -> int:
        """How many tiles the cache could not give: they were not sent, and still wait."""
        return self._count(TileUploadStatus.UNREADABLE)

    def _count(self, status: TileUploadStatus) -> int:
        return sum(entry.status is status for entry in self.per_tile_status)

    @classmethod
    def from_statuses(
        cls, flight_id: str, statuses: Iterable[PerTileStatus]
    ) -> "UploadBatchReport":
        """Report a pass that was carried out.

        Any tile that is left makes it partial, also when all are: each may still have a try.
        Failure is for an uploader that could not carry its pass out, and is said explicitly.
        """
        entries = tuple(statuses)
        left = any(not entry.status.acknowledged for entry in entries)
        outcome = UploadOutcome.PARTIAL if left else UploadOutcome.SUCCESS
        return cls(flight_id=flight_id, outcome=outcome, per_tile_status=entries)


def compute_next_retry_hint(now_s: float, backoff_cap_s: float) -> float:
    """Return when an operator should upload again after the retries of a call are used up."""
    for field_name, value in (("now_s", now_s), ("backoff_cap_s", backoff_cap_s)):
        if not 0.0 <= value <= _SECONDS_MAX:  # false for NaN
            raise InvalidValueError(
                field=field_name, value=value, problem=f"must be a number from 0 to {_SECONDS_MAX}"
            )
    return now_s + backoff_cap_s


@define(kw_only=True)
class UploadPasses:
    """The passes of one call so far: memory for each tile once, work for each answer once."""

    _statuses: dict[TileId, PerTileStatus] = field(factory=dict, init=False)
    _last: UploadBatchReport | None = field(default=None, init=False)
    _count: int = field(default=0, init=False)
    _tiles_given_up: int = field(default=0, init=False)
    _inner_retries: int = field(default=0, init=False)

    def add(self, report: UploadBatchReport) -> None:
        """Take in the next pass.

        The latest answer for a tile stands, except that what was acknowledged stays so: the
        provider has the tile.
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
        """Return the call's report; a single pass is reported as it was."""
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
        """Follow the last pass, as far as the passes before it allow.

        Success needs every tile acknowledged that any pass named: one that was given up on the way
        leaves the call partial. A last pass that failed does not undo what was delivered.
        """
        acknowledged = sum(entry.status.acknowledged for entry in self._statuses.values())
        if last is UploadOutcome.FAILURE and acknowledged:
            return UploadOutcome.PARTIAL
        left = len(self._statuses) - acknowledged + self._tiles_given_up
        if last is UploadOutcome.SUCCESS and left:
            return UploadOutcome.PARTIAL
        return last
