"""Flights in memory."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from attrs import define, evolve, field

from tileferry.adapters.memory.tiles import MemoryTileMetadataStore
from tileferry.application.audit import build_flight_event
from tileferry.application.ports.clock import Clock
from tileferry.domain.audit import AuditEvent
from tileferry.domain.tiles import Flight, FlightArea, FlightUsage, OperatorNote, TileMetadata


@define(kw_only=True)
class MemoryFlightBook:
    """Stores flights next to in-memory tiles; ``events`` has the audit events."""

    tiles: MemoryTileMetadataStore
    clock: Clock
    events: list[AuditEvent] = field(factory=list)
    _flights: dict[str, Flight] = field(factory=dict, init=False)

    def add_flight(self, flight_id: str) -> None:
        """Create a flight without areas, unless it exists."""
        self._flights.setdefault(flight_id, Flight(flight_id=flight_id))

    def add_area(self, flight_id: str, area: FlightArea) -> bool:
        """Add an area to a flight; return whether it is new. A new flight is created."""
        self.add_flight(flight_id)
        flight = self._flights[flight_id]
        if area in flight.areas:
            return False
        self._flights[flight_id] = evolve(flight, areas=(*flight.areas, area))
        return True

    def find_flight(self, flight_id: str) -> Flight | None:
        return self._flights.get(flight_id)

    def list_flights(self) -> Sequence[Flight]:
        """Return all flights, sorted by id."""
        return [self._flights[name] for name in sorted(self._flights)]

    def measure_usage(self) -> Mapping[str, FlightUsage]:
        """Return the stored tiles of each flight that has any."""
        members = {flight.flight_id: self._list_members(flight) for flight in self.list_flights()}
        users = Counter(tile.tile_id for found in members.values() for tile in found)
        return {
            name: FlightUsage(
                tiles=len(found),
                size_bytes=sum(tile.blob.length for tile in found),
                shared_tiles=sum(users[tile.tile_id] > 1 for tile in found),
                shared_bytes=sum(t.blob.length for t in found if users[t.tile_id] > 1),
                oldest_produced_at=min(tile.produced_at for tile in found),
                newest_produced_at=max(tile.produced_at for tile in found),
            )
            for name, found in members.items()
            if found
        }

    def pin_flight(self, flight_id: str, note: OperatorNote) -> None:
        """Protect a flight's tiles from eviction; pinning twice changes nothing."""
        flight = self._flights.get(flight_id) or Flight(flight_id=flight_id)
        pinned = evolve(flight, pinned_at=flight.pinned_at or self._now())
        self._change(flight_id, pinned, "pin", note)

    def unpin_flight(self, flight_id: str, note: OperatorNote) -> None:
        """Allow a flight's tiles to be evicted again."""
        flight = self._flights.get(flight_id)
        after = None if flight is None else evolve(flight, pinned_at=None)
        self._change(flight_id, after, "unpin", note)

    def set_expiry(self, flight_id: str, at: datetime | None, note: OperatorNote) -> None:
        """Set the time from which a flight's pin has no effect."""
        flight = self._flights.get(flight_id) or Flight(flight_id=flight_id)
        self._change(flight_id, evolve(flight, expires_at=at), "expire", note)

    def remove_flight(self, flight_id: str, note: OperatorNote) -> None:
        """Remove a flight with its areas and its pin."""
        self._change(flight_id, None, "remove", note)

    def protects(self, tile: TileMetadata) -> bool:
        """Return whether a tile must not be evicted because of a pinned flight."""
        now = self._now()
        return any(
            flight.protects(tile.tile_id, now, stored_for=tile.flight_id)
            for flight in self._flights.values()
        )

    def contains(self, tile: TileMetadata) -> bool:
        """Return whether a tile belongs to any flight."""
        return any(
            tile.flight_id == flight.flight_id or flight.contains(tile.tile_id)
            for flight in self._flights.values()
        )

    def _list_members(self, flight: Flight) -> list[TileMetadata]:
        return [
            tile
            for tile in self.tiles.all_tiles()
            if tile.flight_id == flight.flight_id or flight.contains(tile.tile_id)
        ]

    def _change(
        self, flight_id: str, after: Flight | None, transition: str, note: OperatorNote
    ) -> None:
        before = self._flights.pop(flight_id, None)
        event = build_flight_event(before, after, transition, note, now=self._now())
        if event is not None:
            self.events.append(event)
        if after is not None:
            self._flights[flight_id] = after

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC)
