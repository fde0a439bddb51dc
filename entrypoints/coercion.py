"""Converts arguments of embedding programs from convenient forms to domain values."""

from collections.abc import Sequence
from pathlib import Path

from tileferry.adapters.geodata.area_files import read_area
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox, Place, SectorClass, Shape
from tileferry.domain.tiles.selection import FetchMode

PlaceLike = BBox | Shape | str | Path
"""A box, also as text ``W,S,E,N``; a shape; or a file that draws an area."""
SectorLike = SectorClass | str


def to_place(place: PlaceLike) -> Place:
    """Return a box or a shape."""
    if isinstance(place, Path):
        return read_area(place)
    return BBox.parse(place) if isinstance(place, str) else place


def to_places(places: PlaceLike | Sequence[PlaceLike]) -> list[Place]:
    """Return one place or several as a list."""
    given = [places] if isinstance(places, BBox | Shape | str | Path) else places
    return [to_place(place) for place in given]


def to_sector(sector: SectorLike) -> SectorClass:
    """Return a sector class; text is its name."""
    try:
        return SectorClass(sector)
    except ValueError:
        raise InvalidValueError(
            field="sector",
            value=sector,
            problem="is not a sector class",
            remedy=f"use one of {', '.join(SectorClass)}",
        ) from None


def select_fetch_mode(**flags: bool) -> FetchMode:
    """Return the mode whose flag is set, by its name; at most one may be set."""
    modes = [FetchMode(name) for name, is_set in flags.items() if is_set]
    if len(modes) > 1:
        raise InvalidValueError(
            field=" and ".join(modes), value=True, problem="exclude each other", remedy="use one"
        )
    return modes[0] if modes else FetchMode.MISSING


def check_one_landing_source(record: Path | None, *, on_ground: bool) -> None:
    """Reject a flight record combined with ``on_ground``: only one may confirm the landing."""
    if not isinstance(on_ground, bool):  # any text is truthy, even "no"
        raise InvalidValueError(field="on_ground", value=on_ground, problem="must be True or False")
    if on_ground and record is not None:
        raise InvalidValueError(
            field="flight_record",
            value=str(record),
            problem="cannot be combined with on_ground",
            remedy="use one of the two",
        )
