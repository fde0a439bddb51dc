"""A geographic box in degrees: west, south, east, north."""

import math
import re
from collections.abc import Sequence
from typing import TypeVar

from attrs import field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import as_float, number

MERCATOR_LAT_MAX = math.degrees(math.atan(math.sinh(math.pi)))
"""The northern limit of Web Mercator, about 85.0511 degrees."""
LON_MAX = 180.0
LAT_MAX = 90.0
CROSSING_WIDTH_MAX = 180.0
_TURN = 360.0

_TEXT_CHARS_MAX = 160
_EDGES = ("west", "south", "east", "north")
_ORDER = "the order is west, south, east, north"
Angle = TypeVar("Angle", int, float)
_NUMBER = re.compile(r" *([+-]?[0-9]{1,20}(\.[0-9]{1,30})?(e[+-]?[0-9]{1,3})?) *", re.ASCII)


@frozen(kw_only=True)
class BBox:
    """A box that tiles can cover; ``west > east`` means that it crosses the antimeridian."""

    west: float = field(converter=as_float, validator=number(-LON_MAX, LON_MAX))
    south: float = field(converter=as_float, validator=number(-LAT_MAX, LAT_MAX))
    east: float = field(converter=as_float, validator=number(-LON_MAX, LON_MAX))
    north: float = field(converter=as_float, validator=number(-LAT_MAX, LAT_MAX))

    def __attrs_post_init__(self) -> None:
        if self.south >= self.north:
            raise InvalidValueError(
                field="BBox.south",
                value=self.south,
                problem=f"must be less than north, {self.north!r}",
                remedy=_ORDER,
            )
        if self.width == 0:
            raise InvalidValueError(
                field="BBox.east", value=self.east, problem="is the same meridian as west"
            )
        if self.crosses_antimeridian and self.width > CROSSING_WIDTH_MAX:
            raise InvalidValueError(
                field="BBox.west",
                value=self.west,
                problem=f"west and east look swapped: across the antimeridian to east "
                f"{self.east!r}, the box is {self.width:g} degrees wide",
                remedy=_ORDER,
            )
        if self.south >= MERCATOR_LAT_MAX or self.north <= -MERCATOR_LAT_MAX:
            raise InvalidValueError(
                field="BBox",
                value=str(self),
                problem=f"is entirely beyond {MERCATOR_LAT_MAX:.4f} degrees of latitude, "
                f"where Web Mercator has no tiles",
            )

    def __str__(self) -> str:
        return f"{self.west!r},{self.south!r},{self.east!r},{self.north!r}"

    @property
    def in_words(self) -> str:
        """The box with hemispheres, for people. Swapped latitude and longitude are easy to spot
        here.
        """
        south, north = (
            f"{abs(lat):.7g}°{'S' if lat < 0 else 'N'}" for lat in (self.south, self.north)
        )
        west, east = (f"{abs(lon):.7g}°{'W' if lon < 0 else 'E'}" for lon in (self.west, self.east))
        return f"{south} to {north}, {west} to {east}"

    @property
    def crosses_antimeridian(self) -> bool:
        return self.west > self.east

    @property
    def width(self) -> float:
        """Degrees from west to east, across the antimeridian if the box crosses it."""
        return self.east - self.west + (_TURN if self.crosses_antimeridian else 0.0)

    def shrink(self, degrees: float) -> "BBox":
        """Return the box with each edge moved inwards; it must not cross the antimeridian."""
        return BBox(
            west=self.west + degrees,
            south=self.south + degrees,
            east=self.east - degrees,
            north=self.north - degrees,
        )

    @classmethod
    def parse(cls, text: str) -> "BBox":
        """Parse ``W,S,E,N``: four decimal numbers, with optional spaces."""
        parts = text.split(",") if type(text) is str and len(text) <= _TEXT_CHARS_MAX else []
        if len(parts) != len(_EDGES):
            raise InvalidValueError(
                field="BBox",
                value=text,
                problem="is not of the form W,S,E,N",
                remedy="give four numbers in degrees, such as 36.1,49.9,36.4,50.1",
            )
        west, south, east, north = (
            _parse_degrees(edge, part) for edge, part in zip(_EDGES, parts, strict=True)
        )
        return cls(west=west, south=south, east=east, north=north)


def _parse_degrees(edge: str, text: str) -> float:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise InvalidValueError(
            field=f"BBox.{edge}", value=text, problem="is not a decimal number of degrees"
        )
    return float(match[1])


def find_enclosing_arc(spans: Sequence[tuple[Angle, Angle]], *, turn: Angle) -> tuple[Angle, Angle]:
    """Return the west and east edges that enclose all spans of longitude; ``turn`` is the circle.

    The result crosses the antimeridian only if the gap between spans is at least half a turn. A
    wider crossing box would look like one with west and east swapped.
    """
    ordered = sorted(spans)
    west, reach = ordered[0]
    for start, end in ordered[1:]:
        if 2 * (start - reach) >= turn:
            return start, reach
        reach = max(reach, end)
    return west, reach


def enclose_boxes(boxes: Sequence[BBox]) -> BBox:
    """Return the box around several; around the whole globe if one crosses the antimeridian."""
    crosses = len(boxes) > 1 and any(box.crosses_antimeridian for box in boxes)
    return BBox(
        west=-LON_MAX if crosses else min(box.west for box in boxes),
        south=min(box.south for box in boxes),
        east=LON_MAX if crosses else max(box.east for box in boxes),
        north=max(box.north for box in boxes),
    )


WORLD = BBox(west=-LON_MAX, south=-LAT_MAX, east=LON_MAX, north=LAT_MAX)
