"""Where an area has flaws, as GeoJSON (RFC 7946), for any program that draws maps."""

import json
from collections.abc import Iterator
from typing import Any

from tileferry.application.cache.readiness import ReadinessReport
from tileferry.domain.tiles import BBox, Patch

SCHEMA = "tileferry.cache.readiness.geojson.v1"
_DIGITS = 9  # a tenth of a millimetre


def geojson_lines(report: ReadinessReport) -> Iterator[str]:
    """Yield a FeatureCollection, a feature a line: nobody has to hold it whole."""
    head = {
        "type": "FeatureCollection",
        "schema": SCHEMA,
        "verdict": str(report.verdict),
        "bbox": _numbers(report.coverage.bbox),
    }
    yield json.dumps(head)[:-1] + ', "features": ['
    separator = ""
    for patch in report.patches():
        yield separator + json.dumps(_feature(patch))
        separator = ","
    yield "]}"


def _feature(patch: Patch) -> dict[str, Any]:
    # A rectangle lies on one side of the antimeridian, as the standard wants it: areas are cut
    # there. The ring goes against the clock, and ends where it began.
    box = patch.tiles.bounds
    west, south, east, north = _numbers(box)
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {
        "type": "Feature",
        "bbox": [west, south, east, north],
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "properties": {
            "kind": patch.flaw.value,
            "zoom": patch.tiles.zoom,
            "tiles": patch.flawed,
            "exact": patch.is_exact,
            "x_min": patch.tiles.x_min,
            "x_max": patch.tiles.x_max,
            "y_min": patch.tiles.y_min,
            "y_max": patch.tiles.y_max,
        },
    }


def _numbers(box: BBox) -> list[float]:
    return [round(edge, _DIGITS) for edge in (box.west, box.south, box.east, box.north)]
