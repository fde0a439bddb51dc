"""How the verdict on an area is shown: a map and a table for people, GeoJSON for maps."""

from itertools import pairwise
from typing import Any

import pytest
from support import contracts
from support.operator import run_in_process
from support.readiness_env import ACROSS, ACROSS_BOX, AREA, BOX, TILES, VERIFY, ReadinessEnv

from tileferry.domain.tiles import TileCoverage

# For people


def test_map_and_table_are_readable_on_ascii_terminal(readiness_env: ReadinessEnv) -> None:
    coarse = [tile for tile in TILES if tile.zoom == 13]
    hole, stale = coarse[0], coarse[1]
    readiness_env.store_tiles((tile for tile in TILES if tile != hole), days={stale: 200})
    readiness_env.damage_tile(coarse[2])
    ran = readiness_env.operator.run(*VERIFY, PYTHONIOENCODING="ascii", COLUMNS="80")
    assert ran.code == 3
    assert ran.out.isascii()
    assert "?" not in ran.out
    assert all(len(line) <= 80 for line in ran.out.splitlines() if "tileferry download" not in line)
    (part,) = [part for part in AREA.ranges if part.zoom == 13]
    width, height = part.x_max - part.x_min + 1, part.y_max - part.y_min + 1
    lines = ran.out.splitlines()
    top = lines.index("Zoom 13, north up") + 1
    drawn = [line.strip() for line in lines[top : top + height]]
    assert (
        drawn
        == [first + "##" * (width - 1) for first in ("..", "SS", "XX", *["##"] * height)][:height]
    )
    assert "NO-GO" in ran.out
    for reason in ("1 tile not in the cache, 0 allowed", "1 tile too old for the sector"):
        assert reason in ran.out


def test_large_area_map_is_scaled_down(readiness_env: ReadinessEnv) -> None:
    verify = ("cache", "verify", f"--bbox={BOX}", "--zoom", "18")
    ran = readiness_env.operator.run_in_process(*verify, COLUMNS="60")
    assert ran.code == 3
    assert "tiles; the worst one is shown" in ran.out
    lines = [line for line in ran.out.splitlines() if set(line.strip()) == {"·"}]
    assert 5 <= len(lines) <= 16
    assert len(lines[0]) <= 60


# GeoJSON


def check_features(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Hold a FeatureCollection to RFC 7946, and return its features."""
    assert body["type"] == "FeatureCollection"
    for feature in body["features"]:
        assert feature["type"] == "Feature"
        assert feature["geometry"]["type"] == "Polygon"
        (ring,) = feature["geometry"]["coordinates"]
        assert len(ring) == 5
        assert ring[0] == ring[-1]
        twice_the_area = sum(x1 * y2 - x2 * y1 for (x1, y1), (x2, y2) in pairwise(ring))
        assert twice_the_area > 0, "an outer ring goes against the clock"
        longitudes, latitudes = zip(*ring, strict=True)
        assert -180 <= min(longitudes) < max(longitudes) <= 180
        assert -86 <= min(latitudes) < max(latitudes) <= 86
        assert max(longitudes) - min(longitudes) < 180, "nothing goes round the world"
        assert feature["bbox"] == [
            min(longitudes),
            min(latitudes),
            max(longitudes),
            max(latitudes),
        ]
    found: list[dict[str, Any]] = body["features"]
    return found


def test_flaws_are_written_as_geojson(readiness_env: ReadinessEnv) -> None:
    stale = TILES[-1]
    readiness_env.store_tiles((tile for tile in TILES if tile.zoom == 13), days={stale: 200})
    ran = run_in_process(*VERIFY, "--geojson", "flaws.geojson", "--json")
    assert (ran.code, ran.json["verdict"]) == (3, "NO-GO")
    body = contracts.parse_output(
        (readiness_env.operator.home / "flaws.geojson").read_text(encoding="utf-8")
    )
    assert body["bbox"] == [36.1, 49.9, 36.4, 50.1]
    drawn = {
        (feature["properties"]["kind"], feature["properties"]["zoom"]): feature
        for feature in check_features(body)
    }
    (whole,) = [part for part in AREA.ranges if part.zoom == 11]
    assert set(drawn) == {("hole", 11), ("stale", 13)}
    assert drawn["hole", 11]["properties"]["tiles"] == whole.count
    bounds = whole.bounds
    assert drawn["hole", 11]["bbox"] == pytest.approx(
        [bounds.west, bounds.south, bounds.east, bounds.north], abs=1e-8
    )


def test_geojson_is_only_output_on_stdout(readiness_env: ReadinessEnv) -> None:
    readiness_env.store_tiles(TILES[1:])
    ran = run_in_process(*VERIFY, "--geojson", "-")
    assert ran.code == 3
    (feature,) = check_features(ran.json)
    assert feature["properties"]["kind"] == "hole"
    assert "NO-GO" in ran.err


def test_unwritable_geojson_file_is_reported(readiness_env: ReadinessEnv) -> None:
    readiness_env.store_tiles(TILES[1:])
    ran = run_in_process(*VERIFY, "--geojson", "/dev/full")
    assert (ran.code, ran.out) == (7, "")
    assert "cannot write /dev/full" in ran.err


def test_features_are_split_at_antimeridian(readiness_env: ReadinessEnv) -> None:
    tiles = list(ACROSS.tiles("satellite"))
    readiness_env.store_tiles(tile for tile in tiles if tile.y != tiles[0].y)
    verify = ("cache", "verify", f"--bbox={ACROSS_BOX}", "--zoom", "8")
    ran = run_in_process(*verify, "--geojson", "-")
    found = check_features(ran.json)
    assert ran.json["bbox"] == [178.0, -2.0, -178.0, 2.0]
    assert sorted(feature["bbox"][0] > 0 for feature in found) == [False, True]
    assert max(feature["bbox"][2] for feature in found) == 180.0
    body = run_in_process(*verify, "--json").json
    assert len(body["mend"]) == 2
    assert body["total"]["holes"] == sum(feature["properties"]["tiles"] for feature in found)


def test_feature_count_is_bounded(readiness_env: ReadinessEnv) -> None:
    area = TileCoverage(bbox=AREA.bbox, zoom_levels=[16])
    readiness_env.store_tiles(tile for tile in area.tiles("satellite") if (tile.x + tile.y) % 2)
    verify = ("cache", "verify", f"--bbox={BOX}", "--zoom", "16", "--quick")
    found = check_features(run_in_process(*verify, "--geojson", "-").json)
    holes = run_in_process(*verify, "--json").json["total"]["holes"]
    assert holes > 1_000 >= len(found)
    assert sum(feature["properties"]["tiles"] for feature in found) == holes
