"""Polygons and routes from files, through every command that takes an area, over real HTTP."""

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from support.documented_commands import write_area_files
from support.operator import CommandResult, Operator, enter_environment, run_in_process
from support.provider import API_KEY, PRODUCED_AT, RunningProvider

from tileferry.adapters.geodata.area_files import read_area, read_corridor
from tileferry.domain.tiles import BBox, Shape, TileCoverage
from tileferry.domain.tiles.shape import shape_to_geojson
from tileferry.entrypoints.embedding import Tileferry

AREAS_PAGE = (Path(__file__).parents[2] / "_docs/areas.md").read_text(encoding="utf-8")
TRIANGLE = [[36.1, 49.9], [36.4, 49.9], [36.2, 50.1], [36.1, 49.9]]
ROUTE = [[36.1, 49.9], [36.3, 50.0]]
ZOOM = "12,13"
FOR_FLIGHT = ("--flight", "F7", "--sector", "stable_rear")
ROUTED = ("--route", "route.gpx", "--detail", "14:300m,12:2km")


@pytest.fixture
def home(
    tmp_path: Path,
    database_url: str,
    reference_provider: RunningProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    settings = {
        "TILEFERRY_C11_SATELLITE_PROVIDER_URL": reference_provider.url,
        "TILEFERRY_C11_SERVICE_API_KEY": API_KEY,
        "TILEFERRY_C11_CACHE_ROOT": str(tmp_path / "cache"),
        "TILEFERRY_PARTITIONS_RAW_ROOT": str(tmp_path / "raw"),
    }
    operator = Operator(tmp_path, database_url)
    enter_environment(monkeypatch, tmp_path, operator.environment(**settings))
    field = {"type": "Polygon", "coordinates": [TRIANGLE]}
    (tmp_path / "field.geojson").write_text(json.dumps(field), encoding="utf-8")
    points = "".join(f"<rtept lat='{lat}' lon='{lon}'/>" for lon, lat in ROUTE)
    route = f"<gpx version='1.1'><rte>{points}</rte></gpx>"
    (tmp_path / "route.gpx").write_text(route, encoding="utf-8")
    return tmp_path


def run(*arguments: str, code: int = 0) -> CommandResult:
    ran = run_in_process(*arguments)
    assert ran.code == code, ran.err
    return ran


def count_tiles(place: BBox | Shape, *zooms: int) -> int:
    return TileCoverage.from_place(place, zooms).count


def test_polygon_through_every_command(home: Path) -> None:
    field = read_area(home / "field.geojson")
    tiles = count_tiles(field, 12, 13)
    area = ("--area", "field.geojson", "--zoom", ZOOM)
    assert isinstance(field, Shape)
    assert tiles < count_tiles(field.bbox, 12, 13) * 0.8

    found = run("coverage", *area, "--json").json
    assert sum(line["tiles"] for line in found["zooms"]) == tiles
    shown = run("coverage", *area).out
    assert f"of {count_tiles(field, 13)}" in shown
    assert f"Imagery in {field.bbox} (its shape only)" in " ".join(shown.split())
    plan = run("plan", *area, *FOR_FLIGHT, "--rate", "1M", "--json").json
    assert plan["tiles_to_fetch"] == tiles

    first = run("download", *area, *FOR_FLIGHT, "--json")
    assert (first.json["outcome"], first.json["tiles_downloaded"]) == ("success", tiles)
    assert f"field.geojson: shape in 49.9°N to 50.1°N, 36.1°E to 36.4°E; {tiles} tiles" in first.err
    again = run("download", *area, *FOR_FLIGHT, "--json").json
    assert again["outcome"] == "idempotent_no_op"
    box = run("plan", f"--bbox={field.bbox}", "--zoom", ZOOM, *FOR_FLIGHT, "--rate", "1M", "--json")
    assert box.json["tiles_stored"] == tiles

    for judged in (
        run("cache", "verify", *area, "--sector", "stable_rear", "--json"),
        run("cache", "verify", "--flight", "F7", "--json"),
    ):
        assert (judged.json["verdict"], judged.json["total"]["tiles"]) == ("GO", tiles)
    shown = run("flight", "show", "F7", "--json").json
    assert [item["shape"] for item in shown["areas"]] == [shape_to_geojson(field)]
    assert shown["tiles"] == tiles

    exported = run("cache", "export", "field.mbtiles", *area, "--json").json
    assert exported["tiles_exported"] == tiles
    with sqlite3.connect(home / "field.mbtiles") as archive:
        assert archive.execute("SELECT count(*) FROM tiles").fetchone() == (tiles,)
    archive.close()
    everything = run("cache", "export", "all.pmtiles", "--area", "field.geojson", "--json").json
    assert everything["tiles_exported"] == tiles


def test_route_with_detail_is_two_areas_of_the_flight(home: Path) -> None:
    near = read_corridor(home / "route.gpx", buffer_m=300)
    far = read_corridor(home / "route.gpx", buffer_m=2_000)
    tiles = count_tiles(near, 14) + count_tiles(far, 12)
    report = run("download", *ROUTED, *FOR_FLIGHT, "--json").json
    assert report["tiles_downloaded"] == tiles
    assert [one["tiles_downloaded"] for one in report["areas"]] == [
        count_tiles(near, 14),
        count_tiles(far, 12),
    ]
    verdict = run("cache", "verify", *ROUTED, "--sector", "stable_rear", "--json").json
    assert (verdict["verdict"], verdict["total"]["tiles"]) == ("GO", tiles)
    picture = run("cache", "verify", "--flight", "F7").out
    assert "GO" in picture
    assert f"Area {near.bbox} (its shape only), source satellite" in " ".join(picture.split())
    wider = ("--route", "route.gpx", "--buffer", "12km", "--zoom", "12")
    missing = run("cache", "verify", *wider, "--flight", "F7", code=3)
    assert "tileferry download --bbox=" in missing.out + missing.err


def test_queued_and_backfilled_areas_keep_their_shape(home: Path) -> None:
    area = ("--area", "field.geojson", "--zoom", "12")
    tiles = count_tiles(read_area(home / "field.geojson"), 12)
    run("runs", "submit", "download", *area, *FOR_FLIGHT)
    day = PRODUCED_AT.date().isoformat()
    dates = ("--customer-id", "acme", "--query", "fields", "--from", day, "--to", day)
    plan = ("backfill", "plan", *dates, "--sector", "stable_rear", "--out", "one.plan")
    run(*plan, *area)
    applied = run("backfill", "apply", "one.plan", "--reason", "first acquisition")
    assert applied.code == 0
    worked = run("worker", "--until-idle", "--json")
    assert worked.code == 0
    assert run("flight", "show", "F7", "--json").json["tiles"] == tiles
    (manifest,) = (home / "raw").rglob("manifest.jsonl")
    lines = manifest.read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["area"]["shape"] == str(read_area(home / "field.geojson"))
    assert len(lines) == tiles + 2
    run(*plan[:-1], "two.plan", *ROUTED, code=2)


def test_embedding_programs_pass_shapes_and_files(home: Path) -> None:
    field = read_area(home / "field.geojson")
    corridor = read_corridor(home / "route.gpx", buffer_m=300)
    with Tileferry() as ferry:
        listed = ferry.coverage(bbox=home / "field.geojson", zoom_levels=[12])
        assert len(listed) == count_tiles(field, 12)
        report = ferry.download(
            bbox=[home / "field.geojson", corridor],
            zoom_levels=[12],
            flight="F8",
            sector="stable_rear",
        )
        assert report.tiles_requested == count_tiles(field, 12) + count_tiles(corridor, 12)
        assert ferry.verify(bbox=corridor, zoom_levels=[12], sector="stable_rear").verdict.is_go
        exported = ferry.export(home / "tree", bbox=field)
        assert exported.tiles_exported == count_tiles(field, 12)
        run_ = ferry.submit_download(
            bbox=corridor, zoom_levels=[13], flight="F8", sector="stable_rear"
        )
        assert run_.payload["shape"] == str(corridor)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        (
            "bomb.kml",
            "<!DOCTYPE kml [<!ENTITY a 'a'><!ENTITY b '&a;&a;'>]><kml>&b;</kml>",
            "bomb.kml: XML: declares a document type or entities",
        ),
        (
            "bow-tie.geojson",
            '{"type": "Polygon", "coordinates": [[[0,0],[2,2],[2,0],[0,2],[0,0]]]}',
            "bow-tie.geojson: coordinates: is not a valid polygon: self-intersection at 1 1",
        ),
        ("note.txt", "hello", "note.txt: file: is not GeoJSON, KML, KMZ, GPX or a QGroundControl"),
    ],
)
def test_bad_file_ends_with_usage_error(home: Path, name: str, content: str, problem: str) -> None:
    (home / name).write_text(content, encoding="utf-8")
    ran = run("coverage", "--area", name, "--zoom", "12", code=2)
    assert problem in " ".join(ran.err.split())


