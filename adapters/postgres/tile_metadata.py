"""Postgres tile metadata store."""

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from attrs import define, evolve, field
from sqlalchemy import (
    Column,
    Connection,
    Select,
    func,
    select,
    text,
    tuple_,
    update,
)

from tileferry.adapters.postgres.patience import repeat_when_lost
from tileferry.adapters.postgres.schema import tiles
from tileferry.adapters.postgres.tile_index import (
    IS_HELD,
    KEY_COLUMNS,
    LOCK_TILES,
    MARK_HELD,
    UPSERT,
    WANTED_TILES,
    TileRow,
    build_lock_sql,
    build_rows,
    id_columns,
    id_values,
    iter_upserts,
    match_tile,
)
from tileferry.adapters.postgres.tile_inventory import PostgresTileInventory
from tileferry.adapters.postgres.tile_rows import (
    METADATA_COLUMNS,
    metadata_from_row,
    metadata_from_values,
    tile_id_from_row,
)
from tileferry.application.ports.clock import Clock
from tileferry.domain.errors import MisuseError, TileNotFoundError
from tileferry.domain.tiles import (
    BBox,
    FreshnessLabel,
    FreshnessRule,
    FreshnessVerdict,
    NewTile,
    NewTiles,
    TileCoverage,
    TileId,
    TileMetadata,
    TileRange,
    VotingStatus,
    move_status,
)

BUFFERED_MAX = 65_536
PAGE_ROWS = 2_000
PENDING_PAGE_ROWS = 500
"""Smaller than ``PAGE_ROWS``: an upload starts only after its first page is read."""
_ID_NAMES = ("source", "zoom", "x", "y")
_BEFORE_ALL = ("", -1, -1, -1)


