"""Record which tiles of a download the gates refuse."""

from datetime import datetime

from attrs import define, field

from tileferry.application.ports.tiles import RefusedTiles
from tileferry.domain.tiles import SectorClass, TileSummary
from tileferry.domain.tiles.refusal import Gate, Refusal

_GROUP_TILES = 1_000


@define
class RefusalLog:
    """Collects refused tiles, and records them in groups."""

    store: RefusedTiles | None
    """``None``: nothing is recorded."""
    now: datetime
    sector: SectorClass
    _refused: list[Refusal] = field(factory=list, init=False)

    def add(
        self,
        tile: TileSummary,
        gate: Gate,
        *,
        produced_at: datetime | None = None,
        resolution_m_per_px: float | None = None,
    ) -> None:
        """Record a listed tile with the next group; pass what was delivered with it instead."""
        if self.store is None:
            return
        self._refused.append(
            Refusal(
                tile_id=tile.tile_id,
                gate=gate,
                sector_class=self.sector,
                produced_at=produced_at or tile.produced_at,
                resolution_m_per_px=resolution_m_per_px or tile.resolution_m_per_px,
                refused_at=self.now,
            )
        )
        if len(self._refused) >= _GROUP_TILES:
            self.flush()

    def flush(self) -> None:
        """Record what was collected."""
        if self.store is not None and self._refused:
            self.store.record_refused(self._refused)
            self._refused = []
