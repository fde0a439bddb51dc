"""Flights: what they hold, and how operators pin, expire and remove them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from attrs import define, frozen

from tileferry.application.ports.clock import Clock
from tileferry.application.ports.flights import FlightBook
from tileferry.application.ports.inventory import TileCounts
from tileferry.domain.errors import NotFoundError, Remedy
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.tiles import (
    BBox,
    Flight,
    FlightStatus,
    FlightUsage,
    OperatorNote,
    VotingStatus,
)
from tileferry.domain.tiles.flight import check_distances

with import_on_call(globals()):
    from tileferry.domain.errors import ProtectedFlightError
    from tileferry.domain.tiles import UploadRequest


@frozen(kw_only=True)
class FlightPin:
    """Whether a flight is pinned, and how many tiles it has."""

    flight_id: str
    pinned: bool
    tiles: int
    pinned_flights: Sequence[str]
    areas: int = 0


@frozen(kw_only=True)
class FlightSummary:
    """A flight, its stored tiles, and the tiles that it captured, by voting status."""

    flight: Flight
    status: FlightStatus
    usage: FlightUsage
    captured: Mapping[VotingStatus, int]

    @property
    def pending(self) -> int:
        """Captured tiles that exist only in this cache and are still to be uploaded."""
        return self.captured.get(VotingStatus.PENDING, 0)

    @property
    def giveups(self) -> int:
        return self.captured.get(VotingStatus.UPLOAD_GIVEUP, 0)

    @property
    def uploaded(self) -> int:
        """Captured tiles that the provider has acknowledged."""
        return sum(self.captured.values()) - self.pending - self.giveups


@define(kw_only=True)
class FlightRegister:
    """The use cases of flights. Removing protection from a pinned flight needs a reason."""

    book: FlightBook
    tiles: TileCounts
    clock: Clock

    def list_summaries(self) -> list[FlightSummary]:
        """Return all flights, sorted by id."""
        usage = self.book.measure_usage()
        return [self._summarize(flight, usage) for flight in self.book.list_flights()]

    def get_summary(self, flight_id: str) -> FlightSummary:
        return self._summarize(self.get_flight(flight_id), self.book.measure_usage())

    def get_flight(self, flight_id: str) -> Flight:
        """Return a flight; raise if it is unknown."""
        found = self.book.find_flight(_check_flight(flight_id))
        if found is None:
            raise NotFoundError(what="flight", name=flight_id, remedy=Remedy.LIST_FLIGHTS)
        return found

    def find_boxes(self, flight_id: str | None) -> list[BBox]:
        """Return the boxes of a flight's areas; none for an unknown flight."""
        found = None if flight_id is None else self.book.find_flight(flight_id)
        return [] if found is None else found.boxes

    def list_pinned(self) -> tuple[str, ...]:
        """Return the flights whose tiles are protected from eviction."""
        now = self._now()
        return tuple(
            flight.flight_id
            for flight in self.book.list_flights()
            if flight.get_status(now) is FlightStatus.PINNED
        )

    def check_distances(self, flight_id: str, boxes: Sequence[BBox]) -> None:
        """Raise if an area is so far from the flight's others that it must be confirmed."""
        flight = self.book.find_flight(flight_id) or Flight(flight_id=flight_id)
        check_distances(flight, boxes)

    def pin(self, flight_id: str, note: OperatorNote) -> FlightPin:
        """Protect a flight's tiles from eviction; an end date that has passed is removed."""
        flight = self.book.find_flight(_check_flight(flight_id))
        if flight is not None and flight.get_status(self._now()) is FlightStatus.EXPIRED:
            self.book.set_expiry(flight_id, None, note)
        self.book.pin_flight(flight_id, note)
        return self._describe_pin(flight_id, pinned=True)

    def unpin(self, flight_id: str, note: OperatorNote) -> FlightPin:
        """Allow the eviction of a flight's tiles again; an unknown flight is left alone."""
        self.book.unpin_flight(_check_flight(flight_id), note)
        return self._describe_pin(flight_id, pinned=False)

    def expire(self, flight_id: str, at: datetime | None, note: OperatorNote) -> FlightSummary:
        """Set the end of a flight's pin; an end that has passed needs a reason if it is pinned."""
        flight, now = self.get_flight(flight_id), self._now()
        if at is not None and at <= now:
            _require_reason(flight, now, note)
        self.book.set_expiry(flight_id, at, note)
        return self.get_summary(flight_id)

    def remove(self, flight_id: str, note: OperatorNote) -> FlightSummary:
        """Remove a flight and its areas; return what it was. Its tiles can then be evicted.

        A flight with captured tiles that are still to be uploaded is not removed. Given-up tiles
        stay in the cache.
        """
        summary = self.get_summary(flight_id)
        if summary.pending:
            raise ProtectedFlightError(
                flight_id=flight_id,
                problem=f"{summary.pending:,} captured tiles are not uploaded yet",
                remedy=Remedy.UPLOAD_CAPTURES,
            )
        _require_reason(summary.flight, self._now(), note)
        self.book.remove_flight(flight_id, note)
        return summary

    def _summarize(self, flight: Flight, usage: Mapping[str, FlightUsage]) -> FlightSummary:
        return FlightSummary(
            flight=flight,
            status=flight.get_status(self._now()),
            usage=usage.get(flight.flight_id, FlightUsage()),
            captured=self.tiles.count_captured(flight.flight_id),
        )

    def _describe_pin(self, flight_id: str, *, pinned: bool) -> FlightPin:
        flight = self.book.find_flight(flight_id)
        usage = self.book.measure_usage().get(flight_id, FlightUsage())
        return FlightPin(
            flight_id=flight_id,
            pinned=pinned,
            tiles=usage.tiles,
            pinned_flights=self.list_pinned(),
            areas=0 if flight is None else len(flight.areas),
        )

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC)


def _require_reason(flight: Flight, now: datetime, note: OperatorNote) -> None:
    if flight.get_status(now) is FlightStatus.PINNED and not note.reason:
        raise ProtectedFlightError(
            flight_id=flight.flight_id,
            problem="it is pinned; this would allow the eviction of its tiles",
            remedy=Remedy.GIVE_REASON,
        )


def _check_flight(flight_id: str) -> str:
    return UploadRequest(flight_id=flight_id).flight_id
