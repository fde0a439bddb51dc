"""Areas: what they consist of, and their form in payloads and plans."""

import json
from typing import Any

import pytest
from hypothesis import given
from support.strategies import areas

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import JsonObject
from tileferry.domain.tiles import Area, BBox, SectorClass, Shape, area_to_json, parse_area

AREA = Area(
    bbox=BBox.parse("36.1,49.9,36.4,50.1"),
    zoom_levels=(16, 15, 16),
    sector_class=SectorClass.STABLE_REAR,
)
JSON: dict[str, Any] = {
    "bbox": "36.1,49.9,36.4,50.1",
    "zoom_levels": [15, 16],
    "sector_class": "stable_rear",
}


def test_area_json_format() -> None:
    assert AREA.zoom_levels == (15, 16)
    assert area_to_json(AREA) == JSON
    assert AREA.coverage.count == sum(part.count for part in AREA.coverage.ranges) > 0


def test_area_of_shape_has_its_box_and_its_text() -> None:
    shape = Shape.from_degrees(polygons=[[[(36.1, 49.9), (36.4, 49.9), (36.2, 50.1)]]])
    area = Area.from_place(shape, [16, 15], SectorClass.STABLE_REAR)
    assert area_to_json(area) == {**JSON, "shape": str(shape)}
    assert 0 < area.coverage.count < AREA.coverage.count
    assert (area.place_key, AREA.place_key) == (f"{area.bbox}~{shape.digest}", str(AREA.bbox))
    assert Area.from_place(AREA.bbox, [16, 15], SectorClass.STABLE_REAR) == AREA


@given(areas)
def test_area_round_trips_through_json(area: Area) -> None:
    stored = json.loads(json.dumps(area_to_json(area)))
    assert parse_area(JsonObject.from_value(stored, "payload")) == area


@pytest.mark.parametrize(
    ("changed", "field", "problem"),
    [
        ({"bbox": "1,2,3"}, "payload.bbox", "is not of the form W,S,E,N"),
        (
            {"bbox": "999,2,3,4"},
            "payload.bbox.west",
            "must be a finite number from -180 to 180",
        ),
        ({"bbox": [1, 2, 3, 4]}, "payload.bbox", "must be text"),
        ({"zoom_levels": []}, "payload.zoom_levels", "must have at least one zoom level"),
        ({"zoom_levels": "15"}, "payload.zoom_levels", "must be a list"),
        ({"zoom_levels": [True]}, "payload.zoom_levels", "must be a whole number from 0 to 21"),
        ({"zoom_levels": [[]]}, "payload.zoom_levels", "must be a whole number from 0 to 21"),
        ({"shape": None}, "payload.shape", "must be text"),
        ({"shape": "L 1 2"}, "payload.shape", "a line needs at least 2 different vertices"),
        (
            {"shape": "L 1 2 3 4"},
            "payload",
            "is not the box of the shape, 1e-07,2e-07,4e-07,6e-07",
        ),
        (
            {"sector_class": "rear"},
            "payload.sector_class",
            "must be one of active_conflict, stable_rear",
        ),
        (
            {"bbox": "-180,-85,180,85", "zoom_levels": [21]},
            "payload",
            "has more than 50,000,000 tiles",
        ),
    ],
)
def test_invalid_area_is_rejected_by_field(
    changed: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_area(JsonObject.from_value({**JSON, **changed}, "payload"))
    assert (caught.value.field, caught.value.problem) == (field, problem)
