"""What a file draws: polygons and lines in degrees, each with its position in the file."""

import math
from collections.abc import Iterable, Sequence
from typing import NoReturn

from attrs import define, field, frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.bbox import LAT_MAX, LON_MAX

Position = tuple[float, float]
"""A longitude and a latitude."""

RING_POSITIONS_MIN = 4
"""The first position is repeated at the end."""
LINE_POSITIONS_MIN = 2
POSITIONS_MAX = 200_000
"""In a whole file. A route of this size is simplified; an area may have fewer positions."""


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
        for ring in checked:
            self._require(ring, RING_POSITIONS_MIN, where, "a ring")
        self.polygons.append(DrawnPolygon(where, checked))

    def add_line(self, where: str, positions: Iterable[Sequence[float]]) -> None:
        checked = self._check(positions, where)
        self._require(checked, LINE_POSITIONS_MIN, where, "a line")
        self.lines.append(DrawnLine(where, checked))

    def _require(self, found: Sequence[Position], count_min: int, where: str, what: str) -> None:
        if len(found) < count_min:
            self.refuse(
                where, f"{len(found)} positions", f"{what} needs at least {count_min} positions"
            )

    def check_count(self, count: int, where: str) -> None:
        """Raise if a file has too many positions."""
        if count > POSITIONS_MAX:
            self.refuse(
                where,
                f"{count:,} positions",
                f"the file has more than {POSITIONS_MAX:,} positions",
                remedy="simplify it",
            )

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
        self.check_count(self._positions, where)
        return found

    def refuse(self, where: str, value: object, problem: str, *, remedy: str = "") -> NoReturn:
        """Raise an error that names the file and the place in it."""
        raise InvalidValueError(
            field=f"{self.name}: {where}", value=value, problem=problem, remedy=remedy
        )
