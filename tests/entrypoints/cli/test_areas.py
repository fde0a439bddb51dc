"""The areas of a command line."""

import json
from pathlib import Path

import pytest
import typer

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox, TileCoverage
from tileferry.entrypoints.cli.areas import (
    AreaInput,
    parse_areas,
    parse_coverages,
    parse_one_coverage,
    parse_zooms,
)
from tileferry.entrypoints.config import Config

BOX, OTHER = "36.1,49.9,36.4,50.1", "37.1,49.9,37.4,50.1"


@pytest.mark.parametrize(
    ("bbox", "zoom", "told"),
    [
        ("1,2", "15", "--bbox: is not of the form W,S,E,N"),
        ("36.1,x,36.4,50.1", "15", "--bbox south: is not a decimal number"),
        ("36.1,50.1,36.4,49.9", "15", "--bbox south: must be less than north, 49.9 (got 50.1)"),
        ("36.4,49.9,36.1,50.1", "15", "--bbox west: west and east look swapped"),
        ("36.1,49.9,36.1,50.1", "15", "--bbox east: is the same meridian as west"),
        ("36.1,49.9,36.4,95", "15", "--bbox north: must be a finite number from -90"),
        (BOX, "99", "--zoom: must be a whole number from 0 to 21 (got 99)"),
        (BOX, "15-", "--zoom: is not a list of zoom levels"),
    ],
)
def test_invalid_bbox_or_zoom_is_rejected_by_option_name(bbox: str, zoom: str, told: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        parse_coverages(Config(), AreaInput(bboxes=[BOX, bbox]), zoom)
    assert str(refusal.value).startswith(told)


def test_zoom_levels_are_sorted_and_deduplicated() -> None:
    assert parse_zooms("16,13-15, 14") == (13, 14, 15, 16)


def test_every_area_is_used_once() -> None:
    config = Config(areas={"camp": "38.1,49.9,38.4,50.1", "same": OTHER})
    given = AreaInput(bboxes=[BOX, OTHER, BOX], areas=["camp", "same"])
    found = parse_areas(config, given, "13")
    assert [str(item.coverage.bbox) for item in found] == [BOX, OTHER, "38.1,49.9,38.4,50.1"]
    assert [item.name for item in found] == [None, "same", "camp"]
    assert str(found[0]) == BBox.parse(BOX).in_words
    assert str(found[2]).startswith("camp: 38.1")
    assert [item.zoom_levels for item in parse_coverages(config, given, "13")] == [(13,)] * 3


def test_area_is_required_and_may_be_limited_to_one() -> None:
    with pytest.raises(typer.BadParameter, match="--bbox, --area or --route"):
        parse_areas(Config(), AreaInput(areas=[]), "13")
    with pytest.raises(typer.BadParameter, match="one area only"):
        parse_one_coverage(Config(), AreaInput(bboxes=[BOX, OTHER]), "13")
    twice = AreaInput(bboxes=[BOX, BOX])
    assert parse_one_coverage(Config(), twice, "13").bbox == BBox.parse(BOX)


def test_unknown_area_name_lists_configured_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValueError) as nowhere:
        parse_coverages(Config(), AreaInput(areas=["depot"]), "15")
    assert str(nowhere.value).endswith(
        "known names: none; there is no tileferry.toml in this folder"
    )
    Path("tileferry.toml").touch()
    with pytest.raises(InvalidValueError, match=r"known names: none$"):
        parse_coverages(Config(), AreaInput(areas=["depot"]), "15")
    with pytest.raises(InvalidValueError, match=r"known names: camp$"):
        parse_coverages(Config(areas={"camp": BOX}), AreaInput(areas=["depot"]), "15")


TRIANGLE = [[36.1, 49.9], [36.4, 49.9], [36.2, 50.1], [36.1, 49.9]]


def write(path: Path, kind: str, coordinates: object) -> Path:
    path.write_text(json.dumps({"type": kind, "coordinates": coordinates}), encoding="utf-8")
    return path


