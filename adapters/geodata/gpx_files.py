"""GPX: the routes and tracks."""

import gpxpy
from gpxpy.gpx import GPXException, GPXRoute, GPXTrackSegment

from tileferry.adapters.geodata.drawing import Drawing
from tileferry.adapters.geodata.kml_files import get_name, parse_xml


def read_gpx(content: bytes, drawing: Drawing) -> None:
    """Add the routes and the segments of the tracks of a GPX document."""
    root = parse_xml(content, drawing)
    if get_name(root) != "gpx":
        drawing.refuse("XML", get_name(root), "is not GPX: its root is another element")
    points = sum(get_name(element) in {"rtept", "trkpt"} for element in root.iter())
    drawing.check_count(points, "tracks and routes")
    try:
        found = gpxpy.parse(content)
    except (GPXException, ValueError) as error:
        drawing.refuse("GPX", None, f"is not valid: {error}", remedy="export the file again")
    parts: list[tuple[str, GPXRoute | GPXTrackSegment]] = [
        (f"route {n}", route) for n, route in enumerate(found.routes, start=1)
    ]
    parts += [
        (f"track {n} segment {m}", segment)
        for n, track in enumerate(found.tracks, start=1)
        for m, segment in enumerate(track.segments, start=1)
    ]
    for where, part in parts:
        if len(part.points) > 1:  # a segment of one point has no line
            drawing.add_line(where, [(point.longitude, point.latitude) for point in part.points])
    drawing.others += len(found.waypoints)
