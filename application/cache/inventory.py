"""The contents of a cache beside its limits."""

from collections.abc import Callable, Sequence

from attrs import define, frozen

from tileferry.application.cache.budget import CacheBudget
from tileferry.application.cache.flights import FlightRegister
from tileferry.application.ports.cache import CacheLedger, DiskSpace
from tileferry.application.ports.inventory import TileGroup, TileInventory


@frozen(kw_only=True)
class CacheStats:
    """The size of a cache and its limits."""

    tiles: int
    used_bytes: int
    reserved_bytes: int
    budget_bytes: int
    free_disk_bytes: int
    free_space_reserve_bytes: int
    pinned_flights: Sequence[str]


@define(kw_only=True)
class CacheInventory:
    """Counts the contents of a cache."""

    tiles: TileInventory
    ledger: CacheLedger
    flights: FlightRegister
    budget: Callable[[], CacheBudget]
    """Opens the cache."""
    disk: DiskSpace

    def compute_stats(self) -> CacheStats:
        budget = self.budget()
        with self.ledger.begin_transaction() as books:
            used, reserved = books.sum_used_bytes(), books.sum_reserved_bytes()
        return CacheStats(
            tiles=self.tiles.count(),
            used_bytes=used,
            reserved_bytes=reserved,
            budget_bytes=budget.budget_bytes,
            free_disk_bytes=self.disk.free_bytes(),
            free_space_reserve_bytes=budget.free_space_reserve_bytes,
            pinned_flights=self.flights.list_pinned(),
        )

    def count_by_flight(self) -> list[TileGroup]:
        """Return the tiles of each flight; a shared tile counts for each of its flights."""
        return [
            TileGroup(
                name=item.flight.flight_id,
                tiles=item.usage.tiles,
                size_bytes=item.usage.size_bytes,
            )
            for item in self.flights.list_summaries()
        ]

    def sum_committed_bytes(self) -> int:
        """Return the total size of stored tiles and reservations."""
        with self.ledger.begin_transaction() as books:
            return books.sum_used_bytes() + books.sum_reserved_bytes()
