"""Which blobs are visible: the rows of the tiles, seen from the store of their bytes."""

from collections.abc import Sequence

from attrs import frozen
from sqlalchemy import func, select, text

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.schema import tiles
from tileferry.adapters.postgres.tile_rows import (
    FORGET,
    IS_HELD,
    at,
    blob_from,
    holding,
    id_columns,
    tile_id_from,
)
from tileferry.domain.tiles import BlobRef, TileId

_BLOB = (tiles.c.segment, tiles.c.byte_offset, tiles.c.byte_length, tiles.c.sha256)
_ID = (tiles.c.source, tiles.c.zoom, tiles.c.x, tiles.c.y)


@frozen
class PostgresBlobIndex:
    """Answers from, and changes, the table of tiles."""

    database: Database

    def locate(self, tile_id: TileId) -> BlobRef | None:
        """Return where a visible tile's bytes are."""
        with self.database.reading() as connection:
            row = connection.execute(select(*_BLOB).where(at(tile_id))).mappings().first()
        return None if row is None else blob_from(row)

    def forget(self, tile_ids: Sequence[TileId]) -> Sequence[BlobRef]:
        """Delete rows, and return the blobs they had."""
        with self.database.transaction() as connection:
            rows = connection.execute(FORGET, id_columns(tile_ids)).mappings().all()
        return [blob_from(row) for row in rows]

    def blobs_in(
        self, segment: int, *, after_offset: int, limit: int
    ) -> Sequence[tuple[TileId, BlobRef]]:
        """Return visible blobs of a segment beyond an offset, in the order of their offsets."""
        query = (
            select(*_ID, *_BLOB)
            .where(tiles.c.segment == segment, tiles.c.byte_offset > after_offset)
            .order_by(tiles.c.byte_offset)
            .limit(limit)
        )
        with self.database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [(tile_id_from(row), blob_from(row)) for row in rows]

    def last_segment(self) -> int:
        """Return the highest number among the segments that have visible blobs; 0 for none."""
        query = select(func.coalesce(func.max(tiles.c.segment), 0))
        with self.database.reading() as connection:
            return int(connection.execute(query).scalar_one())

    def live_bytes(self) -> Sequence[tuple[int, int]]:
        """Add up the visible bytes of each segment."""
        query = select(tiles.c.segment, func.sum(tiles.c.byte_length)).group_by(tiles.c.segment)
        with self.database.reading() as connection:
            return [(segment, int(total)) for segment, total in connection.execute(query)]

    def move(self, moves: Sequence[tuple[TileId, BlobRef, BlobRef]]) -> int:
        """Point tiles to new places, where they still have the old one."""
        if not moves:
            return 0
        columns = {
            **id_columns([tile_id for tile_id, _, _ in moves]),
            "old_segment": [old.segment for _, old, _ in moves],
            "old_offset": [old.offset for _, old, _ in moves],
            "new_segment": [new.segment for _, _, new in moves],
            "new_offset": [new.offset for _, _, new in moves],
        }
        with self.database.transaction() as connection:
            return int(connection.execute(_MOVE, columns).rowcount)


_PLACES = {
    "old_segment": "integer",
    "old_offset": "bigint",
    "new_segment": "integer",
    "new_offset": "bigint",
}
_MOVE = text(
    f"{holding(**_PLACES)} UPDATE tiles SET segment = new_segment, byte_offset = new_offset"  # noqa: S608  # names of ours
    f" FROM held WHERE {IS_HELD} AND segment = old_segment AND byte_offset = old_offset"
)
