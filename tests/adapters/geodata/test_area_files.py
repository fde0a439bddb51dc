"""Files of every format, as other programs write them, and hostile ones."""

import io
import json
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import gpxpy.gpx
import pygeoif
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileferry.adapters.geodata.area_files import parse_area, read_area, read_corridor
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox, Shape

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it misses lxml
    import fastkml

TRIANGLE = [(36.1, 49.9), (36.4, 49.9), (36.2, 50.1), (36.1, 49.9)]
HOLE = [(36.2, 49.95), (36.3, 49.95), (36.2, 50.0), (36.2, 49.95)]
ROUTE = [(36.0, 50.0), (36.2, 50.1), (36.3, 50.0)]
Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


def kml(body: str, namespace: str = 'xmlns="http://www.opengis.net/kml/2.2"') -> str:
    return f"<?xml version='1.0'?><kml {namespace}><Document>{body}</Document></kml>"


def coordinates(positions: list[tuple[float, float]]) -> str:
    return " ".join(f"{lon},{lat},120" for lon, lat in positions)


POLYGON = (
    "<Placemark><name>field</name><Polygon><outerBoundaryIs><LinearRing><coordinates>"
    f"{coordinates(TRIANGLE)}</coordinates></LinearRing></outerBoundaryIs><innerBoundaryIs>"
    f"<LinearRing><coordinates>{coordinates(HOLE)}</coordinates></LinearRing></innerBoundaryIs>"
    "</Polygon></Placemark>"
)
LINE = f"<LineString><coordinates>{coordinates(ROUTE)}</coordinates></LineString>"
POINT = "<Placemark><Point><coordinates>1,2</coordinates></Point></Placemark>"
FIELD = Shape.from_degrees(polygons=[[TRIANGLE, HOLE]])
PATH = Shape.from_degrees(lines=[ROUTE])


@pytest.mark.parametrize(
    ("document", "place"),
    [
        (kml(POLYGON), FIELD),
        (kml(POLYGON, ""), FIELD),
        (kml(POLYGON, 'xmlns="http://earth.google.com/kml/2.1"'), FIELD),
        (kml(f"<Folder><Folder>{POLYGON}{POINT}</Folder></Folder>"), FIELD),
        (kml(f"<Placemark><MultiGeometry>{LINE}{LINE}</MultiGeometry></Placemark>"), PATH),
        (kml(f"<Placemark>{LINE.replace(',', ' , ')}</Placemark>"), PATH),
        (kml(f"<Placemark>{LINE.replace('0,120', '0')}</Placemark>"), PATH),
        (
            kml(
                "<Placemark xmlns:gx='http://www.google.com/kml/ext/2.2'><gx:Track>"
                "<gx:coord>36.0 50.0 5</gx:coord><when>2026-01-01</when>"
                "<gx:coord>36.2 50.1 5</gx:coord><gx:coord>36.3 50.0 5</gx:coord></gx:Track>"
                "</Placemark>"
            ),
            PATH,
        ),
        (
            kml(
                f"<Placemark><LinearRing><coordinates>{coordinates(TRIANGLE)}</coordinates>"
                "</LinearRing></Placemark>"
            ),
            Shape.from_degrees(polygons=[[TRIANGLE]]),
        ),
    ],
    ids=["2.2", "none", "2.1", "folders", "multi", "spaces", "mixed heights", "track", "ring"],
)
def test_kml_of_every_form(document: str, place: Shape, write: Write) -> None:
    assert read_area(write("a.kml", document)) == place
    assert read_area(write("a.kml", document.encode("utf-16"))) == place


def test_kml_of_another_program(write: Write) -> None:
    box = [(36.1, 49.9), (36.4, 49.9), (36.4, 50.1), (36.1, 50.1), (36.1, 49.9)]
    document = fastkml.KML(
        features=[
            fastkml.Folder(
                features=[
                    fastkml.Placemark(name="field", geometry=pygeoif.Polygon(TRIANGLE, [HOLE])),
                    fastkml.Placemark(name="path", geometry=pygeoif.LineString(ROUTE)),
                ]
            )
        ]
    )
    both = Shape.from_degrees(polygons=[[TRIANGLE, HOLE]], lines=[ROUTE])
    assert read_area(write("a.kml", document.to_string())) == both
    document = fastkml.KML(features=[fastkml.Placemark(geometry=pygeoif.Polygon(box))])
    assert read_area(write("a.kml", document.to_string())) == BBox.parse("36.1,49.9,36.4,50.1")


