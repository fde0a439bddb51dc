"""Areas that somebody drew, as GeoJSON."""

import json
from typing import Any

import pytest

from tileferry.adapters.geodata.drawing import Drawing
from tileferry.adapters.geodata.geojson import read_geojson
from tileferry.adapters.geodata.geometry import build_area
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox, Place, Shape


def ring(west: float, south: float, east: float, north: float) -> list[list[float]]:
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def polygon(*box: float) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": [ring(*box)]}


def read_area(document: Any) -> Place:
    drawing = Drawing(name="area")
    read_geojson(json.dumps(document).encode(), drawing)
    return build_area(drawing)


def read_bbox(document: Any) -> BBox:
    place = read_area(document)
    return place if isinstance(place, BBox) else place.bbox


HERE = (36.0, 50.0, 36.3, 50.2)
BOX = BBox(west=36.0, south=50.0, east=36.3, north=50.2)
HOLE = ring(36.1, 50.05, 36.2, 50.1)


@pytest.mark.parametrize(
    "document",
    [
        polygon(*HERE),
        {"type": "Polygon", "coordinates": [ring(*HERE), HOLE]},
        {"type": "Feature", "geometry": polygon(*HERE), "properties": {"name": "x"}},
        {
            "type": "FeatureCollection",
            "features": [
                {"type": "Feature", "geometry": polygon(36.0, 50.0, 36.1, 50.1)},
                {"type": "Feature", "geometry": polygon(36.2, 50.1, 36.3, 50.2)},
            ],
        },
        {
            "type": "MultiPolygon",
            "coordinates": [[ring(36.2, 50.1, 36.3, 50.2)], [ring(36.0, 50.0, 36.1, 50.1)]],
        },
        {"type": "Polygon", "coordinates": [[[*place, 120.5] for place in ring(*HERE)]]},
    ],
    ids=["polygon", "with a hole", "feature", "collection", "multi", "with heights"],
)
def test_every_geojson_form_yields_bbox(document: Any) -> None:
    assert read_bbox(document) == BOX


LINE = {"type": "LineString", "coordinates": [[36.0, 50.0], [36.3, 50.2]]}


@pytest.mark.parametrize(
    "document",
    [
        LINE,
        {"type": "MultiLineString", "coordinates": [LINE["coordinates"]]},
        {"type": "GeometryCollection", "geometries": [LINE]},
        {"type": "FeatureCollection", "features": [{"type": "Feature", "geometry": LINE}]},
    ],
)
def test_every_form_of_a_line_yields_its_shape(document: Any) -> None:
    assert read_area(document) == Shape.from_degrees(lines=[[(36.0, 50.0), (36.3, 50.2)]])


def test_polygons_holes_and_lines_add_up() -> None:
    features = [
        {"type": "Feature", "geometry": geometry}
        for geometry in (
            {"type": "Polygon", "coordinates": [ring(*HERE), HOLE]},
            LINE,
            {"type": "MultiPolygon", "coordinates": [[ring(37, 50, 38, 51)]]},
        )
    ]
    found = read_area({"type": "FeatureCollection", "features": features})
    assert found == Shape.from_degrees(
        polygons=[[ring(*HERE), HOLE], [ring(37, 50, 38, 51)]],  # type: ignore[list-item]
        lines=[[(36.0, 50.0), (36.3, 50.2)]],
    )


def test_area_split_at_antimeridian_yields_crossing_bbox() -> None:
    cut = {
        "type": "MultiPolygon",
        "coordinates": [[ring(179.5, -17.0, 180.0, -16.0)], [ring(-180.0, -17.5, -179.8, -16.0)]],
    }
    assert read_bbox(cut) == BBox(west=179.5, south=-17.5, east=-179.8, north=-16.0)


def test_nested_polygon_does_not_extend_bbox() -> None:
    nested = {
        "type": "MultiPolygon",
        "coordinates": [[ring(10, 1, 40, 5)], [ring(20, 2, 21, 3)], [ring(30, 2, 41, 3)]],
    }
    assert read_bbox(nested) == BBox(west=10, south=1, east=41, north=5)


def make_invalid_polygon(**changes: Any) -> dict[str, Any]:
    return {**polygon(*HERE), **changes}


@pytest.mark.parametrize(
    ("document", "place", "problem"),
    [
        ([1, 2], "area", "must be a GeoJSON object"),
        ({"coordinates": []}, "area.type", "is missing"),
        ({"type": "Point", "coordinates": [1, 2]}, "area.type", "is not an area"),
        ({"type": "Feature"}, "area.geometry", "is missing"),
        ({"type": "Feature", "geometry": None}, "area.geometry", "must be a GeoJSON object"),
        ({"type": "FeatureCollection", "features": {}}, "area.features", "must be a list"),
        ({"type": "FeatureCollection", "features": []}, "area: file", "contains no polygon"),
        ({"type": "LineString", "coordinates": 7}, "area.coordinates", "must be a list"),
        ({"type": "MultiLineString", "coordinates": [7]}, "area.coordinates[0]", "must be a list"),
        (
            {"type": "LineString", "coordinates": [[1, 2]]},
            "area: coordinates",
            "a line needs at least 2",
        ),
        (
            {"type": "FeatureCollection", "features": [{"type": "Feature", "geometry": {}}]},
            "area.features[0].geometry.type",
            "is missing",
        ),
        (make_invalid_polygon(coordinates=[]), "area.coordinates", "must be a list of rings"),
        (make_invalid_polygon(coordinates=[3]), "area.coordinates", "must be a list of rings"),
        (make_invalid_polygon(coordinates=[[[0, 0]] * 3]), "area.coordinates[0]", "is not a ring"),
        (
            make_invalid_polygon(coordinates=[ring(*HERE)[:4]]),
            "area.coordinates[0]",
            "is not a ring",
        ),
        (make_invalid_polygon(coordinates=[[[0, 0], 7]]), "area.coordinates[0][1]", "a longitude"),
        (make_invalid_polygon(coordinates=[[[0]]]), "area.coordinates[0][0]", "a longitude"),
        (make_invalid_polygon(coordinates=[[[0, "1"]]]), "area.coordinates[0][0]", "a longitude"),
        (make_invalid_polygon(coordinates=[[[0, True]]]), "area.coordinates[0][0]", "a longitude"),
        (
            make_invalid_polygon(coordinates=[[[181, 1]] * 4]),
            "area: coordinates ring 1 position 1",
            "is not on the globe",
        ),
        (
            make_invalid_polygon(coordinates=[[[50, 136]] * 4]),
            "area: coordinates ring 1 position 1",
            "is not on the globe",
        ),
        (make_invalid_polygon(coordinates=[[[5, 5]] * 4]), "area: coordinates", "is not a valid"),
    ],
)
def test_invalid_geojson_is_rejected_by_path(document: Any, place: str, problem: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        read_bbox(document)
    assert refusal.value.field == place
    assert problem in refusal.value.problem


@pytest.mark.parametrize(
    "content", [b"<kml/>", b"\xff", b'{"type": "Polygon", "type": "Point"}', b" " * 5_000_000]
)
def test_invalid_json_is_rejected(content: bytes) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        read_geojson(content, Drawing(name="area.json"))
    assert refusal.value.field.startswith("area.json")
