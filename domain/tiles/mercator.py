"""Web Mercator: conversion between degrees and tile indices."""

import math

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.bbox import LAT_MAX, LON_MAX, MERCATOR_LAT_MAX, BBox
from tileferry.domain.tiles.tile_id import TileId, check_zoom

# A fraction of the world's width: 0.4 µm on the ground. A tile edge converted to degrees and back
# is off by a few 1e-16; without this tolerance its corner would fall into the neighbouring tile.
_ROUNDING = 1e-14


def tile_at(lon: float, lat: float, zoom: int) -> tuple[int, int]:
    """Return the column and row of the tile that contains a point.

    A tile includes its west and north edges. Points beyond the latitudes of Web Mercator fall into
    the first or last row, and longitude 180 into the last column.
    """
    for field, value, limit in (("lon", lon, LON_MAX), ("lat", lat, LAT_MAX)):
        if not -limit <= value <= limit:  # false for NaN
            raise InvalidValueError(
                field=field, value=value, problem=f"must be from {-limit:g} to {limit:g} degrees"
            )
    tiles = 1 << check_zoom(zoom)
    return first_index(longitude_to_fraction(lon), tiles), first_index(
        latitude_to_fraction(lat), tiles
    )


def tile_bounds(tile: TileId) -> BBox:
    """Return the box that a tile covers."""
    return block_bounds(tile.zoom, x_min=tile.x, x_max=tile.x, y_min=tile.y, y_max=tile.y)


def block_bounds(zoom: int, *, x_min: int, x_max: int, y_min: int, y_max: int) -> BBox:
    """Return the box that a rectangle of tiles covers. Both ends are inclusive."""
    tiles = 1 << zoom
    return BBox(
        west=_fraction_to_longitude(x_min / tiles),
        south=fraction_to_latitude((y_max + 1) / tiles),
        east=_fraction_to_longitude((x_max + 1) / tiles),
        north=fraction_to_latitude(y_min / tiles),
    )


def longitude_to_fraction(lon: float) -> float:
    """Return the position of a longitude between the world's west edge, 0, and its east edge, 1."""
    return lon / 360.0 + 0.5


def latitude_to_fraction(lat: float) -> float:
    """Return the position of a latitude between the map's north edge, 0, and its south edge, 1."""
    held = min(max(lat, -MERCATOR_LAT_MAX), MERCATOR_LAT_MAX)
    return 0.5 - math.asinh(math.tan(math.radians(held))) / math.tau


def first_index(fraction: float, tiles: int) -> int:
    """Return the index of the tile that starts at or contains ``fraction``."""
    return min(max(math.floor((fraction + _ROUNDING) * tiles), 0), tiles - 1)


def last_index(fraction: float, tiles: int, *, first: int) -> int:
    """Return the index of the tile that ends at or contains ``fraction``; at least ``first``."""
    return max(min(math.ceil((fraction - _ROUNDING) * tiles), tiles) - 1, first)


def _fraction_to_longitude(fraction: float) -> float:
    return fraction * 360.0 - 180.0


def fraction_to_latitude(fraction: float) -> float:
    return math.degrees(math.atan(math.sinh(math.pi * (1.0 - 2.0 * fraction))))
