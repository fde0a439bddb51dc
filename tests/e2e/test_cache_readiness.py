"""``tileferry cache verify --bbox``, run as an operator runs it: a real cache, a real database."""

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from support.operator import run_in_process
from support.provider import API_KEY, serve_provider
from support.readiness_env import AREA, BOX, TILES, VERIFY, ReadinessEnv, count_flaws

from tileferry.adapters.filesystem import FileCacheLock
from tileferry.adapters.postgres import Database
from tileferry.domain.tiles import BBox, TileCoverage

# The verdict


def test_complete_area_is_go(readiness_env: ReadinessEnv) -> None:
    readiness_env.store_tiles(TILES)
    ran = run_in_process(*VERIFY, "--flight", "F7", "--json")
    assert (ran.code, ran.err) == (0, "")
    body = ran.json
    assert body["schema"] == "tileferry.cache.readiness.v1"
    assert (body["verdict"], body["go"], body["reasons"], body["mend"]) == ("GO", True, [], [])
    assert (body["flight_id"], body["source"]) == ("F7", "satellite")
    assert body["sector_class"] == "active_conflict"
    assert body["bytes_checked"] is True
    assert [line["zoom"] for line in body["zooms"]] == [11, 13]
    assert body["total"]["present"] == body["total"]["tiles"] == AREA.count
    assert count_flaws(ran) == {}
    shown = run_in_process(*VERIFY, "--flight", "F7")
    assert shown.code == 0
    assert "GO for flight F7" in shown.out
    assert "NO-GO" not in shown.out


def test_holes_are_no_go_unless_allowed(readiness_env: ReadinessEnv) -> None:
    readiness_env.store_tiles(TILES[:-3])
    ran = run_in_process(*VERIFY, "--json")
    assert (ran.code, ran.json["verdict"], count_flaws(ran)) == (3, "NO-GO", {"holes": 3})
    allowed = run_in_process(*VERIFY, "--json", "--max-holes", "3")
    assert (allowed.code, allowed.json["go"]) == (0, True)
    assert allowed.json["warnings"] == ["3 tiles not in the cache, 3 allowed"]


def test_repair_command_covers_flawed_tiles(readiness_env: ReadinessEnv) -> None:
    missing = TILES[-3:]
    readiness_env.store_tiles(TILES[:-3])
    (line,) = run_in_process(*VERIFY, "--json", "--flight", "F7").json["mend"]
    command = shlex.split(line)
    assert command[:2] == ["tileferry", "download"]
    assert command[-1] == "--repair"  # or a box that was mended before would be left as it is
    options = dict(zip(command[3:-1:2], command[4:-1:2], strict=True))
    assert options == {"--zoom": "13", "--flight": "F7", "--sector": "active_conflict"}
    box = BBox.parse(command[2].removeprefix("--bbox="))
    assert list(TileCoverage(bbox=box, zoom_levels=[13]).tiles("satellite")) == missing
    assert line in run_in_process(*VERIFY, "--flight", "F7").out.splitlines()


