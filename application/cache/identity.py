"""One cache, one database: they are bound by their first use, and refused to any other."""

from collections.abc import Callable

from attrs import frozen

from tileferry.application.ports.cache import CacheBindings, CacheLedger, CacheMark
from tileferry.domain.errors import ForeignCacheError
from tileferry.domain.tiles.cache_binding import CacheBinding, CacheFit, CacheId, check_cache_fit


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
        return self._compare(self.mark.read(), self.bindings.find_bound(), self._is_empty)

    def ensure(self) -> None:
        """Bind the cache and the database, or refuse. Whoever calls holds the cache's lock.

        The mark comes first: one that no row knows is bound by the next call, but a row whose cache
        has no mark would be a cache that was lost.
        """
        own, bound = self.mark.read(), self.bindings.find_bound()
        fit = self._compare(own, bound, self._is_empty)
        if fit is CacheFit.BOUND and bound is not None and bound.place == self.place:
            return
        if own is None:
            own = self.new_cache_id()
            self.mark.write(own)
        here = CacheBinding(cache_id=own, place=self.place)
        if not self.bindings.bind(here, instead_of=None if bound is None else bound.cache_id):
            # Somebody was faster, and may have begun to store.
            self._compare(own, self.bindings.find_bound(), lambda: False)

    def _compare(
        self, own: CacheId | None, bound: CacheBinding | None, is_empty: Callable[[], bool]
    ) -> CacheFit:
        fit = check_cache_fit(own, bound, is_empty=is_empty)
        if fit is CacheFit.FOREIGN and bound is not None:
            raise ForeignCacheError(
                place=self.place, is_marked=own is not None, bound_place=bound.place
            )
        return fit

    def _is_empty(self) -> bool:
        """Tell whether no tile is stored and no space promised to any."""
        with self.ledger.begin_transaction() as books:
            return books.sum_reserved_bytes() == 0 and next(books.iter_candidates(), None) is None
