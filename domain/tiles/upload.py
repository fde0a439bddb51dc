"""Uploads: the request, what the provider said of each tile, and the report of one pass."""

from collections.abc import Iterable
from enum import StrEnum

from attrs import field, frozen, validators

from tileferry.domain.checks import as_tuple, each, instance, integer, name, number
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.text import printable
from tileferry.domain.tiles.tile_id import TileId

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


def _safe(reason: str | None) -> str | None:
    return printable(reason) if isinstance(reason, str) else reason


@frozen(kw_only=True, weakref_slot=False)  # a report has one for each tile of a flight
class PerTileStatus:
    """One tile's answer."""

    tile_id: TileId = field(validator=instance(TileId))
    status: TileUploadStatus = field(validator=instance(TileUploadStatus))
    reason: str | None = field(
        default=None, converter=_safe, validator=validators.optional(instance(str))
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


def next_retry_hint(now_s: float, backoff_cap_s: float) -> float:
    """Return when an operator should upload again after the retries of a call are used up."""
    for field_name, value in (("now_s", now_s), ("backoff_cap_s", backoff_cap_s)):
        if not 0.0 <= value <= _SECONDS_MAX:  # false for NaN
            raise InvalidValueError(
                field=field_name, value=value, problem=f"must be a number from 0 to {_SECONDS_MAX}"
            )
    return now_s + backoff_cap_s
