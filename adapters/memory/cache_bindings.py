"""A cache and its books, tied in memory."""

from attrs import define

from tileferry.domain.tiles.bound_cache import BoundCache, CacheId


@define
class MemoryCacheMark:
    """The id of a cache in memory."""

    cache_id: CacheId | None = None

    def read(self) -> CacheId | None:
        """Return the id, if the cache has one."""
        return self.cache_id

    def write(self, cache_id: CacheId) -> None:
        """Give the cache its id."""
        self.cache_id = cache_id


@define
class MemoryCacheBindings:
    """Remembers the one cache that the rows are about."""

    cache: BoundCache | None = None

    def bound(self) -> BoundCache | None:
        """Return the cache, if there is one yet."""
        return self.cache

    def bind(self, cache: BoundCache, *, instead_of: CacheId | None) -> bool:
        """Remember a cache in the place of that one, and tell whether that was still so."""
        if self.cache is not None and self.cache.cache_id != instead_of:
            return False
        self.cache = cache
        return True
