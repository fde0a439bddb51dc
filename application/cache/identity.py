"""The binding of a cache to its database: made by the first use, checked from then on."""

from collections.abc import Callable

from attrs import frozen

from tileferry.application.ports.cache import CacheBindings, CacheLedger, CacheMark
from tileferry.domain.errors import ForeignCacheError
from tileferry.domain.tiles.cache_binding import CacheBinding, CacheFit, CacheId, check_cache_fit


@frozen(kw_only=True)
class CacheIdentity:
    """Checks that this cache is the one that the database describes."""

    mark: CacheMark
    bindings: CacheBindings
    ledger: CacheLedger
    place: str
    """The location of the cache, in a form that is meaningful on other machines."""
    new_cache_id: Callable[[], CacheId]

    def check(self) -> CacheFit:
        """Raise if the cache belongs to another database; bind nothing."""
        return self._compare(self.mark.read(), self.bindings.find_bound(), self._is_empty)

    def ensure(self) -> None:
        """Bind the cache and the database, or raise. The caller holds the cache's lock.

        The mark is written first: a mark without a row is bound by the next call, but a row without
        a mark would look like a lost cache.
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
            # Another process bound its cache first, and may already store tiles.
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
        """Return whether there are no stored tiles and no reservations."""
        with self.ledger.begin_transaction() as books:
            return books.sum_reserved_bytes() == 0 and next(books.iter_candidates(), None) is None
