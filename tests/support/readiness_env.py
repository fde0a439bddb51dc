"""An operator's cache, whole or flawed."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from attrs import frozen

from support.operator import CommandResult, Operator
from tileferry.adapters.filesystem import SegmentTileStore
from tileferry.adapters.postgres import Database, PostgresBlobIndex, PostgresTileMetadataStore
from tileferry.adapters.system import SystemClock
from tileferry.domain.tiles import BBox, NewTile, SectorClass, TileCoverage, TileId

BOX = "36.1,49.9,36.4,50.1"
AREA = TileCoverage(bbox=BBox.parse(BOX), zoom_levels=[11, 13])
TILES = list(AREA.tiles("satellite"))
ACROSS_BOX = "178.0,-2.0,-178.0,2.0"
ACROSS = TileCoverage(bbox=BBox.parse(ACROSS_BOX), zoom_levels=[8])
VERIFY = ("cache", "verify", f"--bbox={BOX}", "--zoom", "11,13")


@frozen
class ReadinessEnv:
    """An operator's cache."""

    operator: Operator
    database: Database

    @property
    def root(self) -> Path:
        return self.operator.home / "cache"

    def store_tiles(
        self,
        tiles: Iterable[TileId],
        *,
        days: Mapping[TileId, float] | None = None,
        m_per_px: float = 0.6,
    ) -> None:
        """Put tiles into the cache, of these ages."""
        self.root.mkdir(exist_ok=True)
        rows = PostgresTileMetadataStore(database=self.database, clock=SystemClock())
        index = PostgresBlobIndex(self.database)
        with SegmentTileStore(root=self.root, index=index) as blobs:
            for tile_id in tiles:
                age = timedelta(days=(days or {}).get(tile_id, 1))
                rows.insert_metadata(
                    NewTile(
                        tile_id=tile_id,
                        flight_id="F1",
                        produced_at=datetime.now(UTC) - age,
                        resolution_m_per_px=m_per_px,
                        sector_class=SectorClass.STABLE_REAR,
                        blob=blobs.write_tile(tile_id, f"<{tile_id}>".encode() * 20),
                    )
                )
            blobs.flush()
            rows.flush()

    def damage_tile(self, tile_id: TileId) -> None:
        """Flip a bit of a tile's bytes."""
        (segment,) = (self.root / ".c6/segments").iterdir()
        content = bytearray(segment.read_bytes())
        content[content.index(f"<{tile_id}>".encode()) + 3] ^= 1
        segment.write_bytes(content)


def count_flaws(ran: CommandResult) -> dict[str, int]:
    """Return the flaws that there are."""
    kinds = ("holes", "stale", "downgraded", "sub_spec", "damaged")
    return {kind: ran.json["total"][kind] for kind in kinds if ran.json["total"][kind]}
