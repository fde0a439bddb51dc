"""``tileferry cache verify --bbox``, run as an operator runs it: a real cache, a real database."""

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from support.operator import run_here
from support.provider import API_KEY, running_provider
from support.readiness_site import AREA, BOX, TILES, VERIFY, Site, flawed

from tileferry.adapters.filesystem import FileCacheLock
from tileferry.adapters.postgres import Database
from tileferry.domain.tiles import BBox, TileCoverage

# The verdict


def test_a_whole_area_is_go(site: Site) -> None:
    site.stores(TILES)
    ran = run_here(*VERIFY, "--flight", "F7", "--json")
    assert (ran.code, ran.err) == (0, "")
    body = ran.json
    assert body["schema"] == "tileferry.cache.readiness.v1"
    assert (body["verdict"], body["go"], body["reasons"], body["mend"]) == ("GO", True, [], [])
    assert (body["flight_id"], body["source"]) == ("F7", "satellite")
    assert body["sector_class"] == "active_conflict"
    assert body["bytes_checked"] is True
    assert [line["zoom"] for line in body["zooms"]] == [11, 13]
    assert body["total"]["present"] == body["total"]["tiles"] == AREA.count
    assert flawed(ran) == {}
    shown = run_here(*VERIFY, "--flight", "F7")
    assert shown.code == 0
    assert "GO for flight F7" in shown.out
    assert "NO-GO" not in shown.out


def test_holes_are_no_go_unless_they_are_allowed(site: Site) -> None:
    site.stores(TILES[:-3])
    ran = run_here(*VERIFY, "--json")
    assert (ran.code, ran.json["verdict"], flawed(ran)) == (3, "NO-GO", {"holes": 3})
    allowed = run_here(*VERIFY, "--json", "--max-holes", "3")
    assert (allowed.code, allowed.json["go"]) == (0, True)
    assert allowed.json["warnings"] == ["3 tiles not in the cache, 3 allowed"]


def test_what_it_says_to_run_covers_what_is_wrong_and_is_another_request(site: Site) -> None:
    missing = TILES[-3:]
    site.stores(TILES[:-3])
    (line,) = run_here(*VERIFY, "--json", "--flight", "F7").json["mend"]
    command = shlex.split(line)
    assert command[:2] == ["tileferry", "download"]
    assert command[-1] == "--again"  # or a box that was mended before would be left as it is
    options = dict(zip(command[3:-1:2], command[4:-1:2], strict=True))
    assert options == {"--zoom": "13", "--flight": "F7", "--sector": "active_conflict"}
    box = BBox.parse(command[2].removeprefix("--bbox="))
    assert list(TileCoverage(bbox=box, zoom_levels=[13]).tiles("satellite")) == missing
    assert line in run_here(*VERIFY, "--flight", "F7").out.splitlines()