def test_repair_commands_make_area_ready(
    readiness_env: ReadinessEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    recent = datetime.now(UTC) - timedelta(days=30)
    with serve_provider(produced_at=recent) as provider:
        monkeypatch.setenv("TILEFERRY_C11_SATELLITE_PROVIDER_URL", provider.url)
        monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY", API_KEY)
        monkeypatch.setenv("TILEFERRY_LOG_FILE", str(readiness_env.operator.home / "log.jsonl"))
        download = ("download", *VERIFY[2:], "--flight", "F7", "--sector", "active_conflict")
        assert run_in_process(*download).code == 0
        assert run_in_process(*VERIFY).code == 0
        for _ in range(2):  # the second time, the same mend was carried out before
            with readiness_env.database.transaction() as connection:
                connection.execute(text("DELETE FROM tiles WHERE zoom = 13 AND x = 4917"))
                connection.execute(
                    text("UPDATE tiles SET produced_at = now() - interval '1 year' WHERE zoom = 11")
                )
            broken = run_in_process(*VERIFY, "--flight", "F7", "--json")
            assert broken.code == 3
            assert set(count_flaws(broken)) == {"holes", "stale"}
            for line in broken.json["mend"]:
                assert run_in_process(*shlex.split(line)[1:]).code == 0
            assert run_in_process(*VERIFY).code == 0


def test_other_source_gets_no_repair_command(readiness_env: ReadinessEnv) -> None:
    readiness_env.store_tiles(TILES)
    ran = run_in_process(*VERIFY, "--json", "--source", "other")
    assert (ran.code, ran.json["source"], ran.json["mend"]) == (3, "other", [])
    assert count_flaws(ran) == {"holes": AREA.count}


def test_sector_and_flight_date_determine_freshness(readiness_env: ReadinessEnv) -> None:
    readiness_env.store_tiles(TILES, days={TILES[0]: 170, TILES[1]: 170, TILES[2]: 400})
    today = run_in_process(*VERIFY, "--json")
    assert (today.code, count_flaws(today)) == (3, {"stale": 1})
    rear = run_in_process(*VERIFY, "--json", "--sector", "stable_rear")
    assert (rear.code, count_flaws(rear)) == (0, {"downgraded": 1})
    assert rear.json["warnings"] == ["1 tile downgraded for age"]
    day = (datetime.now(UTC) + timedelta(days=20)).date().isoformat()
    later = run_in_process(*VERIFY, "--json", "--on", day)
    assert (later.code, count_flaws(later)) == (3, {"stale": 3})
    assert later.json["flown_at"].startswith(f"{day}T23:59:59")
    worst = later.json["examples"][0]
    assert worst["tile_id"] == str(TILES[2])
    assert "days old, 183 allowed" in worst["detail"]


def test_current_resolution_limit_is_applied(
    readiness_env: ReadinessEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    readiness_env.store_tiles(TILES)
    monkeypatch.setenv("TILEFERRY_C11_MIN_RESOLUTION_M_PER_PX", "0.7")
    ran = run_in_process(*VERIFY, "--json")
    assert (ran.code, count_flaws(ran)) == (3, {"sub_spec": AREA.count})


def test_damaged_tile_is_detected_unless_quick(readiness_env: ReadinessEnv) -> None:
    readiness_env.store_tiles(TILES)
    readiness_env.damage_tile(TILES[4])
    ran = run_in_process(*VERIFY, "--json")
    assert (ran.code, count_flaws(ran)) == (3, {"damaged": 1})
    assert ran.json["examples"][0]["tile_id"] == str(TILES[4])
    quick = run_in_process(*VERIFY, "--json", "--quick")
    assert (quick.code, quick.json["bytes_checked"]) == (0, False)
    assert quick.json["total"]["damaged"] is None
    assert "tile data was not checked" in run_in_process(*VERIFY, "--quick").out


def test_area_is_verified_while_another_process_holds_the_cache(
    readiness_env: ReadinessEnv,
) -> None:
    readiness_env.store_tiles(TILES)
    lock = FileCacheLock(root=readiness_env.root)
    lock.acquire()
    try:
        assert run_in_process(*VERIFY).code == 0
    finally:
        lock.release()


def test_verify_changes_nothing(readiness_env: ReadinessEnv) -> None:
    readiness_env.store_tiles(TILES[1:])
    before = fetch_tile_rows(readiness_env.database)
    run_in_process(*VERIFY)
    assert fetch_tile_rows(readiness_env.database) == before


def fetch_tile_rows(database: Database) -> Sequence[Any]:
    with database.read_connection() as connection:
        return connection.execute(text("SELECT * FROM tiles ORDER BY source, zoom, x, y")).all()


# Usage


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--bbox", BOX], "add --zoom"),
        (["--zoom", "15"], "add --bbox, --area, --route or --flight"),
        (["--quick"], "add --bbox, --area, --route or --flight"),
        (["--max-holes", "0"], "add --bbox, --area, --route or --flight"),
        (["--flight", "F7", "--zoom", "15"], "have their own zoom levels"),
        (["--area", "nowhere", "--zoom", "15"], "--area: is neither a name"),
        (["--bbox", "1,2,3", "--zoom", "15"], "is not of the form W,S,E,N"),
        (["--bbox", BOX, "--zoom", "15,x"], "is not a list of zoom levels"),
        (["--bbox", BOX, "--zoom", "16-14"], "is not a list of zoom levels"),
        (["--bbox", BOX, "--zoom", "15,22"], "must be a whole number from 0 to 21"),
        (["--bbox", BOX, "--zoom", "15", "--max-holes", "-1"], "max-holes"),
        (["--bbox", BOX, "--zoom", "15", "--sector", "front"], "sector"),
        (["--bbox", BOX, "--zoom", "15", "--on", "tomorrow"], "--on: is not a date"),
        (["--bbox", BOX, "--zoom", "15", "--on", "20991116"], "--on: is not a date"),
        (["--bbox", BOX, "--zoom", "15", "--flight", "../x"], "--flight: is not a plain name"),
        (
            ["--bbox", BOX, "--zoom", "15", "--source", "Sat/1"],
            "--source: is not a plain lower-case",
        ),
        (["--bbox", BOX, "--zoom", "15", "--json", "--geojson", "-"], "cannot both go to stdout"),
        (["--bbox", BOX, "--zoom", "15", "--geojson", "no/where"], "does not exist"),
    ],
)
def test_invalid_options_are_rejected_before_reading(
    arguments: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEFERRY_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    monkeypatch.setenv("COLUMNS", "200")
    ran = run_in_process("cache", "verify", *arguments)
    assert ran.code == 2
    assert ("tileferry.error.v1" in ran.out) == bool(ran.out) == ("--json" in arguments)
    assert problem in ran.err


@pytest.mark.usefixtures("readiness_env")
def test_past_day_and_huge_area_are_rejected() -> None:
    past = run_in_process("cache", "verify", "--bbox", BOX, "--zoom", "15", "--on", "2020-01-01")
    assert (past.code, "--on: is over" in past.err) == (2, True)
    huge = run_in_process("cache", "verify", "--bbox=-180,-80,180,80", "--zoom", "18")
    assert (huge.code, "has more than 50,000,000 tiles" in huge.err) == (2, True)


def test_area_can_be_given_by_name(readiness_env: ReadinessEnv) -> None:
    readiness_env.operator.write_config(f'[tileferry.areas]\nkharkiv = "{BOX}"\n')
    ran = run_in_process("cache", "verify", "--area", "kharkiv", "--zoom", "11", "--json")
    assert (ran.code, ran.json["bbox"]) == (3, [36.1, 49.9, 36.4, 50.1])


def test_zoom_levels_can_be_given_as_range(readiness_env: ReadinessEnv) -> None:
    readiness_env.store_tiles(TILES)
    ran = run_in_process("cache", "verify", f"--bbox={BOX}", "--zoom", "13,11-12, 13", "--json")
    assert ran.json["zoom_levels"] == [11, 12, 13]
