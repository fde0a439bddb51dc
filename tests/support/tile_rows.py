"""Tiles for tests of the tables: plain ones, captured ones, and their counts."""

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from attrs import evolve
from sqlalchemy import text

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import Database, PostgresTileMetadataStore
from tileferry.domain.tiles import BlobRef, NewTile, SectorClass, TileId, TileMetadata, VotingStatus

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
TILE = TileId(source="cam", zoom=15, x=19_000, y=11_000)
_numbers = count()


def create_metadata_store(database: Database) -> PostgresTileMetadataStore:
    return PostgresTileMetadataStore(database=database, clock=ManualClock(NOW.timestamp()))


def create_tile(x: int = TILE.x, **changes: Any) -> NewTile:
    """A captured tile that waits for its upload; its blob is unlike any other."""
    number = next(_numbers)
    tile = NewTile(
        tile_id=evolve(TILE, x=x),
        flight_id="F1",
        produced_at=NOW - DAY,
        resolution_m_per_px=0.6,
        sector_class=SectorClass.ACTIVE_CONFLICT,
        blob=BlobRef(location=(1, number), length=20_000, sha256=f"{number:064x}"),
        voting_status=VotingStatus.PENDING,
    )
    return evolve(tile, **changes)


def store_tiles(store: PostgresTileMetadataStore, *tiles: NewTile) -> None:
    for tile in tiles:
        store.insert_metadata(tile)
    store.flush()


def get_tile(store: PostgresTileMetadataStore, tile_id: TileId = TILE) -> TileMetadata:
    tile = store.get_metadata(tile_id)
    assert tile is not None
    return tile


def insert_tile_block(database: Database, *, columns: int, rows: int, zoom: int = 15) -> None:
    """Have the server make a dense block of pending tiles, quickly."""
    statement = text(
        """
        INSERT INTO tiles (
            source, zoom, x, y, flight_id, produced_at, resolution_m_per_px, sector_class,
            freshness, voting_status, segment, byte_offset, byte_length, sha256, stored_at,
            last_used_at
        )
        SELECT 'cam', :zoom, n / :rows, n % :rows, 'F1', now(), 0.6, 'stable_rear', 'fresh',
               'pending', :zoom, n, 20000, decode(repeat('ab', 32), 'hex'), now(), now()
        FROM generate_series(0, :tiles - 1) AS n
        """
    )
    with database.transaction() as connection:
        connection.execute(statement, {"tiles": columns * rows, "rows": rows, "zoom": zoom})
    with database.read_connection() as connection:
        connection.execute(text("ANALYZE tiles"))
