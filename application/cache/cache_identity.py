"""One cache, one database: they are bound by their first use, and refused to any other."""

from collections.abc import Callable

from attrs import frozen

from tileferry.application.ports.budget import CacheLedger
from tileferry.application.ports.cache_binding import CacheBindings, CacheMark
from tileferry.domain.errors import ForeignCacheError
from tileferry.domain.tiles.bound_cache import BoundCache, CacheFit, CacheId, cache_fit


@frozen(kw_only=True)
class CacheIdentity:
    """Knows whether the cache that is here is the one that the rows are about."""

    mark: CacheMark
    bindings: CacheBindings
    ledger: CacheLedger
    place: str
    """Where the cache is, in words that other machines understand."""
    new_cache_id: Callable[[], CacheId]

    def check(self) -> CacheFit:
        """Refuse a cache that is not the database's; nothing is bound."""
        return self._compared(self.mark.read(), self.bindings.bound(), self._is_empty)

    def ensure(self) -> None:
        """Bind the cache and the database, or refuse. Whoever calls holds the cache's lock.

        The mark comes first: one that no row knows is bound by the next call, but a row whose cache
        has no mark would be a cache that was lost.
        """
        own, bound = self.mark.read(), self.bindings.bound()
        fit = self._compared(own, bound, self._is_empty)
        if fit is CacheFit.BOUND and bound is not None and bound.place == self.place:
            return
        if own is None:
            own = self.new_cache_id()
            self.mark.write(own)
        here = BoundCache(cache_id=own, place=self.place)
        if not self.bindings.bind(here, instead_of=None if bound is None else bound.cache_id):
            # Somebody was faster, and may have begun to store.
            self._compared(own, self.bindings.bound(), lambda: False)

    def _compared(
        self, own: CacheId | None, bound: BoundCache | None, is_empty: Callable[[], bool]
    ) -> CacheFit:
        fit = cache_fit(own, bound, is_empty=is_empty)
        if fit is CacheFit.FOREIGN and bound is not None:
            raise ForeignCacheError(
                place=self.place, is_marked=own is not None, bound_place=bound.place
            )
        return fit

    def _is_empty(self) -> bool:
        """Tell whether no tile is stored and no space promised to any."""
        with self.ledger.exclusively() as books:
            return books.reserved_bytes() == 0 and next(books.candidates(), None) is None
