"""KML and KMZ, of any version, and the safe XML parser.

Every coordinate counts: one that cannot be read is an error, and is never skipped.
"""

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from tileferry.adapters.geodata.drawing import RING_POSITIONS_MIN, Drawing
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.text import format_bytes

XML_BYTES_MAX = 8 * 1024 * 1024
ZIP_ENTRIES_MAX = 1_000
_DEPTH_MAX = 100
_COMPRESSIONS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    LookupError,
    ArithmeticError,
)
"""What zipfile raises for damaged archives."""
_GEOMETRIES = {"Polygon", "LineString", "LinearRing", "Track", "Point", "Model"}
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)


def parse_xml(content: bytes, drawing: Drawing) -> Element:
    """Return the root element of a document that is neither too long, too deep nor hostile."""
    if len(content) > XML_BYTES_MAX:
        drawing.refuse(
            "file", f"{len(content)} bytes", f"is larger than {format_bytes(XML_BYTES_MAX)}"
        )
    try:
        root: Element = fromstring(content, forbid_dtd=True)
    except DefusedXmlException:
        drawing.refuse(
            "XML",
            None,
            "declares a document type or entities, which can hide an attack",
            remedy="export the file again, or remove its DOCTYPE",
        )
    except (ParseError, ValueError, LookupError) as error:  # ValueError: an unknown encoding
        drawing.refuse("XML", None, f"is not valid: {error}", remedy="export the file again")
    level, depth = [root], 0
    while level := [child for element in level for child in element]:
        depth += 1
        if depth > _DEPTH_MAX:
            drawing.refuse("XML", None, f"is nested more than {_DEPTH_MAX} levels deep")
    return root


def unpack_kmz(content: bytes, drawing: Drawing) -> bytes:
    """Return the KML document of a KMZ archive: ``doc.kml``, or else its first KML file."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if len(entries) > ZIP_ENTRIES_MAX:
                drawing.refuse(
                    "archive", f"{len(entries):,} files", f"has more than {ZIP_ENTRIES_MAX:,} files"
                )
            documents = [each for each in entries if each.filename.lower().endswith(".kml")]
            documents.sort(key=lambda each: each.filename.lower() != "doc.kml")
            if not documents:
                drawing.refuse("archive", f"{len(entries):,} files", "contains no KML file")
            if documents[0].compress_type not in _COMPRESSIONS:  # others may need much memory
                drawing.refuse(
                    "archive", None, "has another compression than KMZ", remedy="export it as KML"
                )
            with archive.open(documents[0]) as file:
                # The sizes in the archive may lie: read no more than allowed.
                document = file.read(XML_BYTES_MAX + 1)
    except InvalidValueError:
        raise
    except (RuntimeError, NotImplementedError) as error:  # encrypted; an unknown compression
        drawing.refuse("archive", None, f"cannot be unpacked: {error}", remedy="export it as KML")
    except _DAMAGES as error:
        drawing.refuse("archive", None, f"is damaged: {error}", remedy="export the file again")
    if len(document) > XML_BYTES_MAX:
        drawing.refuse(
            documents[0].filename, None, f"is larger than {format_bytes(XML_BYTES_MAX)} unpacked"
        )
    return document


def read_kml(content: bytes, drawing: Drawing) -> None:
    """Add the polygons, lines and tracks of a KML document, whatever its version."""
    root = parse_xml(content, drawing)
    if get_name(root) != "kml":
        drawing.refuse("XML", get_name(root), "is not KML: its root is another element")
    for number, element in enumerate(_iter_geometries(root), start=1):
        kind = get_name(element)
        where = f"{kind} {number}"
        match kind:
            case "Polygon":
                borders = [
                    border
                    for side in ("outerBoundaryIs", "innerBoundaryIs")
                    for border in _find_all(element, side)
                ]
                rings = [_read_ring(border, where, drawing) for border in borders]
                if not rings or get_name(borders[0]) != "outerBoundaryIs":
                    drawing.refuse(where, None, "has no outer boundary")
                drawing.add_polygon(where, rings)
            case "LineString":
                drawing.add_line(where, _read_coordinates(element, where, drawing))
            case "LinearRing":
                drawing.add_polygon(where, [_close(element, where, drawing)])
            case "Track":
                coords = [
                    _read_track_point(coord, where, drawing)
                    for coord in _find_all(element, "coord")
                ]
                drawing.add_line(where, coords)
            case _:
                drawing.others += 1


def _iter_geometries(element: Element) -> Iterator[Element]:
    for child in element:
        if get_name(child) in _GEOMETRIES:
            yield child
        else:
            yield from _iter_geometries(child)


def _read_ring(border: Element, where: str, drawing: Drawing) -> list[list[float]]:
    ring = next(_find_all(border, "LinearRing"), None)
    if ring is None:
        drawing.refuse(where, None, "has a boundary without a LinearRing")
    return _close(ring, where, drawing)


def _close(ring: Element, where: str, drawing: Drawing) -> list[list[float]]:
    positions = _read_coordinates(ring, where, drawing)
    if len(positions) < RING_POSITIONS_MIN or positions[0][:2] != positions[-1][:2]:
        drawing.refuse(
            where,
            f"{len(positions)} positions",
            f"is not a ring: it needs {RING_POSITIONS_MIN} positions, the last equal to the first",
        )
    return positions


def _read_coordinates(element: Element, where: str, drawing: Drawing) -> list[list[float]]:
    text = "".join(node.text or "" for node in _find_all(element, "coordinates"))
    # Spaces around commas are not allowed, but common.
    tuples = ",".join(part.strip() for part in text.split(",")).split()
    return [_parse_position(item.split(","), item, where, drawing) for item in tuples]


def _read_track_point(coord: Element, where: str, drawing: Drawing) -> list[float]:
    text = coord.text or ""
    return _parse_position(text.split(), text, where, drawing)


def _parse_position(parts: list[str], text: str, where: str, drawing: Drawing) -> list[float]:
    if len(parts) not in {2, 3} or not all(map(_NUMBER.fullmatch, parts)):
        drawing.refuse(where, text, "is not a longitude, a latitude and an optional altitude")
    return [float(part) for part in parts]


def _find_all(element: Element, name: str) -> Iterator[Element]:
    return (child for child in element if get_name(child) == name)


def get_name(element: Element) -> str:
    """Return the name of an element without its namespace, which differs between versions."""
    return str(element.tag).rpartition("}")[2]
