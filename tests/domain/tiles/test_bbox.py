"""Boxes: which ones make sense, and how they are written."""

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import MERCATOR_LAT_MAX, BBox
from tileferry.domain.tiles.bbox import enclose_boxes

longitudes = st.floats(-180, 180)


@st.composite
def boxes(draw: st.DrawFn) -> BBox:
    south, north = draw(st.floats(-90, 85)), draw(st.floats(-85, 90))
    west, east = draw(longitudes), draw(longitudes)
    assume(south < north and west != east)
    if west > east and (east - west + 360 > 180 or (west, east) == (180, -180)):
        west, east = east, west
    return BBox(west=west, south=south, east=east, north=north)


@given(boxes())
def test_bbox_round_trips_through_text(box: BBox) -> None:
    assert BBox.parse(str(box)) == box
    assert str(BBox.parse(str(box))) == str(box)
    assert 0 < box.width <= (180 if box.crosses_antimeridian else 360)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("36,49,37,50", "36.0,49.0,37.0,50.0"),
        (" 36.10 , 49.9 ,36.4, 50.1", "36.1,49.9,36.4,50.1"),
        ("-0.0,-0,+1,1e-3", "0.0,0.0,1.0,0.001"),
        ("170,-10,-170,10", "170.0,-10.0,-170.0,10.0"),
        ("-180,-90,180,90", "-180.0,-90.0,180.0,90.0"),
    ],
)
def test_equal_boxes_have_same_text(text: str, canonical: str) -> None:
    # 1e-3 north of 0 is a box; its text must not depend on how its numbers were typed
    assert str(BBox.parse(text)) == canonical


def test_integers_and_negative_zero_make_equal_boxes() -> None:
    ints = BBox(west=0, south=0, east=1, north=1)
    floats = BBox(west=-0.0, south=-0.0, east=1.0, north=1.0)
    assert (ints, str(ints)) == (floats, str(floats))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1,2,3",
        "1,2,3,4,5",
        "1;2;3;4",
        "1,,3,4",
        "nan,1,2,3",
        "1,2,inf,4",
        "1_0,2,30,4",
        "0x1,2,3,4",
        "\N{ARABIC-INDIC DIGIT ONE},2,3,4",
        "1,2,3,4\n",
        "1,2,3,4\0",
        "1.,2,3,4",
        "--1,2,3,4",
        "1,2,3," + "4" * 99,
    ],
)
def test_malformed_bbox_text_is_rejected(text: str) -> None:
    with pytest.raises(InvalidValueError, match="BBox"):
        BBox.parse(text)


@pytest.mark.parametrize("value", [None, b"1,2,3,4", (1, 2, 3, 4), "1,2,3,4" + " " * 1000])
def test_non_text_or_overlong_bbox_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidValueError, match="W,S,E,N"):
        BBox.parse(value)


@given(st.text(alphabet="0123456789.,-+e nai", max_size=40))
def test_arbitrary_text_is_parsed_or_rejected(text: str) -> None:
    try:
        box = BBox.parse(text)
    except InvalidValueError:
        return
    assert BBox.parse(str(box)) == box


@pytest.mark.parametrize("edge", ["west", "south", "east", "north"])
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 180.1, -180.1, 10**400, -(10**400), True, "1", None]
)
def test_invalid_edge_is_rejected_by_name(edge: str, value: Any) -> None:
    edges: dict[str, Any] = {"west": 1.0, "south": 1.0, "east": 2.0, "north": 2.0, edge: value}
    with pytest.raises(InvalidValueError) as caught:
        BBox(**edges)
    assert caught.value.field == f"BBox.{edge}"


@pytest.mark.parametrize("edge", ["south", "north"])
def test_latitude_beyond_pole_is_rejected(edge: str) -> None:
    edges = {"west": 1.0, "south": 1.0, "east": 2.0, "north": 2.0, edge: 90.5}
    with pytest.raises(InvalidValueError, match=f"BBox.{edge}.* from -90 to 90"):
        BBox(**edges)


@pytest.mark.parametrize("south", [5.0, 5.5])
def test_south_must_be_below_north(south: float) -> None:
    with pytest.raises(InvalidValueError, match=r"BBox\.south: must be less than north, 5\.0"):
        BBox(west=1, south=south, east=2, north=5)


def test_swapped_bbox_corners_are_rejected() -> None:
    with pytest.raises(InvalidValueError, match="the order is west, south, east, north"):
        BBox.parse("36.1,50.1,36.4,49.9")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("36.1,49.9,36.4,50.1", "49.9°N to 50.1°N, 36.1°E to 36.4°E"),
        ("-71.25,-33.5,-70,-33", "33.5°S to 33°S, 71.25°W to 70°W"),
        ("170,-1,-170,1", "1°S to 1°N, 170°E to 170°W"),
        ("0,0,0.123456,1", "0°N to 1°N, 0°E to 0.123456°E"),
    ],
)
def test_bbox_in_words_names_hemispheres(text: str, words: str) -> None:
    assert BBox.parse(text).in_words == words


@pytest.mark.parametrize(("west", "east"), [(7.0, 7.0), (180.0, -180.0), (-180.0, -180.0)])
def test_bbox_without_width_is_rejected(west: float, east: float) -> None:
    with pytest.raises(InvalidValueError, match="same meridian"):
        BBox(west=west, south=1, east=east, north=2)


def test_antimeridian_bbox_is_at_most_180_degrees_wide() -> None:
    assert BBox(west=90, south=1, east=-90, north=2).width == 180
    with pytest.raises(InvalidValueError, match="west and east look swapped"):
        BBox(west=90, south=1, east=-89.9, north=2)
    with pytest.raises(InvalidValueError, match=r"swapped.*359\.7 degrees wide"):
        BBox.parse("36.4,49.9,36.1,50.1")


@pytest.mark.parametrize(
    ("south", "north"), [(86, 90), (-90, -86), (MERCATOR_LAT_MAX, 90), (-90, -MERCATOR_LAT_MAX)]
)
def test_bbox_beyond_web_mercator_is_rejected(south: float, north: float) -> None:
    with pytest.raises(InvalidValueError, match=r"entirely beyond 85\.0511 degrees"):
        BBox(west=1, south=south, east=2, north=north)


def test_bbox_partly_beyond_mercator_limit_is_accepted() -> None:
    assert BBox(west=1, south=85, east=2, north=90).north == 90
    assert BBox(west=1, south=-90, east=2, north=-85).south == -90
    assert pytest.approx(85.0511287798066, abs=1e-13) == MERCATOR_LAT_MAX


def test_enclosing_box_covers_all_boxes() -> None:
    west, east = BBox.parse("1,2,3,4"), BBox.parse("2,-1,7,3")
    across = BBox.parse("179,0,-179,1")
    assert enclose_boxes([west, east]) == BBox.parse("1,-1,7,4")
    assert enclose_boxes([across]) == across
    assert enclose_boxes([across, west]) == BBox.parse("-180,0,180,4")