def pack(*files: tuple[str, str | bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return packed.getvalue()


def test_kmz_contains_a_kml_document(write: Write) -> None:
    others = ("files/a.png", b"\x89PNG"), ("other.kml", kml(POINT))
    assert read_area(write("a.kmz", pack(*others, ("doc.kml", kml(POLYGON))))) == FIELD
    assert read_area(write("a.kmz", pack(("files/x.KML", kml(POLYGON))))) == FIELD


def test_gpx_of_another_program(write: Write) -> None:
    document = gpxpy.gpx.GPX()
    track, route = gpxpy.gpx.GPXTrack(), gpxpy.gpx.GPXRoute()
    segment = gpxpy.gpx.GPXTrackSegment(
        [gpxpy.gpx.GPXTrackPoint(lat, lon, elevation=5) for lon, lat in ROUTE]
    )
    track.segments += [segment, gpxpy.gpx.GPXTrackSegment(segment.points[:1])]
    route.points += [gpxpy.gpx.GPXRoutePoint(lat, lon) for lon, lat in TRIANGLE]
    document.tracks.append(track)
    document.routes.append(route)
    document.waypoints.append(gpxpy.gpx.GPXWaypoint(1, 2))
    path = write("a.gpx", document.to_xml())
    assert read_area(path) == Shape.from_degrees(lines=[ROUTE, TRIANGLE])
    corridor = read_corridor(path, buffer_m=500)
    assert corridor.polygons
    assert not corridor.lines


def simple(command: int, lat: float | None, lon: float | None) -> dict[str, Any]:
    params = [0, 0, 0, None, lat, lon, 50]
    return {"type": "SimpleItem", "command": command, "params": params, "frame": 3}


def plan(items: list[Any], **more: Any) -> dict[str, Any]:
    mission = {"plannedHomePosition": [50.0, 36.0, 100], "items": items, "version": 2}
    return {"fileType": "Plan", "version": 1, "mission": mission, **more}


SURVEY = {
    "type": "ComplexItem",
    "complexItemType": "survey",
    "polygon": [[lat, lon] for lon, lat in TRIANGLE[:3]],
    "TransectStyleComplexItem": {"VisualTransectPoints": [[50.1, 36.2], [50.0, 36.3]]},
}


def test_plan_draws_its_route_surveys_and_inclusion_fences(write: Write) -> None:
    fence = {
        "polygons": [
            {"polygon": [[50, 36], [50, 37], [51, 36]], "inclusion": True},
            {"polygon": [[10, 36], [10, 37], [11, 36]], "inclusion": False},
        ],
        "circles": [
            {"circle": {"center": [50.5, 38.0], "radius": 1000}, "inclusion": True},
            {"circle": {"center": [10, 10], "radius": 50}, "inclusion": False},
        ],
    }
    items: list[dict[str, Any]] = [
        simple(22, None, None),
        simple(530, 0, 0),
        SURVEY,
        simple(16, 50.0, 36.4),
        simple(20, 0, 0),
    ]
    found = read_area(write("a.plan", json.dumps(plan(items, geoFence=fence))))
    assert isinstance(found, Shape)
    line = [(36.0, 50.0), (36.2, 50.1), (36.3, 50.0), (36.4, 50.0), (36.0, 50.0)]
    assert found.lines == Shape.from_degrees(lines=[line]).lines
    first, second, circle = found.polygons
    assert (first,) == Shape.from_degrees(polygons=[[[(36, 50), (37, 50), (36, 51)]]]).polygons
    assert (second,) == Shape.from_degrees(polygons=[[TRIANGLE]]).polygons
    assert len(circle[0]) == 64
    assert min(lat for _, lat in circle[0]) == pytest.approx(504910000, abs=200)


def test_plan_with_corridor_scan_and_landing(write: Write) -> None:
    items = [
        {"type": "ComplexItem", "polyline": [[50.1, 36.2], [50.0, 36.3]]},
        {
            "type": "ComplexItem",
            "landingApproachCoordinate": [50.0, 36.4, 10],
            "landCoordinate": [50.0, 36.5, 0],
        },
    ]
    document = plan(items)
    document["mission"]["plannedHomePosition"] = [0, 0, 0]
    line = [(36.2, 50.1), (36.3, 50.0), (36.4, 50.0), (36.5, 50.0)]
    assert read_area(write("x", json.dumps(document))) == Shape.from_degrees(lines=[line])


BOMB = "<!DOCTYPE kml [<!ENTITY a 'aaaaaaaaaa'>%s]>" + kml("&e;")[21:]
ENTITIES = "".join(f"<!ENTITY {b} '{f'&{a};' * 10}'>" for a, b in ("ab", "bc", "cd", "de"))
EXTERNAL = '<!DOCTYPE kml [<!ENTITY e SYSTEM "file:///etc/passwd">]>' + kml("&e;")[21:]
GPX = "<gpx version='1.1'>%s</gpx>"
DEEP = "<Folder>" * 5_000 + "</Folder>" * 5_000


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.kml", BOMB % ENTITIES, "XML: declares a document type or entities"),
        ("a.kml", EXTERNAL, "XML: declares a document type or entities"),
        ("a.gpx", EXTERNAL, "XML: declares a document type or entities"),
        ("a.gpx", "<!DOCTYPE gpx SYSTEM 'http://127.0.0.1:9/x.dtd'><gpx/>", "XML: declares a"),
        ("a.kmz", pack(("doc.kml", EXTERNAL)), "XML: declares a document type or entities"),
        ("a.kml", kml(DEEP), "XML: is nested more than 100 levels deep"),
        ("a.kml", "<kml><a></kml>", "XML: is not valid: mismatched tag"),
        ("a.kml", "<?xml version='1.0' encoding='x'?><kml/>", "XML: is not valid"),
        ("a.kml", GPX % "", "file: contains no polygon, line, track or route"),
        ("a.xml", "<html/>", "XML: is not KML"),
        ("a.gpx", "<html/>", "XML: is not GPX"),
        ("a.kml", kml(POINT * 2), "contains no polygon, line, track or route; it has 2 points"),
        ("a.kml", kml(POLYGON.replace("36.4,", "x,")), "Polygon 1: is not a longitude, a latitude"),
        ("a.kml", kml(POLYGON.replace("36.4,", "nan,")), "Polygon 1: is not a longitude"),
        ("a.kml", kml(POLYGON.replace("36.4,", "364,")), "ring 1 position 2: is not on the globe"),
        ("a.kml", kml(POLYGON.replace("36.4,", "1e999,")), "ring 1 position 2: is not finite"),
        ("a.kml", kml(POLYGON.replace("36.1,49.9,120", "", 1)), "Polygon 1: is not a ring"),
        ("a.kml", kml(POLYGON.replace("outer", "inner")), "Polygon 1: has no outer boundary"),
        ("a.kml", kml("<Polygon/>"), "Polygon 1: has no outer boundary"),
        ("a.kml", kml("<Polygon><outerBoundaryIs/></Polygon>"), "has a boundary without a"),
        ("a.kml", kml(" " * 9_000_000), "file: is larger than 8"),
        ("a.kmz", pack(("doc.kml", " " * 9_000_000)), "doc.kml: is larger than 8.* unpacked"),
        ("a.kmz", pack(*((f"{n}", "") for n in range(1_001))), "has more than 1,000 files"),
        ("a.kmz", pack(("a.txt", "")), "archive: contains no KML file"),
        ("a.kmz", pack(("doc.kml", kml(POLYGON)))[:-30], "archive: is damaged"),
        ("a.gpx", GPX % "<wpt lat='1' lon='2'/>", "it has 1 points"),
        ("a.gpx", GPX % "<rte><rtept lat='x' lon='2'/></rte>", "GPX: is not valid: Invalid value"),
        (
            "a.gpx",
            GPX % "<rte><rtept lat='nan' lon='2'/><rtept lat='1' lon='2'/></rte>",
            "route 1 position 1: is not finite",
        ),
        ("a.plan", "{}", "fileType: is not a QGroundControl plan"),
        ("a.plan", json.dumps({"fileType": "Plan"}), "mission: must be an object"),
        ("a.plan", json.dumps(plan([])), "contains no polygon, line"),
        ("a.plan", json.dumps(plan([7])), "mission.items: must be a list of objects"),
        ("a.plan", json.dumps(plan([{**SURVEY, "polygon": []}])), "a ring needs at least 4"),
        ("a.kml", kml(f"{POLYGON}<LineString/>"), "LineString 2: a line needs at least 2"),
        ("a.plan", json.dumps(plan([{"command": []}])), "command: must be a number"),
        ("a.plan", json.dumps(plan([], geoFence=[1])), "geoFence: must be an object"),
        (
            "a.plan",
            json.dumps(plan([simple(16, 91, 0)])),
            "mission position 2: is not on the globe",
        ),
        ("a.plan", json.dumps(plan([{**simple(16, 1, 0), "params": []}])), "has no params"),
        ("a.plan", json.dumps(plan([{**SURVEY, "polygon": [["x", 1]]}])), "must be a latitude"),
        (
            "a.plan",
            json.dumps(plan([], geoFence={"circles": [{"inclusion": True, "circle": None}]})),
            "radius: must be a radius in metres",
        ),
        ("a.plan", b'{"fileType": NaN}', "NaN"),
        ("a.txt", "36.1 49.9", "file: is not GeoJSON, KML, KMZ, GPX or a QGroundControl plan"),
        ("a.txt", "", "file: is not GeoJSON"),
    ],
)
def test_hostile_or_invalid_file_is_rejected(
    name: str, content: str | bytes, problem: str, write: Write
) -> None:
    with pytest.raises(InvalidValueError, match=f"^{name}.*{problem}"):
        read_area(write(name, content))


