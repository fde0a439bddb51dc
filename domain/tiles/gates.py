"""The resolution gate and the freshness gate: which imagery is accepted."""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias, assert_never

from attrs import converters, evolve, field, frozen, validators

from tileferry.domain.errors import FreshnessRejectionError, InvalidValueError
from tileferry.domain.tiles.limits import MIN_M_PER_PX
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.validation import as_float, check_aware, number, positive

_DEFAULT_MIN: float | None = MIN_M_PER_PX


class ResolutionVerdict(StrEnum):
    """The resolution gate's verdict on one tile."""

    ACCEPTED = "accepted"
    BELOW_MINIMUM = "below_minimum"
    ABOVE_MAXIMUM = "above_maximum"
    UNREADABLE = "unreadable"


@frozen(kw_only=True)
class ResolutionGate:
    """Accepts metres per pixel from the minimum to the maximum, both included and optional."""

    min_m_per_px: float | None = field(
        default=_DEFAULT_MIN,
        converter=converters.optional(as_float),
        validator=validators.optional(positive),
    )
    max_m_per_px: float | None = field(
        default=None,
        converter=converters.optional(as_float),
        validator=validators.optional(positive),
    )

    def __attrs_post_init__(self) -> None:
        least, most = self.min_m_per_px, self.max_m_per_px
        if least is not None and most is not None and most < least:
            raise InvalidValueError(
                field="ResolutionGate.max_m_per_px",
                value=self.max_m_per_px,
                problem=f"is below min_m_per_px, {self.min_m_per_px!r}",
            )

    def judge(self, resolution_m_per_px: float) -> ResolutionVerdict:
        """Judge one tile's resolution. A value that is not a positive finite number is
        ``UNREADABLE``.
        """
        if type(resolution_m_per_px) not in {int, float}:
            return ResolutionVerdict.UNREADABLE
        if not 0.0 < resolution_m_per_px < math.inf:  # false for NaN
            return ResolutionVerdict.UNREADABLE
        if self.min_m_per_px is not None and resolution_m_per_px < self.min_m_per_px:
            return ResolutionVerdict.BELOW_MINIMUM
        if self.max_m_per_px is not None and resolution_m_per_px > self.max_m_per_px:
            return ResolutionVerdict.ABOVE_MAXIMUM
        return ResolutionVerdict.ACCEPTED

    def describe(self, verdict: ResolutionVerdict) -> str:
        """Return what a verdict means, with the limit and the setting behind it."""
        match verdict:
            case ResolutionVerdict.BELOW_MINIMUM:
                return f"finer than {self.min_m_per_px:g} m/px (c11.min_resolution_m_per_px)"
            case ResolutionVerdict.ABOVE_MAXIMUM:
                return f"coarser than {self.max_m_per_px:g} m/px (c11.max_resolution_m_per_px)"
            case ResolutionVerdict.UNREADABLE:
                return "without a readable resolution"
            case ResolutionVerdict.ACCEPTED:
                return "within the accepted resolution"
            case _:
                assert_never(verdict)


FUTURE_TOLERANCE = timedelta(days=1)
"""How far in the future a date may be, because clocks and time zones differ."""
_DAYS_MAX = 36_525.0  # a century; keeps the arithmetic within the range of timedelta


class SectorClass(StrEnum):
    """How fast the ground changes in the area of the tiles."""

    ACTIVE_CONFLICT = "active_conflict"
    STABLE_REAR = "stable_rear"


class FreshnessLabel(StrEnum):
    """The freshness of a stored tile."""

    FRESH = "fresh"
    DOWNGRADED = "downgraded"


FreshnessVerdict: TypeAlias = FreshnessLabel | FreshnessRejectionError
"""The label of a tile, or why it is rejected."""


@lru_cache(maxsize=16)  # the same few numbers, for millions of tiles
def _to_days(number: float) -> timedelta:
    return timedelta(days=number)


@frozen(kw_only=True)
class FreshnessRule:
    """The age at which imagery becomes stale, by sector, and the tolerance for future dates."""

    active_conflict_max_age_days: float = field(
        default=183.0, converter=as_float, validator=number(0, _DAYS_MAX)
    )
    stable_rear_max_age_days: float = field(
        default=365.0, converter=as_float, validator=number(0, _DAYS_MAX)
    )
    future_tolerance_days: float = field(
        default=FUTURE_TOLERANCE / timedelta(days=1),
        converter=as_float,
        validator=number(0, _DAYS_MAX),
    )

    def max_age_days(self, sector: SectorClass) -> float:
        """Return the maximum age of a fresh tile in this sector."""
        match sector:
            case SectorClass.ACTIVE_CONFLICT:
                return self.active_conflict_max_age_days
            case SectorClass.STABLE_REAR:
                return self.stable_rear_max_age_days
            case _:
                assert_never(sector)

    def judge(
        self, tile: TileId, sector: SectorClass, *, produced_at: datetime, now: datetime
    ) -> FreshnessLabel:
        """Label a tile. A stale tile is rejected in active conflict and downgraded in the rear.

        A date beyond the future tolerance is wrong, so the tile is treated as stale.
        """
        check_aware(produced_at, field="produced_at")
        check_aware(now)
        if not isinstance(
            sector, SectorClass
        ):  # a plain string would pass some comparisons but not others
            raise InvalidValueError(field="sector", value=sector, problem="must be a SectorClass")
        max_age_days = self.max_age_days(sector)
        age = now - produced_at
        if _to_days(-self.future_tolerance_days) <= age <= _to_days(max_age_days):
            return FreshnessLabel.FRESH
        if sector is SectorClass.STABLE_REAR:
            return FreshnessLabel.DOWNGRADED
        raise FreshnessRejectionError(
            tile=str(tile),
            sector_class=sector.value,
            produced_at=produced_at,
            max_age_days=max_age_days,
        )

    def judge_all(
        self,
        tiles: Sequence[TileId],
        sector: SectorClass,
        *,
        produced_at: Sequence[datetime],
        now: datetime,
    ) -> list[FreshnessVerdict]:
        """Label tiles, or return why they are rejected; each date is judged once."""
        verdicts: dict[datetime, FreshnessVerdict] = {}
        for date, tile in zip(produced_at, tiles, strict=True):
            if date not in verdicts:
                try:
                    verdicts[date] = self.judge(tile, sector, produced_at=date, now=now)
                except FreshnessRejectionError as error:
                    verdicts[date] = error
        return [
            evolve(verdict, tile=str(tile)) if isinstance(verdict, Exception) else verdict
            for tile, verdict in zip(tiles, map(verdicts.__getitem__, produced_at), strict=True)
        ]
