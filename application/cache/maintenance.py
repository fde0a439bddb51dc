"""Free the space of a cache: prune tiles that are not needed, and compact its files."""

from collections.abc import Callable, Sequence

from attrs import define, frozen

from tileferry.application.ports.cache import CacheLedger, CacheLock
from tileferry.application.ports.inventory import CompactableStore
from tileferry.domain.partitions import check_confirmation
from tileferry.domain.tiles import PrunedTiles, PruneRule

LIVE_SHARE_MIN = 0.9
"""Segments are rewritten if less of them than this is in use."""


@frozen(kw_only=True)
class CompactionReport:
    """The result of a compaction."""

    segments_removed: int
    tiles_moved: int
    freed_bytes: int
    """The size of the removed files, less that of the moved tiles."""
    damaged_tiles: Sequence[str]
    """Tiles that could not be moved; their files are kept."""


@define(kw_only=True)
class CacheMaintenance:
    """The use cases. Both need the cache's lock."""

    ledger: CacheLedger
    lock: CacheLock
    store: Callable[[], CompactableStore]
    """Opens the store, after the cache is locked."""
    before_removal: Callable[[], object] = lambda: None
    """Called before tiles are removed: completed downloads are no longer complete then."""

    def preview_prune(self, rule: PruneRule) -> PrunedTiles:
        """Return what a rule would remove; nothing is changed, and no lock is needed."""
        with self.ledger.begin_transaction() as books:
            return books.measure_prunable(rule)

    def prune(self, rule: PruneRule, *, confirmed: int | None) -> PrunedTiles:
        """Remove the tiles of a rule, and free their space.

        A large number must be confirmed; if it has changed since the preview, nothing is removed.
        """
        self.lock.check_held()
        with self.ledger.begin_transaction() as books:
            found = books.measure_prunable(rule)
            check_confirmation(found.tiles, confirmed, what="tile")
            if found.tiles:
                self.before_removal()
                books.prune(rule)
        if found.tiles:
            self.store().forget_locations()
            self.compact()
        return found

    def compact(self) -> CompactionReport:
        """Remove the bytes of deleted and replaced tiles from the files."""
        self.lock.check_held()
        done = self.store().compact(live_share_min=LIVE_SHARE_MIN)
        removed = [item for item in done if item.removed]
        return CompactionReport(
            segments_removed=len(removed),
            tiles_moved=sum(item.moved_tiles for item in done),
            freed_bytes=max(
                0, sum(i.size_bytes for i in removed) - sum(i.moved_bytes for i in removed)
            ),
            damaged_tiles=[error.tile for item in done for error in item.damaged],
        )
