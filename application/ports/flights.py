"""The flights of a cache: their areas, pins and end dates."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # for annotations
    from tileferry.domain.tiles import Flight, FlightArea, FlightUsage, OperatorNote


class FlightAreas(Protocol):
    """Records which areas a flight needs."""

    def add_flight(self, flight_id: str) -> None:
        """Create a flight without areas, unless it exists."""
        ...

    def add_area(self, flight_id: str, area: FlightArea) -> bool:
        """Add an area to a flight, durably; return whether it is new. A new flight is created."""
        ...

    def find_flight(self, flight_id: str) -> Flight | None:
        """Return a flight with its areas."""
        ...


class FlightBook(FlightAreas, Protocol):
    """Stores flights. Each change and its audit event are one transaction.

    ``CacheLedger`` does not evict the tiles inside the areas of a pinned flight, nor those that
    were last stored for it.
    """

    def list_flights(self) -> Sequence[Flight]:
        """Return all flights, sorted by id."""
        ...

    def measure_usage(self) -> Mapping[str, FlightUsage]:
        """Return the stored tiles of each flight that has any."""
        ...

    def pin_flight(self, flight_id: str, note: OperatorNote) -> None:
        """Protect the flight's tiles from eviction; pinning twice changes nothing."""
        ...

    def unpin_flight(self, flight_id: str, note: OperatorNote) -> None:
        """Allow the eviction of the flight's tiles again."""
        ...

    def set_expiry(self, flight_id: str, at: datetime | None, note: OperatorNote) -> None:
        """Set the time from which the flight's pin has no effect; ``None`` for no end."""
        ...

    def remove_flight(self, flight_id: str, note: OperatorNote) -> None:
        """Remove a flight with its areas and its pin; its tiles stay until they are evicted."""
        ...
