"""A tile that a provider listed or delivered, and that a gate refused."""

from datetime import datetime
from enum import StrEnum

from attrs import field, frozen

from tileferry.domain.text import format_utc
from tileferry.domain.tiles.gates import SectorClass
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.validation import as_float, aware, instance, positive


class Gate(StrEnum):
    """The rules by which a download refuses a tile."""

    RESOLUTION = "resolution"
    FRESHNESS = "freshness"


@frozen(kw_only=True)
class Refusal:
    """The last time that a gate refused a tile for a sector."""

    tile_id: TileId = field(validator=instance(TileId))
    gate: Gate = field(validator=instance(Gate))
    sector_class: SectorClass = field(validator=instance(SectorClass))
    produced_at: datetime = field(validator=aware)
    resolution_m_per_px: float = field(converter=as_float, validator=positive)
    refused_at: datetime = field(validator=aware)

    def describe(self) -> str:
        """Return what was refused, when, and why."""
        why = (
            f"{self.resolution_m_per_px:g} m/px is outside the accepted resolution"
            if self.gate is Gate.RESOLUTION
            else f"too old for {self.sector_class.value}"
        )
        made = self.produced_at.date().isoformat()
        return f"imagery of {made} refused on {format_utc(self.refused_at)}: {why}"
