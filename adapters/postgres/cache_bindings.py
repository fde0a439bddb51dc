"""The one cache that the rows are about, in a row of its own."""

from attrs import frozen
from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.schema import bound_cache
from tileferry.domain.tiles.bound_cache import BoundCache, CacheId


@frozen(kw_only=True)
class PostgresCacheBindings:
    """Remembers it beside the tiles."""

    database: Database

    def bound(self) -> BoundCache | None:
        """Return the cache, if there is one yet."""
        with self.database.reading() as connection:
            row = connection.execute(select(bound_cache.c.cache_id, bound_cache.c.place)).first()
        if row is None:
            return None
        return BoundCache(cache_id=CacheId(row.cache_id), place=row.place)

    def bind(self, cache: BoundCache, *, instead_of: CacheId | None) -> bool:
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
