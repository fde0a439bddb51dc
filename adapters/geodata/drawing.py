"""What a file draws: polygons and lines in degrees, each with its position in the file."""

import math
from collections.abc import Iterable, Sequence
from typing import NoReturn

from attrs import define, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.bbox import LAT_MAX, LON_MAX

Position = tuple[float, float]
"""A longitude and a latitude."""

POSITIONS_MAX = 200_000
"""Of a whole file. A route of this many positions is simplified; an area may have fewer."""


@frozen
class DrawnPolygon:
    """An outer ring and its holes, each closed."""

    where: str
    rings: Sequence[Sequence[Position]]


@frozen
class DrawnLine:
    where: str
    positions: Sequence[Position]


@define(kw_only=True)
class Drawing:
    """The polygons and lines of one file."""

    name: str
    """The file's name, for error messages."""
    polygons: list[DrawnPolygon] = field(factory=list)
    lines: list[DrawnLine] = field(factory=list)
    others: int = 0
    """How many points there are; they are neither areas nor routes."""
    _positions: int = 0

    def add_polygon(self, where: str, rings: Iterable[Iterable[Sequence[float]]]) -> None:
        """Add a polygon; a ring that is not closed is refused by the readers of its format."""
        checked = [self._check(ring, f"{where} ring {n}") for n, ring in enumerate(rings, start=1)]
        self.polygons.append(DrawnPolygon(where, checked))

    def add_line(self, where: str, positions: Iterable[Sequence[float]]) -> None:
        self.lines.append(DrawnLine(where, self._check(positions, where)))

    def _check(self, positions: Iterable[Sequence[float]], where: str) -> list[Position]:
        found: list[Position] = []
        for number, position in enumerate(positions, start=1):
            lon, lat = float(position[0]), float(position[1])
            if not (math.isfinite(lon) and math.isfinite(lat)):
                self.refuse(f"{where} position {number}", (lon, lat), "is not finite")
            if abs(lon) > LON_MAX or abs(lat) > LAT_MAX:
                self.refuse(
                    f"{where} position {number}",
                    (lon, lat),
                    "is not on the globe",
                    remedy="check the order of longitude and latitude, in degrees",
                )
            found.append((lon, lat))
        self._positions += len(found)
        if self._positions > POSITIONS_MAX:
            self.refuse(
                where,
                f"{self._positions:,} positions",
                f"the file has more than {POSITIONS_MAX:,} positions",
                remedy="simplify it",
            )
        return found

    def refuse(self, where: str, value: object, problem: str, *, remedy: str = "") -> NoReturn:
        """Raise an error that names the file and the place in it."""
        raise InvalidValueError(
            field=f"{self.name}: {where}", value=value, problem=problem, remedy=remedy
        )
