"""Which tiles of a listing a download fetches, and which the cache already has."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from attrs import field, frozen

from tileferry.domain.errors import FreshnessRejectionError
from tileferry.domain.tiles.download import TileSummary
from tileferry.domain.tiles.gates import (
    FUTURE_TOLERANCE,
    FreshnessLabel,
    FreshnessRule,
    ResolutionGate,
    ResolutionVerdict,
    SectorClass,
)
from tileferry.domain.tiles.metadata import TileMetadata
from tileferry.domain.tiles.voting import VotingStatus
from tileferry.domain.validation import aware, instance

ABSENT_TTL = timedelta(days=7)


class FetchMode(StrEnum):
    """What a download fetches of the tiles that the provider lists."""

    MISSING = "missing"
    """Tiles that the cache cannot serve. A request that was completed before is a no-op."""
    REPAIR = "repair"
    """The same, but stored tiles are read to find damaged ones, and no request is a no-op."""
    REFRESH = "refresh"
    """Tiles that changed at the provider; an unchanged one is recorded as confirmed."""
    AGAIN = "again"
    """Every tile, whether it is stored or not."""

    @property
    def has_own_journal(self) -> bool:
        """Whether its progress is recorded apart from that of the plain request.

        It visits tiles that are stored already, so only its own record says how far it got.
        """
        return self in {FetchMode.REFRESH, FetchMode.AGAIN}


@frozen(kw_only=True)
class TileGates:
    """The acceptance rules for tiles at a given time."""

    resolution: ResolutionGate
    freshness: FreshnessRule
    now: datetime = field(validator=aware)

    def accepts(self, tile: TileSummary | TileMetadata) -> bool:
        """Return whether a tile's resolution is acceptable."""
        verdict = self.resolution.judge(tile.resolution_m_per_px)
        return verdict is ResolutionVerdict.ACCEPTED

    def find_label(
        self, tile: TileSummary | TileMetadata, sector: SectorClass
    ) -> FreshnessLabel | None:
        """Return a tile's label in a sector; ``None`` if the sector refuses it as too old."""
        try:
            return self.freshness.judge(
                tile.tile_id, sector, produced_at=tile.produced_at, now=self.now
            )
        except FreshnessRejectionError:
            return None

    def is_stale(self, tile: TileSummary, sector: SectorClass) -> bool:
        """Return whether a tile is too old for a sector, which then refuses or downgrades it."""
        return self.find_label(tile, sector) is not FreshnessLabel.FRESH


def is_current(stored: TileMetadata, listed: TileSummary) -> bool:
    """Return whether a stored tile is at least as new as what the provider lists.

    A date that was in the future when the tile was stored is wrong. Such a tile is current only
    if the provider still lists the same date. Of two tiles with one date, a listed digest decides.
    """
    if stored.produced_at == listed.produced_at:
        return listed.sha256 in {None, stored.blob.sha256}
    return stored.produced_at > listed.produced_at and not stored.is_dated_ahead


class Disposition(StrEnum):
    """What a download does with a listed tile."""

    FETCH = "fetch"
    REVALIDATE = "revalidate"
    """Fetch it if the provider has another version than the stored one."""
    REUSE = "reuse"
    """The cache has it, and it may serve this request."""
    REUSE_DOWNGRADED = "reuse_downgraded"
    """The same, but it is too old for the sector to be fresh."""
    REFUSE_RESOLUTION = "refuse_resolution"
    REFUSE_FRESHNESS = "refuse_freshness"
    SKIP_ABSENT = "skip_absent"
    """The provider did not have it a short while ago."""

    @property
    def is_reuse(self) -> bool:
        return self in {Disposition.REUSE, Disposition.REUSE_DOWNGRADED}


_REUSES = {
    FreshnessLabel.FRESH: Disposition.REUSE,
    FreshnessLabel.DOWNGRADED: Disposition.REUSE_DOWNGRADED,
}


@frozen(kw_only=True)
class TileSelection:
    """The rule by which a download decides on each listed tile, without fetching it."""

    gates: TileGates = field(validator=instance(TileGates))
    sector: SectorClass = field(validator=instance(SectorClass))
    mode: FetchMode = FetchMode.MISSING
    lists_versions: bool = True
    """Whether the listing shows that a tile has changed; otherwise each one is requested."""
    absent_ttl: timedelta = ABSENT_TTL
    """How long an absent tile is not requested again."""

    def find_reuse_label(self, stored: TileMetadata, listed: TileSummary) -> FreshnessLabel | None:
        """Return the label under which a stored tile serves this request; ``None``: it may not.

        It may if it came from a provider, passes this request's gates, and is not older than what
        is listed. It does not matter which flight, area, sector or import brought it.
        """
        if stored.voting_status is not VotingStatus.TRUSTED or not is_current(stored, listed):
            return None
        return self.gates.find_label(stored, self.sector) if self.gates.accepts(stored) else None

    def is_absent(self, listed: TileSummary, absent_at: datetime) -> bool:
        """Return whether a tile that was absent at a time is taken to be absent still.

        Not if the provider lists imagery that was produced since.
        """
        age = self.gates.now - absent_at
        return -FUTURE_TOLERANCE <= age < self.absent_ttl and listed.produced_at <= absent_at

    def select(
        self,
        listed: TileSummary,
        stored: TileMetadata | None,
        absent_at: datetime | None = None,
    ) -> Disposition:
        """Return what to do with a listed tile, given what is known of it.

        ``absent_at`` is when the provider last did not have it.
        """
        label = None
        if stored is not None and self.mode is not FetchMode.AGAIN:
            label = self.find_reuse_label(stored, listed)
        if label is not None:
            if self.mode is FetchMode.REFRESH and not self.lists_versions:
                return Disposition.REVALIDATE
            return _REUSES[label]
        if not self.gates.accepts(listed):
            return Disposition.REFUSE_RESOLUTION
        if self.gates.find_label(listed, self.sector) is None:
            return Disposition.REFUSE_FRESHNESS
        if (
            absent_at is not None
            and self.mode is not FetchMode.AGAIN
            and self.is_absent(listed, absent_at)
        ):
            return Disposition.SKIP_ABSENT
        return Disposition.FETCH

    def explain_refusals(
        self, refused: Mapping[ResolutionVerdict, int], *, too_old: int, absent: int
    ) -> tuple[str, ...]:
        """Return why tiles are not in the cache although nothing failed, with the settings."""
        gates, sector = self.gates, self.sector
        reasons = {gates.resolution.describe(verdict): count for verdict, count in refused.items()}
        limit = f"{gates.freshness.max_age_days(sector):g} days"
        reasons[f"too old for sector {sector.value}, whose limit is {limit}"] = too_old
        reasons["absent at the provider"] = absent
        return tuple(
            f"{'1 tile is' if count == 1 else f'{count:,} tiles are'} {reason}"
            for reason, count in reasons.items()
            if count
        )
