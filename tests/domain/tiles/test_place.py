"""Distances and sizes on the globe."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.tiles import BBox
from tileferry.domain.tiles.place import (
    describe_place,
    find_centre,
    measure_gap_km,
    measure_size_km,
)

KHARKIV = BBox(west=36.1, south=49.9, east=36.4, north=50.1)
SWAPPED = BBox(west=49.9, south=36.1, east=50.1, north=36.4)
FIJI = BBox(west=179.0, south=-18.0, east=-179.0, north=-16.0)


def test_centre_of_box_across_the_antimeridian() -> None:
    assert find_centre(FIJI) == (180.0, -17.0)
    assert find_centre(BBox(west=179.0, south=-1.0, east=-177.0, north=1.0)) == (-179.0, 0.0)


def test_size_follows_the_latitude() -> None:
    width, height = measure_size_km(KHARKIV)
    assert (round(width, 1), round(height, 1)) == (21.4, 22.2)
    assert [round(km) for km in measure_size_km(FIJI)] == [213, 222]


@pytest.mark.parametrize(
    ("box", "words"),
    [
        (KHARKIV, "50.00°N 36.25°E, 21 x 22 km"),
        (FIJI, "17.00°S 180.00°E, 213 x 222 km"),
        (BBox(west=-70.01, south=-1.0, east=-70.0, north=-0.99), "0.99°S 70.00°W, 1.1 x 1.1 km"),
    ],
)
def test_place_is_described_by_centre_and_size(box: BBox, words: str) -> None:
    assert describe_place(box) == words


def test_swapped_coordinates_are_far_away() -> None:
    assert measure_gap_km(KHARKIV, SWAPPED) == pytest.approx(1_870, abs=30)


@pytest.mark.parametrize(
    ("other", "gap_km"),
    [
        (BBox(west=36.2, south=50.0, east=37.0, north=51.0), 0.0),
        (BBox(west=36.4, south=49.9, east=36.5, north=50.1), 0.0),
        (BBox(west=36.1, south=51.1, east=36.4, north=51.2), 111.2),
        (BBox(west=36.1, south=48.8, east=36.4, north=48.9), 111.2),
        (BBox(west=37.4, south=49.9, east=37.5, north=50.1), 71.3),
    ],
)
def test_gap_is_measured_between_the_nearest_edges(other: BBox, gap_km: float) -> None:
    assert measure_gap_km(KHARKIV, other) == pytest.approx(gap_km, abs=0.1)


def test_gap_takes_the_short_way_around() -> None:
    west = BBox(west=-179.9, south=-1.0, east=-179.0, north=1.0)
    east = BBox(west=179.0, south=-1.0, east=179.9, north=1.0)
    assert measure_gap_km(east, west) == pytest.approx(22.2, abs=0.1)


_edges = st.tuples(
    st.floats(-179, 170), st.floats(-80, 79), st.floats(0.01, 9), st.floats(0.01, 0.9)
)


def _to_box(edges: tuple[float, float, float, float]) -> BBox:
    west, south, width, height = edges
    return BBox(west=west, south=south, east=west + width, north=south + height)


@given(_edges, _edges)
def test_gap_is_symmetric_and_never_longer_than_between_centres(
    a: tuple[float, float, float, float], b: tuple[float, float, float, float]
) -> None:
    one, other = _to_box(a), _to_box(b)
    gap = measure_gap_km(one, other)
    assert gap == pytest.approx(measure_gap_km(other, one))
    assert 0.0 <= gap <= _measure_centres(one, other) + 1e-6


def _measure_centres(a: BBox, b: BBox) -> float:
    (lon_a, lat_a), (lon_b, lat_b) = (tuple(map(math.radians, find_centre(box))) for box in (a, b))
    haversine = (
        math.sin((lat_b - lat_a) / 2) ** 2
        + math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    )
    return 2 * 6371.0088 * math.asin(math.sqrt(min(1.0, haversine)))
