"""A flight: the areas whose tiles it needs. Flights share the tiles where their areas overlap."""

from collections.abc import Container, Iterable, Sequence
from datetime import datetime
from enum import StrEnum

from attrs import field, frozen, validators

from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.tiles.area import Area
from tileferry.domain.tiles.bbox import BBox
from tileferry.domain.tiles.coverage import TileCoverage
from tileferry.domain.tiles.place import describe_place, measure_gap_km
from tileferry.domain.tiles.tile_id import TileId, check_source
from tileferry.domain.validation import aware, instance, integer, name

with import_on_call(globals()):
    from tileferry.domain.errors import FarAreaError, InvalidStateError, Remedy

FAR_KM = 500.0
"""An area this far from the flight's others is more often a typing mistake than a plan."""


def _to_source(value: str) -> str:
    return check_source(value, field="FlightArea.source")


@frozen(kw_only=True)
class FlightArea:
    """An area that a flight needs, of one source. ``added_at`` does not make it another one."""

    source: str = field(converter=_to_source)
    area: Area = field(validator=instance(Area))
    added_at: datetime = field(validator=aware, eq=False)

    def contains(self, tile: TileId) -> bool:
        return tile.source == self.source and self.area.coverage.contains(tile)

    def includes(self, other: "FlightArea") -> bool:
        """Return whether all tiles of another area are inside, with the same requirements."""
        return (
            other.source == self.source
            and other.area.sector_class is self.area.sector_class
            and all(map(self.area.coverage.includes, other.area.coverage.ranges))
        )


class FlightStatus(StrEnum):
    """Whether a flight protects its tiles from eviction."""

    UNPINNED = "unpinned"
    PINNED = "pinned"
    EXPIRED = "expired"
    """Its end date has passed, so its pin has no effect."""
    REMOVED = "removed"


def _to_areas(areas: Iterable[FlightArea]) -> tuple[FlightArea, ...]:
    return tuple(areas)


_optional_time = validators.optional(aware)


@frozen(kw_only=True)
class Flight:
    """A flight with its areas, in the order in which they were added."""

    flight_id: str = field(validator=name)
    areas: tuple[FlightArea, ...] = field(default=(), converter=_to_areas)
    pinned_at: datetime | None = field(default=None, validator=_optional_time)
    expires_at: datetime | None = field(default=None, validator=_optional_time)
    """From then on its pin has no effect."""

    def get_status(self, now: datetime) -> FlightStatus:
        if self.expires_at is not None and self.expires_at <= now:
            return FlightStatus.EXPIRED
        return FlightStatus.UNPINNED if self.pinned_at is None else FlightStatus.PINNED

    def protects(self, tile: TileId, now: datetime, *, stored_for: str) -> bool:
        """Return whether the flight forbids the tile's eviction.

        A tile outside its areas is protected if it was last stored for the flight: imported,
        captured, or downloaded before areas were recorded.
        """
        return self.get_status(now) is FlightStatus.PINNED and (
            stored_for == self.flight_id or self.contains(tile)
        )

    def outlasts(self, other: "Flight", now: datetime) -> bool:
        """Return whether this flight is pinned for at least as long as another one."""
        end, other_end = self.expires_at, other.expires_at
        return self.get_status(now) is FlightStatus.PINNED and (
            end is None or (other_end is not None and other_end <= end)
        )

    def contains(self, tile: TileId) -> bool:
        """Return whether the tile is inside one of the areas."""
        return any(area.contains(tile) for area in self.areas)

    def list_coverages(self, source: str) -> list[TileCoverage]:
        """Return the areas of a source; raise if there are none."""
        found = [item.area.coverage for item in self.areas if item.source == source]
        if not found:
            raise InvalidStateError(
                subject=f"flight {self.flight_id}",
                problem=f"it has no areas of source {source}",
                remedy=Remedy.DOWNLOAD_AREA,
            )
        return found

    @property
    def boxes(self) -> list[BBox]:
        return [item.area.bbox for item in self.areas]


@frozen(kw_only=True)
class KeptTiles:
    """Tiles that a download must not evict: those it reuses, and those of its flight's other areas.

    Stored tiles of the requested areas that it replaces may make room for their new versions.
    """

    flight: Flight
    source: str
    requested: Sequence[TileCoverage]
    reused: Sequence[Container[TileId]]

    def __contains__(self, tile: object) -> bool:
        if not isinstance(tile, TileId):
            return False
        if tile.source == self.source and any(one.contains(tile) for one in self.requested):
            return any(tile in tiles for tiles in self.reused)
        return self.flight.contains(tile)


def find_distance_km(box: BBox, others: Sequence[BBox]) -> float | None:
    """Return the distance to the nearest of the other boxes; ``None`` if there are none."""
    return min((measure_gap_km(box, other) for other in others if other != box), default=None)


def describe_location(box: BBox, others: Sequence[BBox]) -> str:
    """Return the centre and size of a box, and its distance from a flight's other areas."""
    distance = find_distance_km(box, others)
    if distance is None:
        return describe_place(box)
    relation = f"{distance:,.0f} km from" if distance >= 1 else "next to or inside"
    return f"{describe_place(box)}, {relation} the flight's other areas"


def check_distances(flight: Flight, boxes: Sequence[BBox]) -> None:
    """Raise if a box is far from the flight's areas and from the boxes before it.

    Swapped coordinates usually are. A box that the flight already has is not checked again.
    """
    known = flight.boxes
    for box in boxes:
        distance = find_distance_km(box, known)
        if box not in known and distance is not None and distance > FAR_KM:
            raise FarAreaError(
                flight_id=flight.flight_id, place=describe_place(box), distance_km=distance
            )
        known.append(box)


@frozen(kw_only=True)
class FlightUsage:
    """The stored tiles of a flight: those inside its areas, and those stored for it elsewhere."""

    tiles: int = field(default=0, validator=integer(0))
    size_bytes: int = field(default=0, validator=integer(0))
    shared_tiles: int = field(default=0, validator=integer(0))
    """Of these, the tiles that another flight needs too."""
    shared_bytes: int = field(default=0, validator=integer(0))
    oldest_produced_at: datetime | None = None
    newest_produced_at: datetime | None = None

    @property
    def own_tiles(self) -> int:
        return self.tiles - self.shared_tiles

    @property
    def own_bytes(self) -> int:
        return self.size_bytes - self.shared_bytes


@frozen(kw_only=True)
class OperatorNote:
    """Who changed a flight, and why; the audit log keeps it."""

    by: str
    reason: str | None = None
