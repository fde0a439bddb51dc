"""Errors of the provider, and of the tiles that it sends."""

from datetime import datetime
from typing import TYPE_CHECKING

from attrs import define

from tileferry.domain.errors.base import TileManagerError, format_line
from tileferry.domain.errors.remedies import Remedy
from tileferry.domain.text import printable

if TYPE_CHECKING:
    from tileferry.domain.tiles.provider_faults import ProviderFault


@define(kw_only=True, eq=False)
class SatelliteProviderError(TileManagerError):
    """The provider failed after all retries."""

    reason: str
    url: str | None = None
    status: int | None = None
    attempts: int = 1
    body_excerpt: str | None = None
    fault: "ProviderFault | None" = None
    retry_after_s: float | None = None

    @property
    def summary(self) -> str:
        parts = [f"provider: {printable(self.reason)}"]
        if self.status is not None:
            parts.append(f"HTTP {self.status}")
        if self.url is not None:
            parts.append(f"at {printable(self.url)}")
        parts.append(f"after {self.attempts} attempt{'' if self.attempts == 1 else 's'}")
        if self.body_excerpt:
            parts.append(f"response: {printable(self.body_excerpt)}")
        return ", ".join(parts)


@define(kw_only=True, eq=False)
class ResponseSchemaError(SatelliteProviderError):
    """The provider's response does not match its schema."""

    field: str

    @property
    def summary(self) -> str:
        return f"{super().summary}, in field {printable(self.field)}"


@define(kw_only=True, eq=False)
class RateLimitedError(TileManagerError):
    """Still rate-limited after the allowed number of waits."""

    url: str
    attempts: int
    retry_after_s: float | None = None

    @property
    def summary(self) -> str:
        when = (
            "no Retry-After was given"
            if self.retry_after_s is None
            else f"try again in {self.retry_after_s:g} s"
        )
        return (
            f"provider: still rate-limited at {printable(self.url)} after "
            f"{self.attempts} attempt{'' if self.attempts == 1 else 's'}; {when}"
        )


@define(kw_only=True, eq=False)
class NotPermittedError(TileManagerError):
    """A server does not permit the request, or its permission was not acknowledged."""

    what: str
    problem: str
    remedy: Remedy | str

    @property
    def summary(self) -> str:
        return f"{printable(self.what)} is refused: {format_line(self.problem)}"


@define(kw_only=True, eq=False)
class ResolutionRejectionError(TileManagerError):
    """A tile's resolution is outside the accepted range."""

    tile: str
    resolution_m_per_px: float
    min_m_per_px: float
    max_m_per_px: float | None = None

    @property
    def summary(self) -> str:
        upper = "" if self.max_m_per_px is None else f" and at most {self.max_m_per_px:g}"
        return (
            f"tile {printable(self.tile)} has {self.resolution_m_per_px:g} m/px; it must have "
            f"at least {self.min_m_per_px:g}{upper}"
        )


@define(kw_only=True, eq=False)
class FreshnessRejectionError(TileManagerError):
    """A tile is too old for its sector, or dated in the future."""

    tile: str
    sector_class: str
    produced_at: datetime
    max_age_days: float

    @property
    def summary(self) -> str:
        return (
            f"tile {printable(self.tile)}, produced {self.produced_at.isoformat()}, is refused for "
            f"sector {printable(self.sector_class)}: it must be at most {self.max_age_days:g} days "
            f"old and not dated in the future"
        )