def test_what_it_says_to_run_does_mend_the_area(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    recent = datetime.now(UTC) - timedelta(days=30)
    with running_provider(produced_at=recent) as provider:
        monkeypatch.setenv("TILEFERRY_C11_SATELLITE_PROVIDER_URL", provider.url)
        monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY", API_KEY)
        monkeypatch.setenv("TILEFERRY_LOG_FILE", str(site.operator.home / "log.jsonl"))
        download = ("download", *VERIFY[2:], "--flight", "F7", "--sector", "active_conflict")
        assert run_here(*download).code == 0
        assert run_here(*VERIFY).code == 0
        for _ in range(2):  # the second time, the same mend was carried out before
            with site.database.transaction() as connection:
                connection.execute(text("DELETE FROM tiles WHERE zoom = 13 AND x = 4917"))
                connection.execute(
                    text("UPDATE tiles SET produced_at = now() - interval '1 year' WHERE zoom = 11")
                )
            broken = run_here(*VERIFY, "--flight", "F7", "--json")
            assert broken.code == 3
            assert set(flawed(broken)) == {"holes", "stale"}
            for line in broken.json["mend"]:
                assert run_here(*shlex.split(line)[1:]).code == 0
            assert run_here(*VERIFY).code == 0


def test_a_source_that_download_does_not_fetch_has_no_command_to_run(site: Site) -> None:
    site.stores(TILES)
    ran = run_here(*VERIFY, "--json", "--source", "other")
    assert (ran.code, ran.json["source"], ran.json["mend"]) == (3, "other", [])
    assert flawed(ran) == {"holes": AREA.count}


def test_the_sector_and_the_day_of_the_flight_decide_on_age(site: Site) -> None:
    site.stores(TILES, days={TILES[0]: 170, TILES[1]: 170, TILES[2]: 400})
    today = run_here(*VERIFY, "--json")
    assert (today.code, flawed(today)) == (3, {"stale": 1})
    rear = run_here(*VERIFY, "--json", "--sector", "stable_rear")
    assert (rear.code, flawed(rear)) == (0, {"downgraded": 1})
    assert rear.json["warnings"] == ["1 tile downgraded for age"]
    day = (datetime.now(UTC) + timedelta(days=20)).date().isoformat()
    later = run_here(*VERIFY, "--json", "--on", day)
    assert (later.code, flawed(later)) == (3, {"stale": 3})
    assert later.json["flown_at"].startswith(f"{day}T23:59:59")
    worst = later.json["examples"][0]
    assert worst["tile_id"] == str(TILES[2])
    assert "days old, 183 allowed" in worst["detail"]


def test_the_resolution_that_is_accepted_is_the_one_in_force_now(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.stores(TILES)
    monkeypatch.setenv("TILEFERRY_C11_MIN_RESOLUTION_M_PER_PX", "0.7")
    ran = run_here(*VERIFY, "--json")
    assert (ran.code, flawed(ran)) == (3, {"sub_spec": AREA.count})


def test_a_damaged_tile_is_found_unless_nobody_looks(site: Site) -> None:
    site.stores(TILES)
    site.damages(TILES[4])
    ran = run_here(*VERIFY, "--json")
    assert (ran.code, flawed(ran)) == (3, {"damaged": 1})
    assert ran.json["examples"][0]["tile_id"] == str(TILES[4])
    quick = run_here(*VERIFY, "--json", "--quick")
    assert (quick.code, quick.json["bytes_checked"]) == (0, False)
    assert quick.json["total"]["damaged"] is None
    assert "bytes were not checked" in run_here(*VERIFY, "--quick").out


def test_a_cache_in_use_is_judged_only_by_its_rows(site: Site) -> None:
    site.stores(TILES)
    lock = FileCacheLock(root=site.root)
    lock.acquire()
    try:
        refused, quick = run_here(*VERIFY), run_here(*VERIFY, "--quick")
    finally:
        lock.release()
    assert (refused.code, refused.out) == (4, "")
    assert quick.code == 0
    assert run_here(*VERIFY).code == 0, "the lock was not given back"


def test_it_changes_nothing(site: Site) -> None:
    site.stores(TILES[1:])
    before = _rows(site.database)
    run_here(*VERIFY)
    assert _rows(site.database) == before


def _rows(database: Database) -> Sequence[Any]:
    with database.reading() as connection:
        return connection.execute(text("SELECT * FROM tiles ORDER BY source, zoom, x, y")).all()


# Usage


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--bbox", BOX], "give --zoom as well"),
        (["--zoom", "15"], "give --bbox or --area as well"),
        (["--quick"], "give --bbox or --area as well"),
        (["--max-holes", "0"], "give --bbox or --area as well"),
        (["--bbox", BOX, "--area", "here", "--zoom", "15"], "either as --bbox or as --area"),
        (["--area", "nowhere", "--zoom", "15"], "--area: is neither a name"),
        (["--bbox", "1,2,3", "--zoom", "15"], "is not of the form W,S,E,N"),
        (["--bbox", BOX, "--zoom", "15,x"], "is not a list of zoom levels"),
        (["--bbox", BOX, "--zoom", "16-14"], "is not a list of zoom levels"),
        (["--bbox", BOX, "--zoom", "15,22"], "must be a whole number from 0 to 21"),
        (["--bbox=-180,-80,180,80", "--zoom", "18"], "has more than 50,000,000 tiles"),
        (["--bbox", BOX, "--zoom", "15", "--max-holes", "-1"], "max-holes"),
        (["--bbox", BOX, "--zoom", "15", "--sector", "front"], "sector"),
        (["--bbox", BOX, "--zoom", "15", "--on", "tomorrow"], "--on: is not a date"),
        (["--bbox", BOX, "--zoom", "15", "--on", "20991116"], "--on: is not a date"),
        (["--bbox", BOX, "--zoom", "15", "--on", "2020-01-01"], "--on: is over"),
        (["--bbox", BOX, "--zoom", "15", "--flight", "../x"], "--flight: is not a plain name"),
        (
            ["--bbox", BOX, "--zoom", "15", "--source", "Sat/1"],
            "--source: is not a plain lower-case",
        ),
        (["--bbox", BOX, "--zoom", "15", "--json", "--geojson", "-"], "cannot both go to stdout"),
        (["--bbox", BOX, "--zoom", "15", "--geojson", "no/where"], "does not exist"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_read(
    arguments: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEFERRY_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    monkeypatch.setenv("COLUMNS", "200")
    ran = run_here("cache", "verify", *arguments)
    assert ran.code == 2
    assert ("tileferry.error.v1" in ran.out) == bool(ran.out) == ("--json" in arguments)
    assert problem in ran.err


def test_an_area_may_be_given_by_its_name(site: Site) -> None:
    site.operator.configures(f'[tileferry.areas]\nkharkiv = "{BOX}"\n')
    ran = run_here("cache", "verify", "--area", "kharkiv", "--zoom", "11", "--json")
    assert (ran.code, ran.json["bbox"]) == (3, [36.1, 49.9, 36.4, 50.1])


def test_zoom_levels_may_be_given_from_to(site: Site) -> None:
    site.stores(TILES)
    ran = run_here("cache", "verify", f"--bbox={BOX}", "--zoom", "13,11-12, 13", "--json")
    assert ran.json["zoom_levels"] == [11, 12, 13]
