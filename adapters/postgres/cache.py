"""Cache tables: the bound cache, space reservations and evictions."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from attrs import field, frozen
from sqlalchemy import ColumnElement, Connection, TextClause, delete, func, not_, or_, select, text
from sqlalchemy.dialects.postgresql import insert

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.flights import BELONGS_TO_FLIGHT, IS_PROTECTED, lock_decisions
from tileferry.adapters.postgres.patience import repeat_when_lost
from tileferry.adapters.postgres.schema import bound_cache, cache_reservations, tiles
from tileferry.adapters.postgres.tile_index import FORGET, id_columns
from tileferry.adapters.postgres.tile_rows import tile_id_from_row
from tileferry.domain.tiles import KEPT_STATUSES, CachedTile, PrunedTiles, PruneRule, TileId
from tileferry.domain.tiles.cache_binding import CacheBinding, CacheId


@frozen(kw_only=True)
class PostgresCacheBindings:
    """The cache that the tile rows refer to, stored in a single-row table."""

    database: Database

    @repeat_when_lost
    def find_bound(self) -> CacheBinding | None:
        """Return the bound cache, or ``None`` if no cache is bound yet."""
        with self.database.read_connection() as connection:
            row = connection.execute(select(bound_cache.c.cache_id, bound_cache.c.place)).first()
        if row is None:
            return None
        return CacheBinding(cache_id=CacheId(row.cache_id), place=row.place)

    @repeat_when_lost
    def bind(self, cache: CacheBinding, *, instead_of: CacheId | None) -> bool:
        """Bind ``cache``, unless a cache other than ``instead_of`` is bound; return success."""
        row = {"cache_id": cache.cache_id, "place": cache.place, "bound_at": func.now()}
        statement = (
            insert(bound_cache)
            .values(row)
            .on_conflict_do_update(
                index_elements=["one_row"],
                set_=row,
                where=bound_cache.c.cache_id == (instead_of or ""),
            )
            .returning(bound_cache.c.one_row)
        )
        with self.database.transaction() as connection:
            return connection.execute(statement).first() is not None


PAGE_ROWS = 1_000


def _is_kept() -> ColumnElement[bool]:
    """Return the condition that a tile must not be removed."""
    kept = [status.value for status in KEPT_STATUSES]
    return or_(tiles.c.voting_status.in_(kept), text(IS_PROTECTED))


def _match(rule: PruneRule) -> list[ColumnElement[bool] | TextClause]:
    """Return the conditions for the rows that a rule removes."""
    conditions: list[ColumnElement[bool] | TextClause] = [not_(_is_kept())]
    if rule.unowned:
        conditions.append(text(f"NOT {BELONGS_TO_FLIGHT}"))
    if rule.unused_since is not None:
        conditions.append(tiles.c.last_used_at < rule.unused_since)
    if rule.source is not None:
        conditions.append(tiles.c.source == rule.source)
    return conditions


@frozen
class PostgresCacheBooks:
    """Space accounting inside the transaction of one decision."""

    connection: Connection
    lapse_after: timedelta

    def sum_used_bytes(self) -> int:
        """Return the total size of the visible tiles."""
        query = select(func.coalesce(func.sum(tiles.c.byte_length), 0))
        return int(self.connection.execute(query).scalar_one())

    def sum_reserved_bytes(self) -> int:
        """Return the total of the reservations that have not expired."""
        query = select(func.coalesce(func.sum(cache_reservations.c.reserved_bytes), 0)).where(
            cache_reservations.c.expires_at > func.now()
        )
        return int(self.connection.execute(query).scalar_one())

    def iter_candidates(self) -> Iterator[CachedTile]:
        """Yield the tiles, least recently used first, then by id, one page at a time."""
        kept = _is_kept()
        tile_id = (tiles.c.source, tiles.c.zoom, tiles.c.x, tiles.c.y)
        query = select(
            *tile_id,
            tiles.c.byte_length,
            tiles.c.last_used_at,
            kept.label("kept"),
        ).order_by(tiles.c.last_used_at, *tile_id)
        streamed = {"yield_per": PAGE_ROWS}
        with self.connection.execute(query, execution_options=streamed) as result:
            for row in result.mappings():
                yield CachedTile(
                    tile_id=tile_id_from_row(row),
                    size_bytes=row["byte_length"],
                    last_used_at=row["last_used_at"],
                    pinned=row["kept"],
                )

    def evict(self, tile_ids: Sequence[TileId]) -> None:
        if tile_ids:
            self.connection.execute(FORGET, id_columns(tile_ids))

    def measure_prunable(self, rule: PruneRule) -> PrunedTiles:
        """Return what ``prune`` would remove."""
        size = func.coalesce(func.sum(tiles.c.byte_length), 0)
        row = self.connection.execute(select(func.count(), size).where(*_match(rule))).one()
        return PrunedTiles(tiles=row[0], size_bytes=int(row[1]))

    def prune(self, rule: PruneRule) -> PrunedTiles:
        """Make the tiles of a rule invisible, except protected ones."""
        removed = self.measure_prunable(rule)
        self.connection.execute(delete(tiles).where(*_match(rule)))
        return removed

    def reserve(self, reservation_id: str, reserved_bytes: int) -> None:
        """Reserve space; a second reservation with the same id adds to the first."""
        promise = insert(cache_reservations).values(
            reservation_id=reservation_id,
            reserved_bytes=reserved_bytes,
            expires_at=func.now() + self.lapse_after,
        )
        self.connection.execute(
            promise.on_conflict_do_update(
                index_elements=["reservation_id"],
                set_={
                    "reserved_bytes": cache_reservations.c.reserved_bytes
                    + promise.excluded.reserved_bytes,
                    "expires_at": promise.excluded.expires_at,
                },
            )
        )


@frozen(kw_only=True)
class PostgresCacheLedger:
    """Space accounting next to the tiles, so a decision and its evictions share a transaction."""

    database: Database
    lapse_after: timedelta = field(default=timedelta(hours=24))
    """How long a reservation counts when its process dies without releasing it."""

    @contextmanager
    def begin_transaction(self) -> Iterator[PostgresCacheBooks]:
        """Start one decision about space; other decisions wait until it is committed."""
        with self.database.transaction() as connection:
            lock_decisions(connection)
            lapsed = cache_reservations.c.expires_at <= func.now()
            connection.execute(delete(cache_reservations).where(lapsed))
            yield PostgresCacheBooks(connection, self.lapse_after)

    @repeat_when_lost
    def release(self, reservation_id: str) -> None:
        """Delete a reservation."""
        mine = cache_reservations.c.reservation_id == reservation_id
        with self.database.transaction() as connection:
            connection.execute(delete(cache_reservations).where(mine))
