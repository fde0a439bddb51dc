"""Tile ids: what is one, how it is written, and everything that is not one."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import ZOOM_MAX, BBox, TileCoverage, TileId

sources = st.sampled_from(["sat", "a", "9", "maps.v2", "sat_1-b", "s" * 64])

NUMBERS = ["0", "1", "7", "21", "22", "00", "01", "+1", "-1", "", " 1", "1 ", "1_0", "2097152"]


@st.composite
def tile_ids(draw: st.DrawFn) -> TileId:
    zoom = draw(st.integers(0, ZOOM_MAX))
    index = st.integers(0, 2**zoom - 1)
    return TileId(source=draw(sources), zoom=zoom, x=draw(index), y=draw(index))


@given(tile_ids())
def test_tile_id_round_trips_through_text(tile: TileId) -> None:
    again = TileId.parse(str(tile))
    assert again == tile
    assert len({tile, again}) == 1


def test_canonical_text_is_source_zoom_column_row() -> None:
    assert str(TileId(source="sat-2.b", zoom=15, x=19700, y=11000)) == "sat-2.b/15/19700/11000"


@given(
    st.text(max_size=40)
    | st.lists(st.sampled_from(NUMBERS), min_size=3, max_size=3).map(
        lambda parts: "/".join(["sat", *parts])
    )
)
@example("sat/1/0/1\n")
def test_only_canonical_text_is_parsed(text: str) -> None:
    try:
        tile = TileId.parse(text)
    except InvalidValueError:
        return
    assert str(tile) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sat",
        "sat/1/1",
        "sat/1/1/1/1",
        "/sat/1/1/1",
        "../1/1/1",
        "sat/../1/1",
        "a..b/1/1/1",
        ".sat/1/1/1",
        "sat\0/1/1/1",
        "sat/1/1/1\0",
        "SAT/1/1/1",
        "sat/01/1/1",
        "sat/1/01/1",
        "sat/1/1/00",
        "sat/+1/1/1",
        "sat/1/-1/1",
        "sat/1/1/-0",
        "sat/ 1/1/1",
        "sat/1/1/1 ",
        "sat/1/1/1\n",
        "sat/1.0/1/1",
        "sat/1_0/1/1",
        "sat/\N{ARABIC-INDIC DIGIT ONE}/1/1",
        "sat/1/\N{FULLWIDTH DIGIT ONE}/1",  # int() would take it
        "sat/22/1/1",
        "sat/1/2/1",
        "sat/1/1/2",
        "sat/21/99999999/1",
        "s" * 65 + "/1/1/1",
        "sat/1/" + "1" * 5000 + "/1",
        "sat\\1\\1\\1",
        "C:/1/1/1",
        "sat/0x1/1/1",
    ],
)
def test_invariant26_hostile_text_is_rejected(text: str) -> None:
    with pytest.raises(InvalidValueError, match="TileId"):
        TileId.parse(text)


@pytest.mark.parametrize("value", [None, b"sat/1/1/1", 7, ("sat", 1, 1, 1)])
def test_non_text_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidValueError, match="TileId"):
        TileId.parse(value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source", ""),
        ("source", "Sat"),
        ("source", "a/b"),
        ("source", ".."),
        ("source", "sat\0"),
        ("source", "s" * 65),
        ("source", "säge"),
        ("source", None),
        ("source", ["sat"]),
        ("zoom", -1),
        ("zoom", 22),
        ("zoom", True),
        ("zoom", 3.0),
        ("zoom", "3"),
        ("x", -1),
        ("x", 8),
        ("x", True),
        ("x", 1.0),
        ("x", "1"),
        ("x", None),
        ("y", -1),
        ("y", 8),
        ("y", False),
        ("y", 10**400),
    ],
)
def test_invariant26_invalid_field_is_named(field: str, value: Any) -> None:
    fields: dict[str, Any] = {"source": "sat", "zoom": 3, "x": 1, "y": 1, field: value}
    with pytest.raises(InvalidValueError) as caught:
        TileId(**fields)
    assert caught.value.field == f"TileId.{field}"
    assert caught.value.value is value


def test_error_names_range_of_zoom_level() -> None:
    with pytest.raises(InvalidValueError, match=r"TileId\.y: .* from 0 to 7 at zoom 3 \(got 8\)"):
        TileId(source="sat", zoom=3, x=7, y=8)


@given(st.integers(0, ZOOM_MAX))
def test_indexes_end_at_last_tile_of_zoom_level(zoom: int) -> None:
    last = 2**zoom - 1
    assert TileId(source="sat", zoom=zoom, x=last, y=last).x == last
    with pytest.raises(InvalidValueError):
        TileId(source="sat", zoom=zoom, x=last + 1, y=0)
    with pytest.raises(InvalidValueError):
        TileId(source="sat", zoom=zoom, x=0, y=last + 1)


@given(tile_ids(), tile_ids())
def test_tiles_sort_by_source_zoom_column_row(a: TileId, b: TileId) -> None:
    assert (a < b) == ((a.source, a.zoom, a.x, a.y) < (b.source, b.zoom, b.x, b.y))


def test_tiles_sort_by_number_not_by_text() -> None:
    texts = ["a/9/10/9", "a/9/9/10", "a/10/0/0", "a/9/9/9", "b/0/0/0"]
    in_order = [str(tile) for tile in sorted(TileId.parse(text) for text in texts)]
    assert in_order == ["a/9/9/9", "a/9/9/10", "a/9/10/9", "a/10/0/0", "b/0/0/0"]


def test_zoom_levels_must_be_a_list() -> None:
    levels: Any = 5
    with pytest.raises(InvalidValueError, match="zoom_levels: must be a list"):
        TileCoverage(bbox=BBox(west=0, south=0, east=1, north=1), zoom_levels=levels)
