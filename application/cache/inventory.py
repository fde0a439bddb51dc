"""The contents of a cache beside its limits."""

from collections.abc import Callable, Sequence

from attrs import define, frozen

from tileferry.application.ports.inventory import TileGroup
from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):
    from tileferry.application.cache.flights import FlightRegister
    from tileferry.application.ports.cache import DiskSpace
    from tileferry.application.ports.inventory import CacheUsageReader, TileCounts, TileKey


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

    tiles: TileCounts
    usage: CacheUsageReader
    flights: FlightRegister
    disk: DiskSpace
    budget_bytes: Callable[[], int]
    """Returns the maximum size of the cache."""
    free_space_reserve_bytes: Callable[[], int]
    """Returns how much of the disk must stay free."""

    def compute_stats(self) -> CacheStats:
        usage = self.usage.measure_usage()
        return CacheStats(
            tiles=usage.tiles,
            used_bytes=usage.used_bytes,
            reserved_bytes=usage.reserved_bytes,
            budget_bytes=self.budget_bytes(),
            free_disk_bytes=self.disk.free_bytes(),
            free_space_reserve_bytes=self.free_space_reserve_bytes(),
            pinned_flights=self.flights.list_pinned(),
        )

    def count_by(self, key: TileKey) -> Sequence[TileGroup]:
        """Return the number and size of the tiles, by source or by zoom level, sorted."""
        return self.tiles.count_by(key)

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
        usage = self.usage.measure_usage()
        return usage.used_bytes + usage.reserved_bytes
