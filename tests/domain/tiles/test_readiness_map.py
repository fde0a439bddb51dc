"""Marks of an area: counted, drawn and parted into rectangles as a plain dictionary would say."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    BBox,
    Flaw,
    FlawRegion,
    ReadinessMap,
    TileCoverage,
    TileId,
    TileRange,
    compute_tile_ranges,
)

KHARKIV = TileCoverage(
    bbox=BBox(west=36.1, south=49.9, east=36.5, north=50.1), zoom_levels=[11, 12, 13]
)
ACROSS_THE_ANTIMERIDIAN = TileCoverage(
    bbox=BBox(west=178.0, south=-2.0, east=-178.0, north=2.0), zoom_levels=[0, 7, 8]
)
AREAS = [KHARKIV, ACROSS_THE_ANTIMERIDIAN]
ABSENT = frozenset({Flaw.ABSENT})
OF_TILES = [flaw for flaw in Flaw if flaw not in {Flaw.HOLE, Flaw.ABSENT}]
Found = Mapping[TileId, frozenset[Flaw]]


@st.composite
def areas(draw: st.DrawFn) -> tuple[TileCoverage, Found]:
    """An area, and what is found of some of its tiles."""
    area = draw(st.sampled_from(AREAS))
    flaws = st.frozensets(st.sampled_from(OF_TILES)) | st.just(ABSENT)
    tiles = st.sampled_from(list(area.tiles("sat")))
    return area, draw(st.dictionaries(tiles, flaws, max_size=60))


def make_marks(area: TileCoverage, found: Found) -> ReadinessMap:
    marks = ReadinessMap(area)
    for tile, flaws in found.items():
        if flaws == ABSENT:
            assert marks.mark_absent(tile)
        else:
            assert marks.mark(tile, flaws)
        assert not marks.mark_absent(tile), "it is known already"
    return marks


def has_flaw(tile: TileId, flaw: Flaw, found: Found) -> bool:
    return tile not in found if flaw is Flaw.HOLE else flaw in found.get(tile, ())


@given(areas())
def test_counts_match_reference_dictionary(drawn: tuple[TileCoverage, Found]) -> None:
    area, found = drawn
    counts = make_marks(area, found).count_by_zoom()
    assert list(counts) == list(area.zoom_levels)
    for zoom, count in counts.items():
        tiles = [tile for tile in area.tiles("sat") if tile.zoom == zoom]
        assert count.tiles == len(tiles)
        assert count.present == sum(1 for tile in tiles if found.get(tile, ABSENT) != ABSENT)
        for flaw in Flaw:
            assert count.flaws[flaw] == sum(1 for tile in tiles if has_flaw(tile, flaw, found))


@given(areas())
def test_patches_partition_flawed_tiles_exactly_within_limit(
    drawn: tuple[TileCoverage, Found],
) -> None:
    area, found = drawn
    marks = make_marks(area, found)
    for zoom in area.zoom_levels:
        for flaw in Flaw:
            patches = marks.find_regions(zoom, flaw, limit=10_000)
            covered = [tile for patch in patches for tile in patch.tiles.tiles("sat")]
            expected = [t for t in area.tiles("sat") if t.zoom == zoom and has_flaw(t, flaw, found)]
            assert sorted(covered) == expected
            assert all(patch.is_exact and patch.flaw is flaw for patch in patches)


@given(areas(), st.integers(2, 12))
def test_limited_patches_cover_all_flawed_tiles_with_counts(
    drawn: tuple[TileCoverage, Found], limit: int
) -> None:
    area, found = drawn
    marks = make_marks(area, found)
    for zoom in area.zoom_levels:
        for flaw in Flaw:
            patches = marks.find_regions(zoom, flaw, limit=limit)
            assert len(patches) <= limit
            covered = [tile for patch in patches for tile in patch.tiles.tiles("sat")]
            assert len(set(covered)) == len(covered)
            assert all(map(area.contains, covered))
            flawed = [t for t in area.tiles("sat") if t.zoom == zoom and has_flaw(t, flaw, found)]
            assert set(flawed) <= set(covered)
            for patch in patches:
                inside = [tile for tile in flawed if patch.tiles.contains(tile)]
                assert patch.flawed == len(inside) > 0


def test_gap_is_one_patch_and_frame_around_tile_is_four() -> None:
    area = TileCoverage(bbox=KHARKIV.bbox, zoom_levels=[13])
    (whole,) = area.ranges
    empty = ReadinessMap(area)
    assert empty.find_regions(13, Flaw.HOLE, limit=9) == [
        FlawRegion(flaw=Flaw.HOLE, tiles=whole, flawed=whole.count)
    ]
    empty.mark(TileId(source="sat", zoom=13, x=whole.x_min + 2, y=whole.y_min + 2), ())
    around = empty.find_regions(13, Flaw.HOLE, limit=9)
    assert len(around) == 4
    assert sum(patch.flawed for patch in around) == whole.count - 1


def test_chequered_area_is_merged_into_limited_patches() -> None:
    area = TileCoverage(bbox=KHARKIV.bbox, zoom_levels=[16])
    marks = ReadinessMap(area)
    for tile in area.tiles("sat"):
        if (tile.x + tile.y) % 2:
            marks.mark(tile, ())
    holes = marks.count_by_zoom()[16].flaws[Flaw.HOLE]
    patches = marks.find_regions(16, Flaw.HOLE, limit=100)
    assert holes > 1_000
    assert len(patches) <= 100
    assert sum(patch.flawed for patch in patches) == holes
    assert not any(patch.is_exact for patch in patches)


def test_coarse_patches_merge_touching_blocks_only() -> None:
    area = TileCoverage(bbox=KHARKIV.bbox, zoom_levels=[14])
    (whole,) = area.ranges
    west, north = whole.x_min, whole.y_min
    marks = ReadinessMap(area)
    for row in (0, 3, 8):
        marks.mark(TileId(source="sat", zoom=14, x=west, y=north + row), [Flaw.STALE])
    first, second = marks.find_regions(14, Flaw.STALE, limit=2)
    assert (first.tiles.y_min - north, first.tiles.y_max - north, first.flawed) == (0, 3, 2)
    assert (second.tiles.y_min - north, second.tiles.y_max - north, second.flawed) == (8, 9, 1)
    assert (first.tiles.x_min, first.tiles.x_max) == (west, west + 1)


@pytest.mark.parametrize("area", AREAS)
def test_any_area_fits_in_two_patches(area: TileCoverage) -> None:
    marks = ReadinessMap(area)
    for tile in area.tiles("sat"):
        if (tile.x * 7 + tile.y * 3) % 5:
            marks.mark(tile, [Flaw.STALE])
    for zoom in area.zoom_levels:
        assert len(marks.find_regions(zoom, Flaw.STALE, limit=2)) <= 2
    with pytest.raises(InvalidValueError, match="limit: must be at least 2"):
        marks.find_regions(area.zoom_levels[0], Flaw.STALE, limit=1)


@given(areas(), st.integers(2, 30), st.integers(1, 30))
def test_picture_fits_and_each_cell_shows_worst_flaw(
    drawn: tuple[TileCoverage, Found], columns_max: int, rows_max: int
) -> None:
    area, found = drawn
    marks = make_marks(area, found)
    for zoom in area.zoom_levels:
        picture = marks.draw_preview(zoom, columns_max=columns_max, rows_max=rows_max)
        assert len(picture.rows) <= rows_max
        assert all(len(row) <= columns_max for row in picture.rows)
        expected: dict[tuple[int, int], set[Flaw]] = {}
        for part, offset in order_west_to_east(area, zoom, picture.side):
            for tile in part.tiles("sat"):
                x = offset + (tile.x - part.x_min) // picture.side
                y = (tile.y - part.y_min) // picture.side
                flaws = {flaw for flaw in Flaw if has_flaw(tile, flaw, found)}
                expected[x, y] = expected.get((x, y), set()) | flaws
        assert len(expected) == sum(map(len, picture.rows))
        for (x, y), flaws in expected.items():
            assert picture.rows[y][x] is next((flaw for flaw in Flaw if flaw in flaws), None)


def order_west_to_east(area: TileCoverage, zoom: int, side: int) -> list[tuple[TileRange, int]]:
    parts = [part for part in area.ranges if part.zoom == zoom]
    if area.bbox.crosses_antimeridian:
        parts.reverse()
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] - -(part.x_max - part.x_min + 1) // side)
    return list(zip(parts, offsets, strict=False))


def test_tiles_outside_area_are_not_marked() -> None:
    marks = ReadinessMap(KHARKIV)
    assert not marks.mark(TileId(source="sat", zoom=11, x=0, y=0), [Flaw.STALE])
    assert not marks.mark(TileId(source="sat", zoom=3, x=0, y=0), [])
    assert sum(count.present for count in marks.count_by_zoom().values()) == 0


def test_oversized_area_is_rejected() -> None:
    world = BBox(west=-180, south=-80, east=180, north=80)
    with pytest.raises(InvalidValueError, match="has more than 50,000,000 tiles"):
        ReadinessMap(TileCoverage(bbox=world, zoom_levels=[14]))


@given(zoom=st.integers(0, 21), data=st.data())
def test_range_bounds_cover_exactly_its_tiles(zoom: int, data: st.DataObject) -> None:
    index = st.integers(0, 2**zoom - 1)
    x_min, x_max = sorted((data.draw(index), data.draw(index)))
    y_min, y_max = sorted((data.draw(index), data.draw(index)))
    tiles = TileRange(zoom=zoom, x_min=x_min, x_max=x_max, y_min=y_min, y_max=y_max)
    assert compute_tile_ranges(tiles.bounds, zoom) == (tiles,)
