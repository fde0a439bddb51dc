"""Somebody with a cache, of which others want the tiles."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from attrs import frozen

from support.forked_command import ForkedCommand
from support.operator import Operator
from support.pictures import make_picture
from tileferry.adapters.filesystem import SegmentTileStore
from tileferry.adapters.postgres import Database, PostgresBlobIndex, PostgresTileMetadataStore
from tileferry.adapters.system import SystemClock
from tileferry.domain.tiles import NewTile, SectorClass, TileId

DAY = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)


def create_tile_grid(count: int) -> list[TileId]:
    """Return tiles of a square, as cameras see them."""
    side = 50
    return [
        TileId(source="satellite", zoom=15, x=19_000 + n // side, y=11_000 + n % side)
        for n in range(count)
    ]


@frozen
class ArchiveOperator(Operator):
    """Exports from one cache and imports into it."""

    @property
    def cache_root(self) -> Path:
        return self.home / "cache"

    def environment(self, **settings: str) -> dict[str, str]:
        root = {
            "TILEFERRY_C11_CACHE_ROOT": str(self.cache_root),
            "TILEFERRY_LOG_FILE": str(self.home / "log.jsonl"),
        }
        return super().environment(**{**root, **settings})

    def store_tiles(self, tiles: list[TileId], *, padding: int = 0) -> None:
        """Put tiles into the cache; padding makes them larger."""
        self.cache_root.mkdir(exist_ok=True)
        database = Database.from_url(self.database_url)
        rows = PostgresTileMetadataStore(database=database, clock=SystemClock())
        with SegmentTileStore(root=self.cache_root, index=PostgresBlobIndex(database)) as blobs:
            for tile in tiles:
                content = self.content(tile, padding=padding)
                rows.insert_metadata(
                    NewTile(
                        tile_id=tile,
                        flight_id="F7",
                        produced_at=DAY,
                        resolution_m_per_px=0.6,
                        sector_class=SectorClass.STABLE_REAR,
                        blob=blobs.write_tile(tile, content),
                    )
                )
            blobs.flush()
            rows.flush()
        database.close()

    @staticmethod
    def content(tile: TileId, *, padding: int = 0) -> bytes:
        return make_picture(tile, 300 + padding)

    def damage_tile(self, tile: TileId) -> None:
        """Flip a bit of a tile on the disk."""
        database = Database.from_url(self.database_url)
        row = PostgresTileMetadataStore(database=database, clock=SystemClock()).get_metadata(tile)
        database.close()
        assert row is not None
        (segment,) = (self.cache_root / ".c6" / "segments").glob("*.seg")
        content = bytearray(segment.read_bytes())
        content[row.blob.location[1] + 200] ^= 1
        segment.write_bytes(content)

    def count_tiles(self) -> int:
        """Count the visible tiles."""
        database = Database.from_url(self.database_url)
        try:
            return PostgresTileMetadataStore(database=database, clock=SystemClock()).count()
        finally:
            database.close()

    def start(self, *arguments: str) -> ForkedCommand:
        """Start a command that goes on beside the test."""
        return ForkedCommand(arguments, self.environment(), self.home)