def test_page_shows_messages_as_they_are(home: Path) -> None:
    bow_tie = [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]
    swapped = "36.2,136 36.3,136 36.2,137 36.2,136"
    ring = f"<LinearRing><coordinates>{swapped}</coordinates></LinearRing>"
    polygon = f"<Polygon><outerBoundaryIs>{ring}</outerBoundaryIs></Polygon>"
    drawn = {
        "field.geojson": json.dumps({"type": "Polygon", "coordinates": bow_tie}),
        "field.kml": f"<kml>{polygon}</kml>",
        "entities.kml": "<!DOCTYPE kml [<!ENTITY a 'a'>]><kml>&a;</kml>",
        "field.gpx": "<gpx version='1.1'><wpt lat='1' lon='2'/></gpx>",
    }
    table = AREAS_PAGE.partition("<!-- error -->")[2].partition("<!-- end -->")[0]
    shown = re.findall(r"\| `(.*)` \|", table)
    assert len(shown) == len(drawn)
    for (name, content), message in zip(drawn.items(), shown, strict=True):
        (home / name).write_text(content, encoding="utf-8")
        ran = run("coverage", "--area", name, "--zoom", "12", code=2)
        assert message.replace("field.kml: XML", "entities.kml: XML") in " ".join(ran.err.split())


