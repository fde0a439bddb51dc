"""Reads areas and routes from files; the format follows from the content and the file's name."""

from pathlib import Path, PurePath

from tileferry.adapters.geodata.drawing import Drawing
from tileferry.adapters.geodata.geojson import read_geojson
from tileferry.adapters.geodata.plan_files import read_plan
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.text import format_bytes
from tileferry.domain.tiles import Place, Shape

with import_on_call(globals()):  # shapely and numpy take longer than a whole short command
    from tileferry.adapters.geodata.geometry import build_area, build_corridor
    from tileferry.adapters.geodata.gpx_files import read_gpx
    from tileferry.adapters.geodata.kml_files import read_kml, unpack_kmz

FILE_BYTES_MAX = 8 * 1024 * 1024
FORMATS = "GeoJSON, KML, KMZ, GPX or a QGroundControl plan"
_ZIP = b"PK\x03\x04"
_XML_STARTS = (b"<", b"\xef\xbb\xbf<", b"\xff\xfe<", b"\xfe\xff\x00<")
_HEAD_BYTES = 4_096


def read_area(path: Path) -> Place:
    """Return the area that a file draws; raises ``OSError`` if it cannot be read."""
    return build_area(_read_drawing(path))


def read_corridor(path: Path, *, buffer_m: float) -> Shape:
    """Return what is within a distance of the route in a file."""
    return build_corridor(_read_drawing(path), buffer_m)


def parse_area(content: bytes, *, name: str) -> Place:
    """Return the area that the content of a file draws; ``name`` is that of the file."""
    return build_area(_parse_drawing(content, name))


def _read_drawing(path: Path) -> Drawing:
    with path.open("rb") as file:
        return _parse_drawing(file.read(FILE_BYTES_MAX + 1), path.name)


def _parse_drawing(content: bytes, name: str) -> Drawing:
    drawing, suffix = Drawing(name=name), PurePath(name).suffix.lower()
    if len(content) > FILE_BYTES_MAX:
        drawing.refuse(
            "file", None, f"is larger than {format_bytes(FILE_BYTES_MAX)}", remedy="simplify it"
        )
    if content.startswith(_ZIP):
        read_kml(unpack_kmz(content, drawing), drawing)
    elif content.lstrip().startswith(_XML_STARTS):
        is_gpx = suffix == ".gpx" or b"<gpx" in content[:_HEAD_BYTES]
        (read_gpx if is_gpx else read_kml)(content, drawing)
    elif suffix == ".plan" or b'"Plan"' in content[:_HEAD_BYTES]:
        read_plan(content, drawing)
    elif content.lstrip()[:1] in {b"{", b"["}:
        read_geojson(content, drawing)
    else:
        drawing.refuse("file", None, f"is not {FORMATS}")
    return drawing
