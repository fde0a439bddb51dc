"""Readiness of an area for a flight: the flaws of its tiles, and the GO or NO-GO verdict."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from attrs import field, frozen, validators

from tileferry.domain.errors import FreshnessRejectionError, InvalidValueError
from tileferry.domain.tiles.gates import (
    FUTURE_TOLERANCE,
    FreshnessLabel,
    FreshnessRule,
    ResolutionGate,
    ResolutionVerdict,
    SectorClass,
)
from tileferry.domain.tiles.metadata import TileMetadata
from tileferry.domain.validation import aware, instance, integer, number

_DAY = timedelta(days=1)


class Flaw(StrEnum):
    """The ways in which a tile of an area can be unfit, worst first."""

    DAMAGED = "damaged"
    HOLE = "hole"
    ABSENT = "absent"
    STALE = "stale"
    SUB_SPEC = "sub_spec"
    UNCONFIRMED = "unconfirmed"
    DOWNGRADED = "downgraded"

    @property
    def meaning(self) -> str:
        """A short description of the flaw, for people."""
        return _MEANINGS[self]


_MEANINGS = {
    Flaw.DAMAGED: "damaged in the cache",
    Flaw.HOLE: "not in the cache",
    Flaw.ABSENT: "absent at the provider",
    Flaw.STALE: "too old for the sector",
    Flaw.SUB_SPEC: "outside the accepted resolution",
    Flaw.UNCONFIRMED: "not confirmed by the provider in time",
    Flaw.DOWNGRADED: "downgraded for age",
}


REPAIRABLE_FLAWS = frozenset({Flaw.DAMAGED, Flaw.HOLE, Flaw.STALE, Flaw.SUB_SPEC})
"""They cause NO-GO, and fetching the tile may fix it. An unconfirmed tile has to be compared."""


@frozen
class Defect:
    """One flaw of one tile. ``severity`` ranks it among defects of the same flaw; ``detail`` is for
    people.
    """

    flaw: Flaw
    severity: float
    detail: str


@frozen(kw_only=True)
class FlightStandard:
    """The requirements for the tiles of an area on the day of the flight."""

    sector: SectorClass = field(validator=instance(SectorClass))
    now: datetime = field(validator=aware)
    flown_at: datetime = field(validator=aware)
    """The time of the flight. A tile that is fresh now may be stale by then."""
    holes_max: int = field(default=0, validator=integer(0))
    accepts_absent: bool = False
    """Whether tiles that the provider does not have are a warning instead of a reason."""
    confirmed_within_days: float | None = field(
        default=None, validator=validators.optional(number(0, 36_525))
    )
    """The time within which the provider must have delivered or confirmed each tile, if limited."""
    freshness: FreshnessRule = field(factory=FreshnessRule, validator=instance(FreshnessRule))
    resolution: ResolutionGate = field(factory=ResolutionGate, validator=instance(ResolutionGate))

    def __attrs_post_init__(self) -> None:
        if self.flown_at < self.now:
            raise InvalidValueError(
                field="FlightStandard.flown_at",
                value=self.flown_at.isoformat(),
                problem=f"is in the past (now: {self.now.isoformat()})",
                remedy="use today or a later day",
            )

    def find_defects(self, tile: TileMetadata) -> tuple[Defect, ...]:
        """Return the defects of a tile that its metadata shows."""
        resolution = None
        verdict = self.resolution.judge(tile.resolution_m_per_px)
        if verdict is not ResolutionVerdict.ACCEPTED:
            resolution = self._build_resolution_defect(tile.resolution_m_per_px, verdict)
        found = (self._check_age(tile), resolution, self._check_confirmation(tile))
        # From a list: tuples of a generator are resized, and fill Python's free list of tuples.
        return tuple([defect for defect in found if defect is not None])

    def _check_confirmation(self, tile: TileMetadata) -> Defect | None:
        limit_days = self.confirmed_within_days
        if limit_days is None:
            return None
        days = (self.now - tile.confirmed_at) / _DAY
        if days <= limit_days:
            return None
        detail = f"last confirmed {days:.0f} days ago, {limit_days:g} allowed"
        return Defect(Flaw.UNCONFIRMED, days - limit_days, detail)

    def _check_age(self, tile: TileMetadata) -> Defect | None:
        ahead = tile.stored_at - self.now
        if ahead > FUTURE_TOLERANCE:  # the clock was set back, so the age is unknown
            days = ahead / _DAY
            return Defect(
                Flaw.STALE, days, f"stored {days:.0f} days in the future; check the clock"
            )
        try:
            label = self._label(tile)
        except FreshnessRejectionError:
            return self._build_age_defect(Flaw.STALE, tile)
        if label is FreshnessLabel.DOWNGRADED:
            return self._build_age_defect(Flaw.DOWNGRADED, tile)
        # The label was given for the sector that the tile was stored for; another may serve too.
        if tile.freshness is FreshnessLabel.DOWNGRADED and tile.sector_class is self.sector:
            return Defect(Flaw.DOWNGRADED, 0.0, "downgraded when it was stored")
        return None

    def _label(self, tile: TileMetadata) -> FreshnessLabel:
        """Label by the age at the time of the flight; check for a future date against now."""
        label = self._label_at(tile, self.now)
        if label is FreshnessLabel.FRESH and self.flown_at != self.now:
            return self._label_at(tile, self.flown_at)
        return label

    def _label_at(self, tile: TileMetadata, moment: datetime) -> FreshnessLabel:
        return self.freshness.judge(
            tile.tile_id, self.sector, produced_at=tile.produced_at, now=moment
        )

    def _build_age_defect(self, flaw: Flaw, tile: TileMetadata) -> Defect:
        allowed_days = self.freshness.max_age_days(self.sector)
        age_days = (self.flown_at - tile.produced_at) / _DAY
        if age_days > allowed_days:
            detail = f"{age_days:.0f} days old, {allowed_days:g} allowed"
            return Defect(flaw, age_days - allowed_days, detail)
        ahead_days = (tile.produced_at - self.now) / _DAY
        return Defect(flaw, ahead_days, f"dated {ahead_days:.0f} days in the future")

    def _build_resolution_defect(self, m_per_px: float, verdict: ResolutionVerdict) -> Defect:
        detail = f"{m_per_px:g} m/px, {self.resolution.describe(verdict)}"
        is_finer = verdict is ResolutionVerdict.BELOW_MINIMUM
        return Defect(Flaw.SUB_SPEC, 1 / m_per_px if is_finer else m_per_px, detail)


@frozen(kw_only=True)
class ReadinessCount:
    """The number of tiles of an area or of one zoom level, in total and by flaw."""

    tiles: int = field(validator=integer(0))
    flaws: Mapping[Flaw, int]

    @property
    def present(self) -> int:
        """The number of tiles in the cache, with or without flaws."""
        return self.tiles - self.flaws[Flaw.HOLE] - self.flaws[Flaw.ABSENT]

    def __add__(self, other: "ReadinessCount") -> "ReadinessCount":
        return ReadinessCount(
            tiles=self.tiles + other.tiles,
            flaws={flaw: self.flaws[flaw] + other.flaws[flaw] for flaw in Flaw},
        )


NO_TILES = ReadinessCount(tiles=0, flaws=dict.fromkeys(Flaw, 0))


@frozen(kw_only=True)
class ReadinessVerdict:
    """GO or NO-GO, with the reasons for NO-GO and the warnings."""

    reasons: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def is_go(self) -> bool:
        return not self.reasons

    def __str__(self) -> str:
        return "GO" if self.is_go else "NO-GO"


def judge_area(by_zoom: Mapping[int, ReadinessCount], standard: FlightStandard) -> ReadinessVerdict:
    """Return NO-GO if any tile is damaged, stale or sub-spec, or if too many are not there.

    A zoom level without any tile is always NO-GO, whatever the standard allows.
    """
    reasons: list[str] = []
    warnings: list[str] = []
    count = sum(by_zoom.values(), NO_TILES)
    empty = [str(zoom) for zoom, level in by_zoom.items() if level.tiles and not level.present]
    for flaw in Flaw:
        tiles = count.flaws[flaw]
        if not tiles:
            continue
        says = f"{_format_tile_count(tiles)} {flaw.meaning}"
        match flaw:
            case Flaw.HOLE:
                says += f", {standard.holes_max:,} allowed"
                is_accepted = tiles <= standard.holes_max
            case Flaw.ABSENT:
                is_accepted = standard.accepts_absent
            case _:
                is_accepted = flaw is Flaw.DOWNGRADED
        if flaw in {Flaw.HOLE, Flaw.ABSENT} and empty:
            says += f"; no tiles at zoom {', '.join(empty)}"
            is_accepted = False
        (warnings if is_accepted else reasons).append(says)
    return ReadinessVerdict(reasons=tuple(reasons), warnings=tuple(warnings))


def combine_verdicts(verdicts: Sequence[tuple[str, ReadinessVerdict]]) -> ReadinessVerdict:
    """Return the verdict for several areas with their places: GO if each of them is GO.

    Without any area there is nothing to fly with: NO-GO.
    """
    if not verdicts:
        return ReadinessVerdict(reasons=("no area was downloaded for it",), warnings=())
    single = len(verdicts) == 1

    def locate(says: str, place: str) -> str:
        return says if single else f"{place}: {says}"

    return ReadinessVerdict(
        reasons=tuple(locate(says, at) for at, one in verdicts for says in one.reasons),
        warnings=tuple(locate(says, at) for at, one in verdicts for says in one.warnings),
    )


def _format_tile_count(count: int) -> str:
    return "1 tile" if count == 1 else f"{count:,} tiles"