def test_example_for_python_works(home: Path) -> None:
    write_area_files(home)
    (example,) = re.findall(r"```python\n(.*?)```", AREAS_PAGE, re.DOTALL)
    exec(compile(example, "areas.md", "exec"), {})  # noqa: S102  # our own page
    shown = run("flight", "show", "F9", "--json").json
    assert shown["areas"][0]["shape"]["geometries"][0]["type"] == "MultiPolygon"


def test_shape_of_a_flight_needs_no_shapely(home: Path) -> None:
    run("download", "--area", "field.geojson", "--zoom", "12", *FOR_FLIGHT)
    script = (
        "import sys; from tileferry.entrypoints.cli.main import main\n"
        "try: main(['cache', 'verify', '--flight', 'F7'])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'shapely', 'numpy', 'defusedxml', 'gpxpy'} & set(sys.modules)"
    )
    done = subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", script], cwd=home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "GO" in done.stdout


@pytest.mark.parametrize("width", ["60", "80", "120"])
@pytest.mark.parametrize(
    "command", ["download", "plan", "coverage", "cache verify", "cache export", "backfill plan"]
)
def test_help_names_the_options_at_every_width(
    command: str, width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    shown = run(*command.split(), "--help").out
    options = shown.partition("  Example")[0]  # examples are not wrapped: they are to be copied
    assert all(len(line) <= int(width) for line in options.splitlines())
    for option in ("--bbox", "--area", "--route", "--buffer", "--detail", "--zoom"):
        assert option in shown
    assert "such as 18:200m,16:2km" in " ".join(shown.split())
