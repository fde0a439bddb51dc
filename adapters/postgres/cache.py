"""The one cache that the rows are about, in a row of its own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from attrs import field, frozen
from sqlalchemy import Connection, delete, func, or_, select, text
from sqlalchemy.dialects.postgresql import insert

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.schema import bound_cache, cache_reservations, flight_pins, tiles
from tileferry.adapters.postgres.tile_index import FORGET, id_columns, tile_id_from_row
from tileferry.domain.tiles import KEPT_STATUSES, CachedTile, TileId
from tileferry.domain.tiles.cache_binding import CacheBinding, CacheId


@frozen(kw_only=True)
class PostgresCacheBindings:
    """Remembers it beside the tiles."""

    database: Database

    def find_bound(self) -> CacheBinding | None:
        """Return the cache, if there is one yet."""
        with self.database.read_connection() as connection:
            row = connection.execute(select(bound_cache.c.cache_id, bound_cache.c.place)).first()
        if row is None:
            return None
        return CacheBinding(cache_id=CacheId(row.cache_id), place=row.place)

    def bind(self, cache: CacheBinding, *, instead_of: CacheId | None) -> bool:
        """Remember a cache in the place of that one, and tell whether that was still so."""
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
# One decision about space at a time, whoever takes it; the number only has to be ours.
_DECISION_LOCK = 7_411_224


@frozen
class PostgresCacheBooks:
    """The books, inside the transaction of one decision."""

    connection: Connection
    lapse_after: timedelta

    def sum_used_bytes(self) -> int:
        """Add up the visible tiles."""
        query = select(func.coalesce(func.sum(tiles.c.byte_length), 0))
        return int(self.connection.execute(query).scalar_one())

    def sum_reserved_bytes(self) -> int:
        """Add up what is promised and has not lapsed."""
        query = select(func.coalesce(func.sum(cache_reservations.c.reserved_bytes), 0)).where(
            cache_reservations.c.expires_at > func.now()
        )
        return int(self.connection.execute(query).scalar_one())

    def iter_candidates(self) -> Iterator[CachedTile]:
        """Yield the tiles, least recently used first, a page at a time."""
        kept = or_(
            tiles.c.voting_status.in_([status.value for status in KEPT_STATUSES]),
            tiles.c.flight_id.in_(select(flight_pins.c.flight_id)),
        )
        query = select(
            tiles.c.source,
            tiles.c.zoom,
            tiles.c.x,
            tiles.c.y,
            tiles.c.byte_length,
            tiles.c.last_used_at,
            kept.label("kept"),
        ).order_by(tiles.c.last_used_at)
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
        """Delete rows."""
        if tile_ids:
            self.connection.execute(FORGET, id_columns(tile_ids))

    def reserve(self, reservation_id: str, reserved_bytes: int) -> None:
        """Note a promise; a second one of the same process adds to its first."""
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
    """Keeps the books with the tiles, so that a decision and its evictions are one transaction."""

    database: Database
    lapse_after: timedelta = field(default=timedelta(hours=24))
    """How long the promise of a process that died stands in the way of others."""

    @contextmanager
    def begin_transaction(self) -> Iterator[PostgresCacheBooks]:
        """Open the books for one decision; others wait until it is taken."""
        with self.database.transaction() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _DECISION_LOCK})
            lapsed = cache_reservations.c.expires_at <= func.now()
            connection.execute(delete(cache_reservations).where(lapsed))
            yield PostgresCacheBooks(connection, self.lapse_after)

    def release(self, reservation_id: str) -> None:
        """Take a promise back."""
        mine = cache_reservations.c.reservation_id == reservation_id
        with self.database.transaction() as connection:
            connection.execute(delete(cache_reservations).where(mine))

    def pin_flight(self, flight_id: str) -> None:
        """Keep a flight's tiles from being evicted."""
        pin = insert(flight_pins).values(flight_id=flight_id, pinned_at=func.now())
        with self.database.transaction() as connection:
            connection.execute(pin.on_conflict_do_nothing())

    def unpin_flight(self, flight_id: str) -> None:
        """Let them be evicted again."""
        with self.database.transaction() as connection:
            connection.execute(delete(flight_pins).where(flight_pins.c.flight_id == flight_id))

    def list_pinned_flights(self) -> Sequence[str]:
        """Return the flights that are pinned, in order."""
        query = select(flight_pins.c.flight_id).order_by(flight_pins.c.flight_id)
        with self.database.read_connection() as connection:
            return list(connection.execute(query).scalars())
