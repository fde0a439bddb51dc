"""The contents of a cache, its limits, and its pinned flights."""

from collections.abc import Callable, Sequence

from attrs import define, frozen

from tileferry.application.cache.budget import CacheBudget
from tileferry.application.ports.cache import CacheLedger, DiskSpace
from tileferry.application.ports.inventory import TileInventory
from tileferry.domain.tiles import UploadRequest


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


@frozen(kw_only=True)
class FlightPin:
    """Whether a flight is pinned, and how many tiles it has."""

    flight_id: str
    pinned: bool
    tiles: int
    pinned_flights: Sequence[str]


@define(kw_only=True)
class CacheInventory:
    """Counts the contents of a cache; pins protect a flight's tiles from eviction."""

    tiles: TileInventory
    ledger: CacheLedger
    budget: Callable[[], CacheBudget]
    """Opens the cache; pins do not need it."""
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
            pinned_flights=tuple(self.ledger.list_pinned_flights()),
        )

    def sum_committed_bytes(self) -> int:
        """Return the total size of stored tiles and reservations."""
        with self.ledger.begin_transaction() as books:
            return books.sum_used_bytes() + books.sum_reserved_bytes()

    def pin(self, flight_id: str) -> FlightPin:
        """Protect a flight's tiles from eviction; pinning twice changes nothing."""
        self.ledger.pin_flight(_check_flight(flight_id))
        return self._describe_pin(flight_id, pinned=True)

    def unpin(self, flight_id: str) -> FlightPin:
        """Allow the eviction of a flight's tiles again."""
        self.ledger.unpin_flight(_check_flight(flight_id))
        return self._describe_pin(flight_id, pinned=False)

    def _describe_pin(self, flight_id: str, *, pinned: bool) -> FlightPin:
        return FlightPin(
            flight_id=flight_id,
            pinned=pinned,
            tiles=self.tiles.count_stored_for_flight(flight_id),
            pinned_flights=tuple(self.ledger.list_pinned_flights()),
        )


def _check_flight(flight_id: str) -> str:
    return UploadRequest(flight_id=flight_id).flight_id
