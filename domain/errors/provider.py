"""What goes wrong with the provider, and with the tiles that it sends."""

from datetime import datetime
from typing import TYPE_CHECKING

from attrs import define

from tileferry.domain.errors.base import TileManagerError, format_line
from tileferry.domain.text import printable

if TYPE_CHECKING:
    from tileferry.domain.tiles.provider_faults import ProviderFault


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
class NotPermittedError(TileManagerError):
    """A server does not permit what was asked for, or nobody has said that it does."""

    what: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return (
            f"{printable(self.what)} is refused: {format_line(self.problem)}; "
            f"{format_line(self.remedy)}"
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
