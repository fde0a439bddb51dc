"""Store many tiles at once, from an archive or from an aircraft's storage card."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from logging import Logger
from typing import Generic, TypeVar

from attrs import define, field

from tileferry.application.cache.group_commit import GroupCommit, GroupLimits
from tileferry.application.cache.tile_lookup import StoredTiles, lookup_metadata
from tileferry.application.ports.cache import CacheBudgetEnforcer, CacheLock
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.flights import FlightAreas
from tileferry.application.ports.progress import NULL_LISTENER, ProgressListener
from tileferry.application.ports.tiles import TileCatalogue, TileStore
from tileferry.domain.tiles import TileId


class _NullJournal:
    """Bulk imports need no journal: a repeated import skips the tiles that the cache has."""

    def append(self, tiles: Sequence[TileId]) -> None: ...
    def flush(self) -> None: ...


@define(kw_only=True)
class BulkStore:
    """The common part of the use cases that store many tiles."""

    tile_store: TileStore
    tile_metadata_store: TileCatalogue
    budget_enforcer: CacheBudgetEnforcer
    lock: CacheLock
    clock: Clock
    logger: Logger
    group: GroupLimits = field(factory=GroupLimits)
    progress: ProgressListener = NULL_LISTENER
    flights: FlightAreas | None = None
    """Records the flights that the tiles are stored for."""

    @contextmanager
    def open_commit(
        self, source: str, sizes: Iterable[tuple[TileId, int]], *, flight_id: str
    ) -> Iterator[GroupCommit]:
        """Reserve space and yield a group commit; an interrupt flushes it first."""
        self.budget_enforcer.release_headroom()  # left over from a process that died
        if self.flights is not None:
            self.flights.add_flight(flight_id)
        self._reserve(source, sizes)
        try:
            with GroupCommit(
                tile_store=self.tile_store,
                metadata_store=self.tile_metadata_store,
                journal=_NullJournal(),
                clock=self.clock,
                limits=self.group,
            ) as commit:
                try:
                    yield commit
                except KeyboardInterrupt:
                    commit.flush()
                    raise
        finally:
            self.budget_enforcer.release_headroom()

    def _reserve(self, source: str, sizes: Iterable[tuple[TileId, int]]) -> None:
        """Reserve space for the tiles that are not stored; do not evict those that are."""
        stored, needed = StoredTiles(source), 0
        for (tile_id, size), known in lookup_metadata(
            sizes, self.tile_metadata_store, get_tile=lambda item: item[0]
        ):
            if known is not None and known.blob.length == size:
                stored.add(tile_id)
            else:
                needed += size
        stored.sort()
        result = self.budget_enforcer.reserve_headroom(needed, keep=stored)
        if result.insufficient:
            raise result.build_error()


NAMED_MAX = 1_000
Item = TypeVar("Item")


@define
class BoundedList(Generic[Item]):
    """A list that keeps a limited number of items and counts all of them."""

    count: int = field(default=0, init=False)
    _named: list[Item] = field(factory=list, init=False)

    @property
    def named(self) -> tuple[Item, ...]:
        """The items that are kept."""
        return tuple(self._named)

    def add(self, item: Item) -> bool:
        """Count an item and return whether it is kept."""
        self.count += 1
        is_kept = len(self._named) < NAMED_MAX
        if is_kept:
            self._named.append(item)
        return is_kept
