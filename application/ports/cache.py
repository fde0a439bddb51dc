"""The cache's budget: who asks for space, and the books it is decided from."""

from collections.abc import Container, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from tileferry.domain.tiles import CachedTile, EvictionResult, TileId
from tileferry.domain.tiles.cache_binding import CacheBinding, CacheId


@runtime_checkable
class CacheBudgetEnforcer(Protocol):
    """Makes room before a batch begins, or says how much is missing."""

    def reserve_headroom(
        self, estimated_bytes: int, *, keep: Container[TileId] = ()
    ) -> EvictionResult:
        """Promise space for a batch, evicting what must go; when it cannot fit, nothing changes.

        What is in ``keep`` is not evicted: it is of the batch, and was stored before.
        """
        ...

    def release_headroom(self) -> None:
        """Give back what this enforcer promised: the batch has ended, its tiles count by now."""
        ...


class LedgerTransaction(Protocol):
    """What is known about space, while nobody else can change it."""

    def sum_used_bytes(self) -> int:
        """Add up the visible tiles."""
        ...

    def sum_reserved_bytes(self) -> int:
        """Add up what is promised and has not lapsed."""
        ...

    def iter_candidates(self) -> Iterator[CachedTile]:
        """Yield the tiles, least recently used first; what must stay is marked as pinned."""
        ...

    def evict(self, tile_ids: Sequence[TileId]) -> None:
        """Make tiles invisible."""
        ...

    def reserve(self, reservation_id: str, reserved_bytes: int) -> None:
        """Note a promise; it lapses by itself when its process dies and never takes it back."""
        ...


class CacheLedger(Protocol):
    """Keeps the books, the promises and the pins."""

    def begin_transaction(self) -> AbstractContextManager[LedgerTransaction]:
        """Open the books for one decision; what is decided counts when the block ends well."""
        ...

    def release(self, reservation_id: str) -> None:
        """Take a promise back."""
        ...

    def pin_flight(self, flight_id: str) -> None:
        """Keep a flight's tiles from being evicted."""
        ...

    def unpin_flight(self, flight_id: str) -> None:
        """Let them be evicted again."""
        ...

    def list_pinned_flights(self) -> Sequence[str]:
        """Return the flights that are pinned, in order."""
        ...


class DiskSpace(Protocol):
    """The disk under the cache."""

    def free_bytes(self) -> int:
        """Return what this user can still write."""
        ...

    def total_bytes(self) -> int:
        """Return its size."""
        ...


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

    def find_bound(self) -> CacheBinding | None:
        """Return the cache, if there is one yet."""
        ...

    def bind(self, cache: CacheBinding, *, instead_of: CacheId | None) -> bool:
        """Remember a cache in the place of that one, and tell whether that was still so."""
        ...


class CacheLock(Protocol):
    """Held by the operator's tooling while it works on a cache; gone when its process is gone."""

    def acquire(self) -> None:
        """Take the lock, or refuse at once, naming its holder; who holds it is refused too."""
        ...

    def release(self) -> None:
        """Give it back; without holding it, this does nothing."""
        ...

    def check_held(self) -> None:
        """Refuse unless this process holds the lock, through this object or another."""
        ...