def test_area_from_file_has_the_tiles_of_its_shape(tmp_path: Path) -> None:
    file = write(tmp_path / "field.geojson", "Polygon", [TRIANGLE])
    (area,) = parse_areas(Config(), AreaInput(areas=[str(file)]), "14")
    box = TileCoverage(bbox=area.coverage.bbox, zoom_levels=[14])
    assert box.count / 3 < area.coverage.count < box.count * 0.8
    assert str(area) == (
        f"{file}: shape in 49.9°N to 50.1°N, 36.1°E to 36.4°E; {area.coverage.count} tiles"
    )
    rectangle = [[36.1, 49.9], [36.4, 49.9], [36.4, 50.1], [36.1, 50.1], [36.1, 49.9]]
    same = write(tmp_path / "box.geojson", "Polygon", [rectangle])
    (coverage,) = parse_coverages(Config(), AreaInput(bboxes=[BOX], areas=[str(same)]), "14")
    assert coverage == TileCoverage(bbox=BBox.parse(BOX), zoom_levels=[14])


def test_route_is_a_corridor_with_detail_near_it(tmp_path: Path) -> None:
    file = write(tmp_path / "route.geojson", "LineString", [[36.0, 50.0], [36.5, 50.3]])
    given = AreaInput(routes=[file, file], buffer="500m", detail="16:200m,13-14:2km", bboxes=[BOX])
    box, corridor, near, far = parse_areas(Config(), given, "12")
    assert (box.coverage.zoom_levels, corridor.coverage.zoom_levels) == ((12,), (12,))
    assert (near.coverage.zoom_levels, far.coverage.zoom_levels) == ((16,), (13, 14))
    assert corridor.name == f"{file}, 500 m around it"
    widths = [item.coverage.bbox.width for item in (near, corridor, far)]
    assert widths == sorted(widths)
    detail_only = AreaInput(routes=[file], detail="16:200m")
    assert parse_coverages(Config(), detail_only, None) == [near.coverage]


@pytest.mark.parametrize(
    ("given", "zoom", "problem"),
    [
        (AreaInput(routes=[Path("x")]), "13", "a route needs a distance; add --buffer or --detail"),
        (AreaInput(bboxes=[BOX], buffer="5m"), "13", "--buffer and --detail need --route"),
        (AreaInput(bboxes=[BOX], detail="18:5m"), "13", "--buffer and --detail need --route"),
        (AreaInput(bboxes=[BOX]), None, "an area needs zoom levels; add --zoom"),
        (AreaInput(routes=[Path("x")], detail="18:5m"), "13", "--zoom needs --buffer"),
    ],
)
def test_options_that_do_not_fit_are_rejected(
    given: AreaInput, zoom: str | None, problem: str
) -> None:
    with pytest.raises(typer.BadParameter, match=problem):
        parse_areas(Config(), given, zoom)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"buffer": "500"}, "--buffer: is not a distance from 1m to 100km (got '500')"),
        ({"buffer": "101km"}, "--buffer: is not a distance from 1m to 100km"),
        ({"buffer": "0.1m"}, "--buffer: is not a distance from 1m to 100km"),
        (
            {"buffer": "500m"},
            "--route: is not a readable file: No such file or directory (got 'x')",
        ),
        ({"detail": "18"}, "--detail: is not a list of zoom levels with distances (got '18')"),
        ({"detail": "18:5"}, "--detail: is not a distance from 1m to 100km"),
        ({"detail": "99:5m"}, "--detail: must be a whole number from 0 to 21"),
        ({"detail": "x:5m"}, "--detail: is not a list of zoom levels"),
    ],
)
def test_invalid_distance_or_route_is_rejected_by_option_name(
    given: dict[str, str], problem: str
) -> None:
    zoom = "13" if "buffer" in given else None
    with pytest.raises(InvalidValueError) as refusal:
        parse_areas(Config(), AreaInput(routes=[Path("x")], **given), zoom)
    assert str(refusal.value).startswith(problem)
