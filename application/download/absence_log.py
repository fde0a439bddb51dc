"""Record which tiles of a download the provider does not have."""

from datetime import datetime

from attrs import define, field

from tileferry.application.ports.tiles import AbsentTiles
from tileferry.domain.tiles import TileId

_GROUP_TILES = 1_000


@define
class AbsenceLog:
    """Collects absent tiles, and tiles that are not absent any more, and records them in groups."""

    store: AbsentTiles | None
    """``None``: nothing is recorded."""
    now: datetime
    _requested: set[TileId] = field(factory=set, init=False)
    """Tiles that were absent once and are requested again."""
    _absent: list[TileId] = field(factory=list, init=False)
    _stored: list[TileId] = field(factory=list, init=False)

    def add_requested(self, tile_id: TileId) -> None:
        """Note that a tile which was absent is requested again."""
        self._requested.add(tile_id)

    def add_absent(self, tile_id: TileId) -> None:
        """Record an absent tile with the next group."""
        self._absent.append(tile_id)
        if len(self._absent) >= _GROUP_TILES:
            self.flush()

    def add_stored(self, tile_id: TileId) -> None:
        """Forget with the next group that a tile was absent, if it was."""
        if tile_id in self._requested:
            self._stored.append(tile_id)

    def flush(self) -> None:
        """Record what was collected."""
        if self.store is not None:
            self.store.record_absent(self._absent, at=self.now)
            self.store.forget_absent(self._stored)
        self._absent, self._stored = [], []
