"""Planning a download on the map, over HTTP."""

import json
from collections.abc import Iterator

import httpx
import pytest
from attrs import evolve
from support.download_operator import wait_until
from support.provider import RunningProvider
from support.web_site import RunningSite, confirm_change, post_form, serve_site

from tileferry.application.cache.budget import CacheBudget
from tileferry.application.ports.work import RunFilter
from tileferry.domain.audit import StateChanged
from tileferry.domain.runs import RunStatus
from tileferry.domain.tiles import (
    Area,
    BBox,
    DownloadRequest,
    EvictionResult,
    FlightArea,
    SectorClass,
    Shape,
    TileCoverage,
)
from tileferry.domain.tiles.shape import shape_to_geojson
from tileferry.domain.work import DownloadArea, parse_work
from tileferry.entrypoints.web import map_plan

BOX = "36.1,49.9,36.14,49.92"
FIELDS = {"bbox": BOX, "zoom": "14", "flight": "F1", "sector": "stable_rear"}
AREA = Area(bbox=BBox.parse(BOX), zoom_levels=[14], sector_class=SectorClass.STABLE_REAR)
TILES = AREA.coverage.count


@pytest.fixture
def operator(
    planning_site: RunningSite,
    reference_provider: RunningProvider,  # noqa: ARG001  # without faults
) -> Iterator[httpx.Client]:
    planning_site.server.app.guard._changes._buckets.clear()
    with planning_site.client() as client:
        yield client


def test_plan_is_previewed_and_queued_with_its_reason(
    operator: httpx.Client, planning_site: RunningSite, reference_provider: RunningProvider
) -> None:
    preview = post_form(operator, map_plan.PATH, {**FIELDS, "zoom": "14-15"})
    for text in ("tiles listed", "to fetch", "about", "tiles came just now", "nothing"):
        assert text in preview.text
    fetched = reference_provider.fetched.total()
    assert 0 < fetched <= 16, "some tiles are fetched to measure the time"
    done = confirm_change(operator, map_plan.PATH, FIELDS, reason="flight on Monday")
    assert "Queued as run " in done.text
    (run, *_) = planning_site.installation.work_reader.list_runs(RunFilter(), limit=5)
    assert parse_work(run.kind, dict(run.payload)) == DownloadArea(
        source="satellite", flight_id="F1", area=AREA
    )
    assert reference_provider.fetched.total() <= fetched + TILES, "confirmed without measuring"
    (entry,) = planning_site.installation.audit_reader.find_about(f"run {run.run_id}")
    assert isinstance(entry.event, StateChanged)
    assert entry.event.reason == "flight on Monday"
    assert entry.event.additional_context == {"by": "tester@host"}
    again = confirm_change(operator, map_plan.PATH, FIELDS, reason="again")
    assert f"Already queued as run {run.run_id}" in again.text


def test_started_plan_is_downloaded_without_a_worker(
    operator: httpx.Client, planning_site: RunningSite
) -> None:
    fields = {**FIELDS, "bbox": "38.1,49.9,38.14,49.92", "flight": "F8"}
    done = confirm_change(operator, map_plan.PATH, fields, reason="now", choice="start")
    assert done.url.path == "/transfers"
    assert "Started as run " in done.text
    installation = planning_site.installation
    wait_until(lambda: not installation.background_worker.is_running, "the download")
    (run, *_) = installation.work_reader.list_runs(RunFilter(text="F8"), limit=5)
    assert run.status is RunStatus.PASSED
    counted = 'tileferry_runs_finished_total{kind="download_area",status="passed"}'
    assert counted in operator.get("/metrics").text
    assert "Everything is in the cache already" in post_form(operator, map_plan.PATH, fields).text


def test_problem_of_the_worker_is_shown(operator: httpx.Client, planning_site: RunningSite) -> None:
    planning_site.installation.background_worker.problem = "raw_root: <not> a folder"
    assert "raw_root: &lt;not&gt; a folder" in operator.get("/transfers").text
    planning_site.installation.background_worker.problem = None


def test_read_only_console_starts_nothing(
    planning_site: RunningSite, module_database_url: str
) -> None:
    home = planning_site.installation.config.c11.cache_root.parent
    with (
        serve_site(home, module_database_url, {"read_only": True}) as closed,
        closed.client() as viewer,
    ):
        viewer.get("/runs")
        answer = viewer.post(f"{map_plan.PATH}/apply", data={**FIELDS, "choice": "start"})
        assert (answer.status_code, "read-only" in answer.text) == (403, True)
        assert not closed.installation.background_worker.is_running


def test_many_tiles_need_their_number(operator: httpx.Client) -> None:
    wide = {**FIELDS, "zoom": "15", "bbox": "36.1,49.9,36.2,49.95"}
    refused = confirm_change(operator, map_plan.PATH, wide, reason="x")
    assert refused.status_code == 409
    assert "Nothing was changed" in refused.text
    tiles = Area(
        bbox=BBox.parse(wide["bbox"]), zoom_levels=[15], sector_class=AREA.sector_class
    ).coverage.count
    assert f"Type {tiles} to confirm" in refused.text
    done = confirm_change(operator, map_plan.PATH, wide, reason="x", confirmed_count=str(tiles))
    assert "Queued as run " in done.text


