"""What ties a cache and a database to each other: a mark in the one, a row in the other."""

from typing import Protocol

from tileferry.domain.tiles.bound_cache import BoundCache, CacheId


class CacheMark(Protocol):
    """A cache's id, kept with its tiles: it goes where they go, and is lost when they are."""

    def read(self) -> CacheId | None:
        """Return the id, if the cache has one; nothing is changed."""
        ...

    def write(self, cache_id: CacheId) -> None:
        """Give the cache its id; it is durable when this returns."""
        ...


class CacheBindings(Protocol):
    """Remembers the one cache that the rows are about."""

    def bound(self) -> BoundCache | None:
        """Return the cache, if there is one yet."""
        ...

    def bind(self, cache: BoundCache, *, instead_of: CacheId | None) -> bool:
        """Remember a cache in the place of that one, and tell whether that was still so."""
        ...
