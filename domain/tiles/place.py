"""Where a box is, how large it is, and how far it is from others, in kilometres."""

import math

from tileferry.domain.tiles.bbox import BBox

_EARTH_RADIUS_KM = 6371.0088
_HALF_TURN, _TURN = 180.0, 360.0


def find_centre(box: BBox) -> tuple[float, float]:
    """Return the longitude and latitude of a box's centre."""
    lon = box.west + box.width / 2
    return lon - _TURN if lon > _HALF_TURN else lon, (box.south + box.north) / 2


def measure_size_km(box: BBox) -> tuple[float, float]:
    """Return the width, along the middle latitude, and the height of a box."""
    middle = math.radians((box.south + box.north) / 2)
    km_per_degree = math.radians(1) * _EARTH_RADIUS_KM
    return box.width * math.cos(middle) * km_per_degree, (box.north - box.south) * km_per_degree


def measure_gap_km(a: BBox, b: BBox) -> float:
    """Return the distance between two boxes; 0 if they touch or overlap."""
    lon = math.radians(_measure_longitude_gap(a, b))
    # The nearest points are never both inside: one of them is on a northern or southern edge.
    nearest = min(
        _measure_haversine(edge, lat, lon)
        for one, other in ((a, b), (b, a))
        for edge in (math.radians(one.south), math.radians(one.north))
        for lat in _list_nearest_latitudes(edge, other, lon)
    )
    return 2 * _EARTH_RADIUS_KM * math.asin(math.sqrt(min(1.0, nearest)))


def _measure_haversine(lat_a: float, lat_b: float, lon: float) -> float:
    return (
        math.sin((lat_b - lat_a) / 2) ** 2
        + math.cos(lat_a) * math.cos(lat_b) * math.sin(lon / 2) ** 2
    )


def _list_nearest_latitudes(lat: float, box: BBox, lon: float) -> list[float]:
    """Return the latitudes of a box among which is the one nearest to a point."""
    south, north = math.radians(box.south), math.radians(box.north)
    best = math.atan2(math.sin(lat), math.cos(lat) * math.cos(lon))
    return [south, north, *([best] if south < best < north else [])]


def _measure_longitude_gap(a: BBox, b: BBox) -> float:
    """Return the degrees between two boxes along the shorter way around the globe."""
    to_b, to_a = (b.west - a.west) % _TURN, (a.west - b.west) % _TURN
    return max(0.0, min(to_b - a.width, to_a - b.width))


def describe_place(box: BBox) -> str:
    """Return the centre and size of a box for people: ``49.99°N 36.27°E, 22 x 22 km``."""
    lon, lat = find_centre(box)
    width, height = (f"{km:.0f}" if km >= 10 else f"{km:.2g}" for km in measure_size_km(box))  # noqa: PLR2004  # two digits are enough
    return (
        f"{abs(lat):.2f}°{'S' if lat < 0 else 'N'} {abs(lon):.2f}°{'W' if lon < 0 else 'E'}, "
        f"{width} x {height} km"
    )
