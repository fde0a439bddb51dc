"""The identity of a tile: a source and three integers. It never contains unchecked text."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NoReturn

from attrs import frozen

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import NAME_CHARS_MAX, is_name

ZOOM_MAX = 21
ALL_ZOOMS = tuple(range(ZOOM_MAX + 1))
_INDEX_DIGITS_MAX = len(str(2**ZOOM_MAX - 1))
_INDEX = rf"(0|[1-9][0-9]{{0,{_INDEX_DIGITS_MAX - 1}}})"
_CANONICAL = re.compile(
    rf"([a-z0-9][a-z0-9._-]{{0,{NAME_CHARS_MAX - 1}}})/(0|[1-9][0-9]?)/{_INDEX}/{_INDEX}", re.ASCII
)


@lru_cache(maxsize=256)  # few sources, millions of tiles: matching each would add a third
def _is_source(source: str) -> bool:
    return is_name(source) and source == source.lower()


@frozen(kw_only=True, order=True, weakref_slot=False)
class TileId:
    """One Web Mercator tile of one source. Sorts by source, zoom, column, row."""

    source: str
    zoom: int
    x: int
    y: int

    def __attrs_post_init__(self) -> None:
        # One expression instead of a validator per field, for speed: areas have millions of tiles.
        zoom, x, y = self.zoom, self.x, self.y
        if not (
            type(zoom) is int
            and type(x) is int
            and type(y) is int
            and 0 <= zoom <= ZOOM_MAX
            and 0 <= x < 1 << zoom
            and 0 <= y < 1 << zoom
            and type(self.source) is str
            and _is_source(self.source)
        ):
            self._refuse()

    def __str__(self) -> str:
        return f"{self.source}/{self.zoom}/{self.x}/{self.y}"

    @classmethod
    def parse(cls, text: str) -> "TileId":
        """Parse the canonical form ``source/z/x/y``; reject any other form."""
        match = _CANONICAL.fullmatch(text) if type(text) is str else None
        if match is None:
            raise InvalidValueError(
                field="TileId",
                value=text,
                problem="is not of the form source/z/x/y",
                remedy="use a lower-case source, then decimal numbers without leading zeros",
            )
        source, zoom, x, y = match.groups()
        return cls(source=source, zoom=int(zoom), x=int(x), y=int(y))

    def _refuse(self) -> NoReturn:
        """Raise an error that names the invalid field. Kept out of the fast path."""
        check_source(self.source, field="TileId.source")
        check_zoom(self.zoom, field="TileId.zoom")
        tiles = 1 << self.zoom
        column_is_good = type(self.x) is int and 0 <= self.x < tiles
        raise InvalidValueError(
            field="TileId.y" if column_is_good else "TileId.x",
            value=self.y if column_is_good else self.x,
            problem=f"must be a whole number from 0 to {tiles - 1} at zoom {self.zoom}",
        )


def check_source(source: str, *, field: str = "source") -> str:
    """Return ``source`` if it is a valid source name; raise otherwise."""
    if not (type(source) is str and _is_source(source)):
        raise InvalidValueError(
            field=field,
            value=source,
            problem="is not a plain lower-case name",
            remedy=f"use 1 to {NAME_CHARS_MAX} of a-z 0-9 . _ -, starting with a letter or digit",
        )
    return source


def check_zoom(zoom: int, *, field: str = "zoom") -> int:
    """Return ``zoom`` if it is a valid zoom level; raise otherwise."""
    if not (type(zoom) is int and 0 <= zoom <= ZOOM_MAX):
        raise InvalidValueError(
            field=field, value=zoom, problem=f"must be a whole number from 0 to {ZOOM_MAX}"
        )
    return zoom


def normalize_zooms(zooms: Iterable[int]) -> tuple[int, ...]:
    """Return the distinct levels in ascending order; raise if there are none."""
    if not isinstance(zooms, Iterable):
        raise InvalidValueError(field="zoom_levels", value=zooms, problem="must be a list")
    levels = tuple(sorted({check_zoom(zoom, field="zoom_levels") for zoom in zooms}))
    if not levels:
        raise InvalidValueError(
            field="zoom_levels", value=levels, problem="must have at least one zoom level"
        )
    return levels