def test_area_comes_from_geojson(operator: httpx.Client) -> None:
    ring = [[36.1, 49.9], [36.14, 49.9], [36.12, 49.92], [36.1, 49.9]]
    geojson = json.dumps({"type": "Polygon", "coordinates": [ring]})
    page = post_form(operator, map_plan.PATH, {**FIELDS, "bbox": "", "geojson": geojson}).text
    shape = Shape.from_degrees(polygons=[[[(lon, lat) for lon, lat in ring]]])
    tiles = TileCoverage.from_place(shape, [14]).count
    assert tiles < TILES
    assert f"Download {tiles} tile" in page
    wrong = post_form(operator, map_plan.PATH, {**FIELDS, "geojson": "{}"})
    assert wrong.status_code == 400
    assert "the dropped area" in wrong.text


def test_overlay_has_the_shape_of_an_area(
    operator: httpx.Client, planning_site: RunningSite
) -> None:
    ring = [(36.1, 49.9), (36.14, 49.9), (36.12, 49.92)]
    shape = Shape.from_degrees(polygons=[[ring]])
    area = Area.from_place(shape, [14], SectorClass.STABLE_REAR)
    installation = planning_site.installation
    now = installation.get_database_time()
    installation.flights.book.add_area(
        "F6", FlightArea(source="satellite", area=area, added_at=now)
    )
    (first, *_) = operator.get("/map/overlay?flight=F6").json()["features"]
    assert first["shape"] == shape_to_geojson(shape)


def test_far_area_is_confirmed_in_the_form(
    operator: httpx.Client, planning_site: RunningSite
) -> None:
    near = {**FIELDS, "flight": "F5"}
    there = Area(
        bbox=BBox.parse("-70.1,-30.1,-70.0,-30.0"),
        zoom_levels=[10],
        sector_class=SectorClass.STABLE_REAR,
    )
    book = planning_site.installation.flights.book
    now = planning_site.installation.get_database_time()
    book.add_area("F5", FlightArea(source="satellite", area=there, added_at=now))
    assert post_form(operator, map_plan.PATH, near).status_code == 409
    assert "Queue for a worker" in post_form(operator, map_plan.PATH, {**near, "far": "1"}).text


def test_downloaded_area_has_nothing_to_queue(
    operator: httpx.Client, planning_site: RunningSite
) -> None:
    box = "37.1,49.9,37.14,49.92"
    fields, area = {**FIELDS, "bbox": box}, evolve(AREA, bbox=BBox.parse(box))
    installation = planning_site.installation
    request = DownloadRequest(
        flight_id="F1", area=area, cache_root=installation.config.c11.cache_root
    )
    with installation.hold_cache():
        installation.build_downloader().download_tiles_for_area(request)
    page = post_form(operator, map_plan.PATH, fields).text
    assert "Everything is in the cache already" in page
    assert "plan_hash" not in page
    other = post_form(operator, map_plan.PATH, {**fields, "flight": "F2"}).text
    assert "Download 0 tiles for flight F2" in other
    assert "plan_hash" in other


def test_area_that_does_not_fit_cannot_be_queued(
    operator: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(_self: CacheBudget, size_bytes: int, *_: object) -> EvictionResult:
        return EvictionResult(requested_bytes=size_bytes, available_bytes=size_bytes // 2)

    monkeypatch.setattr(CacheBudget, "_plan", plan)
    page = post_form(operator, map_plan.PATH, FIELDS).text
    assert "does not fit, even after eviction" in page
    assert "plan_hash" not in page


def test_invalid_plan_is_explained(operator: httpx.Client) -> None:
    for field, value, problem in (
        ("bbox", "36,49", "area"),
        ("bbox", "36.5,49.9,36.4,200", "area north"),
        ("zoom", "x", "zoom"),
        ("sector", "sea", "sector"),
        ("flight", "../x", "flight_id"),
        ("zoom", "20-21", "exceeds what the console plans"),
    ):
        wide = {**FIELDS, "bbox": "36.0,49.0,36.5,49.5", field: value}
        answer = post_form(operator, map_plan.PATH, wide)
        assert (answer.status_code, problem in answer.text) == (400, True)


def test_plans_leave_threads_to_other_pages(
    operator: httpx.Client, planning_site: RunningSite
) -> None:
    planning = planning_site.server.site.get_state(map_plan.Planning, map_plan.Planning)
    with planning.take_place(), planning.take_place(), planning.take_place():
        busy = post_form(operator, map_plan.PATH, FIELDS)
    assert (busy.status_code, "try again in a moment" in busy.text) == (400, True)
    assert post_form(operator, map_plan.PATH, FIELDS).status_code == 200


def test_failing_provider_is_reported_at_once(
    operator: httpx.Client, reference_provider: RunningProvider
) -> None:
    reference_provider.set_faults({"call": "listing", "fault": "503"})
    answer = post_form(operator, map_plan.PATH, FIELDS)
    assert answer.status_code == 502
    listings = [line for line in reference_provider.requests if line.tile is None]
    assert len(listings) == 1