@define(kw_only=True)
class PostgresTileMetadataStore(PostgresTileInventory):
    """Stores tiles as rows. Inserts are buffered until ``flush`` writes them as one group."""

    clock: Clock
    freshness: FreshnessRule = field(factory=FreshnessRule)
    _waiting: list[TileRow] = field(factory=list, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _writing: threading.Lock = field(factory=threading.Lock, init=False)

    def insert_metadata(self, tile: NewTile) -> FreshnessLabel:
        """Buffer a tile for the next ``flush``; return its freshness label."""
        (verdict,) = self.insert_all(NewTiles.from_tile(tile))
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    def insert_all(self, tiles: NewTiles) -> Sequence[FreshnessVerdict]:
        """Buffer tiles for the next ``flush``; return their freshness labels."""
        now = datetime.fromtimestamp(self.clock.now(), UTC)
        verdicts = self.freshness.judge_all(
            tiles.tile_ids, tiles.sector_class, produced_at=tiles.produced_at, now=now
        )
        rows = build_rows(tiles, verdicts)
        with self._lock:
            if len(self._waiting) + len(rows) > BUFFERED_MAX:
                raise MisuseError(
                    what="insert_metadata",
                    problem=f"{len(self._waiting)} tiles are waiting to be written, the maximum",
                    remedy="call flush more often",
                )
            self._waiting += rows
        return verdicts

    def flush(self) -> None:
        """Write the buffered tiles in one transaction; on failure they stay buffered."""
        self.detach()()

    def detach(self) -> Callable[[], None]:
        """Take the buffered tiles; return a function that writes them in one transaction."""
        with self._lock:
            group, self._waiting = self._waiting, []
        return partial(self._write, group)

    @repeat_when_lost
    def _write(self, group: list[TileRow]) -> None:
        # One group at a time, even when empty: a caller's tiles may be in the group being written.
        with self._writing:
            if not group:
                return
            try:
                with self.database.transaction() as connection:
                    for versions in _split_versions(group):
                        for parameters in iter_upserts(versions):
                            connection.execute(UPSERT, parameters)
            except BaseException:
                with self._lock:
                    self._waiting = group + self._waiting
                raise

    def query_by_bbox(
        self, bbox: BBox, zoom_levels: Sequence[int], *, source: str | None = None
    ) -> Iterator[TileMetadata]:
        """Yield the tiles of an area, a few columns at a time, so that memory stays bounded."""
        for part in TileCoverage(bbox=bbox, zoom_levels=zoom_levels).ranges:
            width = max(1, PAGE_ROWS // (part.y_max - part.y_min + 1))
            x = self._next_column(part, part.x_min)
            while x is not None:
                columns = evolve(part, x_min=x, x_max=min(x + width - 1, part.x_max))
                empty = True
                for page in self._read_range_pages(columns, source):
                    empty = False
                    yield from page
                x = columns.x_max + 1
                if x > part.x_max:
                    break
                if empty:  # skip the gap: it may be large
                    x = self._next_column(part, x)

    @repeat_when_lost
    def _next_column(self, part: TileRange, x: int) -> int | None:
        """Return the first column at or after ``x`` that has a tile."""
        query = select(func.min(tiles.c.x)).where(
            tiles.c.zoom == part.zoom, tiles.c.x.between(x, part.x_max)
        )
        with self.database.read_connection() as connection:
            return connection.execute(query).scalar()

    def _read_range_pages(
        self, part: TileRange, source: str | None
    ) -> Iterator[list[TileMetadata]]:
        # Listing each column lets the index seek to its rows, however many rows a column has.
        query = (
            select(tiles)
            .where(
                tiles.c.zoom == part.zoom,
                tiles.c.x == func.any(list(range(part.x_min, part.x_max + 1))),
                tiles.c.y.between(part.y_min, part.y_max),
            )
            .order_by(tiles.c.zoom, tiles.c.x, tiles.c.y, tiles.c.source)
        )
        if source is not None:
            query = query.where(tiles.c.source == source)
        return self._read_pages(query, (tiles.c.x, tiles.c.y, tiles.c.source))

    @repeat_when_lost
    def find_stored(self, tile_ids: Sequence[TileId]) -> dict[TileId, TileMetadata]:
        """Return the visible ones of these tiles."""
        if not tile_ids:
            return {}
        with self.database.read_connection() as connection:
            rows = connection.execute(_FIND_STORED, id_columns(tile_ids)).mappings().all()
        return {tile.tile_id: tile for tile in map(metadata_from_row, rows)}

    def pending_uploads(self, flight_id: str) -> Iterator[TileMetadata]:
        """Yield a flight's pending tiles, paged by key, so status changes cannot shift a page."""
        after: tuple[str, int, int, int] = _BEFORE_ALL
        while True:
            values = dict(zip(_ID_NAMES, after, strict=True))
            values |= {"flight_id": flight_id, "limit": PENDING_PAGE_ROWS}
            rows = self.database.fetch_rows(_PENDING, values)
            yield from map(metadata_from_values, rows)
            if len(rows) < PENDING_PAGE_ROWS:
                return
            after = rows[-1][:4]

    def _read_pages(
        self, query: Select[Any], key: Sequence[Column[Any]]
    ) -> Iterator[list[TileMetadata]]:
        """Yield the pages of a query; each page starts after the last key of the previous one."""
        limit = PAGE_ROWS
        page_query = query.limit(limit)
        while True:
            rows = self.database.read_rows(page_query)
            if rows:
                yield [metadata_from_row(row) for row in rows]
            if len(rows) < limit:
                return
            end = [rows[-1][column.name] for column in key]
            page_query = query.where(tuple_(*key) > tuple_(*end)).limit(limit)

    @repeat_when_lost
    def mark_uploaded(self, *tile_ids: TileId) -> None:
        """Mark tiles as uploaded in one transaction; idempotent."""
        with self.database.transaction() as connection:
            marked = connection.exec_driver_sql(_MARK_UPLOADED, id_columns(tile_ids))
            if marked.rowcount < len(tile_ids):
                check_uploaded(connection, tile_ids)

    @repeat_when_lost
    def update_voting_status(self, tile_id: TileId, status: VotingStatus) -> None:
        """Change a tile's status if the domain allows it; the row is locked meanwhile."""
        with self.database.transaction() as connection:
            current = self._lock_status(connection, tile_id)
            if move_status(tile_id, current, status) is current:
                return
            changes: dict[str, object] = {"voting_status": status.value}
            if status is VotingStatus.UPLOADED:
                changes["uploaded_at"] = func.now()
            connection.execute(update(tiles).where(match_tile(tile_id)).values(changes))

    @staticmethod
    def _lock_status(connection: Connection, tile_id: TileId) -> VotingStatus:
        query = select(tiles.c.voting_status).where(match_tile(tile_id)).with_for_update()
        status = connection.execute(query).scalar()
        if status is None:
            raise TileNotFoundError(tile=str(tile_id))
        return VotingStatus(status)

    def increment_upload_attempts(self, tile_id: TileId, attempt: str | None = None) -> int:
        """Count a rejected upload; return the new count. The same ``attempt`` is counted once."""
        row = self.database.change(_COUNT_ATTEMPT, {**id_values(tile_id), "attempt": attempt})
        if row is None:
            raise TileNotFoundError(tile=str(tile_id))
        return int(row.upload_attempts)

    @repeat_when_lost
    def mark_used(self, tile_ids: Sequence[TileId], *, confirmed: bool = False) -> None:
        """Set the tiles' last use, and their confirmation if there was one, to now."""
        with self.database.transaction() as connection:
            connection.execute(_CONFIRM if confirmed else _MARK_USED, id_columns(tile_ids))


_PENDING = (
    f"SELECT {METADATA_COLUMNS} FROM tiles"  # noqa: S608  # interpolates constants only
    " WHERE flight_id = %(flight_id)s AND voting_status = 'pending'"
    " AND (source, zoom, x, y) > (%(source)s, %(zoom)s, %(x)s, %(y)s)"
    " ORDER BY source, zoom, x, y LIMIT %(limit)s"
)
# Text, because building the expression for each tile costs half as much as running it.
_COUNT_ATTEMPT = (
    "UPDATE tiles SET last_attempt = CAST(%(attempt)s AS text),"
    " upload_attempts = upload_attempts + CASE WHEN last_attempt = %(attempt)s THEN 0 ELSE 1 END"
    " WHERE source = %(source)s AND zoom = %(zoom)s AND x = %(x)s AND y = %(y)s"
    " RETURNING upload_attempts"
)
_MARK_UPLOADED = LOCK_TILES + MARK_HELD
_GET_STATUSES = (
    f"{LOCK_TILES} SELECT tiles.source, tiles.zoom, tiles.x, tiles.y, tiles.voting_status"  # noqa: S608  # interpolates constants only
    f" FROM tiles JOIN held ON {IS_HELD}"
)
_FIND_STORED = text(
    f"SELECT tiles.* FROM {WANTED_TILES} JOIN tiles USING (source, zoom, x, y)"  # noqa: S608  # interpolates constants only
)
_CONFIRM = text(
    f"{build_lock_sql()} UPDATE tiles SET confirmed_at = now(), last_used_at = now()"  # noqa: S608  # as above
    f" FROM held WHERE {IS_HELD}"
)
_MARK_USED = text(
    f"{build_lock_sql()} UPDATE tiles SET last_used_at = now() FROM held WHERE {IS_HELD}"  # noqa: S608  # as above
)


def check_uploaded(connection: Connection, tile_ids: Sequence[TileId]) -> None:
    """Raise unless all of these tiles are uploaded."""
    rows = connection.exec_driver_sql(_GET_STATUSES, id_columns(tile_ids)).mappings().all()
    current = {tile_id_from_row(row): VotingStatus(row["voting_status"]) for row in rows}
    for tile_id in tile_ids:
        if tile_id not in current:
            raise TileNotFoundError(tile=str(tile_id))
        move_status(tile_id, current[tile_id], VotingStatus.UPLOADED)


def _split_versions(rows: Sequence[TileRow]) -> Iterator[list[TileRow]]:
    """Split a group into rounds without duplicate tiles: first versions, then second versions, etc.

    Each round is sorted by key, so that concurrent writers of the same tiles cannot deadlock. A
    later round has only tiles from the first round, whose rows are already locked.
    """
    while rows:
        versions: dict[TileRow, TileRow] = {}
        later = [row for row in rows if versions.setdefault(row[:KEY_COLUMNS], row) is not row]
        yield [versions[key] for key in sorted(versions)]
        rows = later