def test_encrypted_archive_is_rejected(write: Write) -> None:
    content = bytearray(pack(("doc.kml", kml(POLYGON))))
    for header in (b"PK\x03\x04", b"PK\x01\x02"):
        flags = content.index(header) + (6 if header == b"PK\x03\x04" else 8)
        content[flags] |= 1
    with pytest.raises(InvalidValueError, match="archive: cannot be unpacked"):
        read_area(write("a.kmz", bytes(content)))


def test_archive_with_another_compression_is_rejected(write: Write) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("doc.kml", kml(POLYGON))
    with pytest.raises(InvalidValueError, match="archive: has another compression than KMZ"):
        read_area(write("a.kmz", packed.getvalue()))


SEEDS = {
    "a.kml": kml(POLYGON).encode(),
    "a.kmz": pack(("doc.kml", kml(POLYGON))),
    "a.gpx": (GPX % "<rte><rtept lat='3' lon='2'/><rtept lat='1' lon='2'/></rte>").encode(),
    "a.plan": json.dumps(plan([SURVEY, simple(16, 50.0, 36.4)])).encode(),
    "a.json": json.dumps({"type": "Polygon", "coordinates": [TRIANGLE, HOLE]}).encode(),
}


@settings(deadline=None)
@given(
    name=st.sampled_from(sorted(SEEDS)),
    edits=st.lists(
        st.tuples(
            st.floats(0, 1),
            st.integers(0, 9),
            st.sampled_from([b"", b"nan", b"1e309", b"-181", b"[]", b"{}", b"null", b"<", b"\xff"])
            | st.binary(max_size=4),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_damaged_file_is_read_or_rejected(name: str, edits: list[tuple[float, int, bytes]]) -> None:
    content = SEEDS[name]
    for share, removed, added in edits:
        at = int(share * len(content))
        content = content[:at] + added + content[at + removed :]
    with suppress(InvalidValueError):
        parse_area(content, name=name)


def test_million_vertices_are_rejected(write: Write) -> None:
    vertices = ",".join(f"[{n % 360 - 180},{n % 7}]" for n in range(450_000))
    text = f'{{"type": "LineString", "coordinates": [{vertices}]}}'
    with pytest.raises(InvalidValueError, match=r"^a.json: file: is larger than .*simplify it"):
        read_area(write("a.json", text))
    track = "".join(f"<rtept lat='{n % 7}' lon='{n % 9}'/>" for n in range(210_000))
    with pytest.raises(InvalidValueError, match=r"^a.gpx: tracks and routes: the file has"):
        read_area(write("a.gpx", GPX % f"<rte>{track}</rte>"))


def test_ambiguous_spaces_are_read_in_linear_time(write: Write) -> None:
    spaces = kml(f"<LineString><coordinates>{' ' * 8_000_000}1</coordinates></LineString>")
    with pytest.raises(InvalidValueError, match="LineString 1: is not a longitude"):
        read_area(write("a.kml", spaces))


def test_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_area(tmp_path / "none.kml")
