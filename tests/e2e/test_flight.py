"""``tileferry flight``, and flights that share tiles, as an operator sees them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.download_operator import DownloadOperator
from support.operator import enter_environment, run_in_process
from support.scripted_provider import ScriptedProvider, tile_content

from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.domain.audit import StateChanged
from tileferry.domain.audit.events import event_from_bytes
from tileferry.domain.tiles import BBox, TileCoverage

ZOOM = 14
HERE = BBox(west=36.0, south=50.0, east=36.08, north=50.04)
NEXT = BBox(west=36.3, south=50.0, east=36.5, north=50.04)
"""Twice as large."""
SWAPPED = BBox(west=50.0, south=36.0, east=50.04, north=36.08)
TILES = {
    box: [*TileCoverage(bbox=box, zoom_levels=[ZOOM]).tiles("satellite")] for box in (HERE, NEXT)
}
SIZE = len(tile_content(TILES[HERE][0]))


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider([tile for tiles in TILES.values() for tile in tiles], by_area=True)


@pytest.fixture(autouse=True)
def _operator(
    tmp_path: Path, database_url: str, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    with provider.serve() as url:
        person = DownloadOperator(tmp_path, database_url, url)
        enter_environment(monkeypatch, tmp_path, person.environment)
        yield


def download(flight: str, *boxes: BBox, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    areas = [word for box in boxes for word in ("--bbox", str(box))]
    asked = ("--zoom", str(ZOOM), "--flight", flight, "--sector", "stable_rear")
    return ("download", *areas, *asked, *more)


def verify(flight: str) -> tuple[int, str]:
    ran = run_in_process("cache", "verify", "--flight", flight, "--json")
    return ran.code, ran.json["verdict"]


def test_invariant_40_pinned_flight_stays_go_when_others_download_here_and_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Room for either area, but not for both.
    monkeypatch.setenv(
        "TILEFERRY_C6_BUDGET_BYTES",
        str(max(len(TILES[NEXT]), 2 * len(TILES[HERE])) * SIZE + SIZE // 2),
    )
    assert run_in_process(*download("P1", HERE)).code == 0
    assert run_in_process("flight", "pin", "P1").code == 0
    assert run_in_process(*download("P2", HERE)).code == 0
    refused = run_in_process(*download("P3", NEXT))
    assert refused.code == 4
    assert "flight unpin" in refused.err
    assert verify("P1") == (0, "GO")
    assert run_in_process("flight", "unpin", "P1").code == 0
    assert run_in_process(*download("P3", NEXT)).code == 0
    assert verify("P1") == (3, "NO-GO")
    assert verify("P3") == (0, "GO")


def test_later_area_of_a_flight_does_not_evict_its_earlier_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TILEFERRY_C6_BUDGET_BYTES", str(len(TILES[HERE]) * SIZE + SIZE // 2))
    ran = run_in_process(*download("P1", HERE, NEXT), "--json")
    assert (ran.code, ran.json["error"]["type"]) == (4, "CacheBudgetExceededError")
    assert ran.json["tiles_downloaded"] == len(TILES[HERE])
    plan = run_in_process("plan", *download("P1", HERE, NEXT)[1:], "--rate", "1M", "--json")
    assert (plan.code, plan.json["fits"]) == (4, False)


def test_every_area_of_a_command_is_used(tmp_path: Path) -> None:
    asked = download("P1", HERE, NEXT)
    listed = run_in_process("coverage", *asked[1:7], "--json")
    assert listed.code == 0
    assert [area["zooms"][0]["tiles"] for area in (listed.json, *listed.json["more"])] == [
        *map(len, TILES.values())
    ]
    plan = run_in_process("plan", *asked[1:], "--rate", "1M", "--json")
    assert plan.json["tiles_to_fetch"] == sum(map(len, TILES.values()))
    assert [area["tiles_to_fetch"] for area in plan.json["areas"]] == [*map(len, TILES.values())]
    ran = run_in_process(*asked, "--json")
    assert (ran.code, ran.json["outcome"]) == (0, "success")
    assert ran.json["tiles_downloaded"] == sum(map(len, TILES.values()))
    assert [one["tiles_downloaded"] for one in ran.json["areas"]] == [*map(len, TILES.values())]
    judged = run_in_process(
        "cache", "verify", *asked[1:7], "--sector", "stable_rear", "--flight", "P1", "--json"
    )
    assert (judged.code, judged.json["go"], len(judged.json["areas"])) == (0, True, 2)
    assert judged.json["total"]["present"] == sum(map(len, TILES.values()))
    exported = run_in_process("cache", "export", str(tmp_path / "a"), *asked[1:7], "--json")
    assert exported.json["tiles_exported"] == sum(map(len, TILES.values()))
    queued = run_in_process("runs", "submit", *download("P2", HERE, NEXT), "--json")
    assert len(queued.json["more"]) == 1
    assert queued.json["more"][0]["payload"]["bbox"] == str(NEXT)
    again = run_in_process(*asked, "--json")
    assert (again.code, again.json["outcome"]) == (0, "idempotent_no_op")


def test_verdict_names_the_place(tmp_path: Path) -> None:
    assert run_in_process(*download("P1", HERE, NEXT)).code == 0
    ran = run_in_process("cache", "verify", "--flight", "P1")
    assert ran.code == 0
    assert "50.02°N 36.04°E, 5.7 x 4.4 km, 16 km from the flight's other areas" in ran.out
    place = run_in_process("flight", "show", "P1", "--json").json["areas"][1]["place"]
    assert (place["centre"], round(place["distance_km"])) == ([36.4, 50.02], 16)
    out = tmp_path / "flaws.json"
    verified = run_in_process("cache", "verify", "--flight", "P1", "--geojson", str(out))
    assert (verified.code, '"GO"' in out.read_text("utf-8")) == (0, True)


@pytest.mark.parametrize("queued", [False, True])
def test_far_area_needs_confirmation(provider: ScriptedProvider, *, queued: bool) -> None:
    assert run_in_process(*download("P1", HERE)).code == 0
    provider.requests.clear()
    asked = (*(("runs", "submit") if queued else ()), *download("P1", SWAPPED))
    refused = run_in_process(*asked)
    assert refused.code == 4
    assert "36.04°N 50.02°E" in refused.err
    assert "km from the other areas of flight P1" in refused.err
    assert "--far" in refused.err
    assert not provider.requests
    assert run_in_process(*asked, "--far").code == 0


def test_queued_download_adds_its_area_to_the_flight() -> None:
    assert run_in_process("runs", "submit", *download("P1", HERE)).code == 0
    assert run_in_process("worker", "--until-idle").code == 0
    shown = run_in_process("flight", "show", "P1", "--json").json
    assert [area["bbox"] for area in shown["areas"]] == [[36.0, 50.0, 36.08, 50.04]]
    assert (shown["verdict"], shown["tiles"]) == ("GO", len(TILES[HERE]))


def test_flights_are_listed_shown_and_removed(database_url: str) -> None:
    for flight in ("P1", "P2"):
        assert run_in_process(*download(flight, HERE)).code == 0
    assert run_in_process(*download("P2", NEXT)).code == 0
    run_in_process("flight", "pin", "P1")
    first, second = run_in_process("flight", "list", "--json").json["flights"]
    here, there = (len(tiles) for tiles in TILES.values())
    assert (first["tiles"], first["own_tiles"], first["shared_tiles"]) == (here, 0, here)
    assert (second["tiles"], second["own_bytes"]) == (here + there, there * SIZE)
    assert (first["status"], second["status"], second["area_count"]) == ("pinned", "unpinned", 2)
    table = run_in_process("flight", "list").out
    assert all(word in table for word in ("P1", "P2", "GO", "pinned", f"{here + there}"))
    assert "16 km" in run_in_process("flight", "show", "P2").out
    refused = run_in_process("flight", "rm", "P1")
    assert refused.code == 4
    assert "--reason" in refused.err
    removed = run_in_process("flight", "rm", "P1", "--reason", "flown", "--json")
    assert (removed.code, removed.json["action"]) == (0, "remove")
    assert run_in_process("flight", "show", "P1").code == 2
    assert verify("P2") == (0, "GO")
    (event,) = read_flight_events(database_url, "remove")
    assert (event.subject, event.reason) == ("flight P1", "flown")


def read_flight_events(database_url: str, transition: str) -> list[StateChanged]:
    database = Database.from_url(database_url)
    entries = PostgresAuditLog(database=database).iter_entries()
    events = [event_from_bytes(entry.body) for entry in entries]
    database.close()
    return [
        event
        for event in events
        if isinstance(event, StateChanged) and event.transition == transition
    ]


def test_pin_without_areas_says_so() -> None:
    ran = run_in_process("flight", "pin", "P9")
    assert ran.code == 0
    assert "has no areas yet" in ran.err
    judged = run_in_process("cache", "verify", "--flight", "P9")
    assert judged.code == 2
    assert "it has no areas" in judged.err
    assert run_in_process("flight", "unpin", "P8").code == 2


def test_flight_expires() -> None:
    assert run_in_process(*download("P1", HERE)).code == 0
    run_in_process("flight", "pin", "P1")
    later = run_in_process("flight", "expire", "P1", "--at", "2126-01-01", "--json")
    assert (later.json["flight"]["status"], later.json["flight"]["expires_at"]) == (
        "pinned",
        "2126-01-01T00:00:00+00:00",
    )
    assert run_in_process("flight", "expire", "P1").code == 4
    over = run_in_process("flight", "expire", "P1", "--reason", "flown")
    assert "has expired" in over.out
    assert run_in_process("flight", "list", "--json").json["flights"][0]["status"] == "expired"
    assert "does not expire" in run_in_process("flight", "expire", "P1", "--never").out
    assert run_in_process("flight", "expire", "P1", "--never", "--at", "2126-01-01").code == 2
    assert run_in_process("cache", "stats", "--json").json["pinned_flights"] == ["P1"]


def test_report_is_one_page_with_verdict_and_map(tmp_path: Path) -> None:
    assert run_in_process(*download("P1", HERE)).code == 0
    page = tmp_path / "p1.html"
    asked = ("flight", "report", "P1", "--output", str(page))
    ran = run_in_process(*asked, "--json")
    assert (ran.code, ran.json["verdict"], ran.json["bytes_checked"]) == (0, "GO", True)
    html = page.read_text("utf-8")
    assert ran.json["size_bytes"] == len(html.encode())
    assert "data:image/jpeg;base64," in html
    assert "http://" not in html
    refused = run_in_process(*asked)
    assert refused.code == 4
    assert "--replace" in refused.err
    run_in_process("flight", "pin", "P9")
    none = run_in_process("flight", "report", "P9", "--output", str(tmp_path / "p9.html"))
    assert (none.code, "NO-GO for flight P9" in none.out) == (3, True)
    assert run_in_process(*asked, "--replace", "--quick").code == 0
