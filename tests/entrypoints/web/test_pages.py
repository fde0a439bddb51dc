"""The pages in a real browser. They are in one module, because a browser takes a while to start."""

import io
import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from PIL import Image, ImageColor
from support.browser import open_tab
from support.browser_scripts import read_axe, read_maplibre
from support.control_plane import (
    LEASE,
    W1,
    ControlPlane,
    acquire_work,
    create_sealed,
    download_work,
    partition_key,
)
from support.download_operator import wait_until
from support.provider import RunningProvider
from support.web_site import STORED, RunningSite, give_up_tile, serve_site
from support.work_operator import fill_sink

from tileferry.application.ports.work import RunFilter
from tileferry.domain.runs import Verdict, VerdictOutcome
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import TileId
from tileferry.entrypoints.flight_report import make_flight_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files of a folder, without a log."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def wait_for_truth(page: "Page", expression: str) -> None:
    """Wait without ``wait_for_function``, which needs eval, which the pages' CSP forbids."""
    wait_until(lambda: bool(page.evaluate(expression)), expression)


def test_browser_shows_imagery_and_the_hole(site: RunningSite, page: "Page") -> None:
    page.goto(f"{site.url}/map?flight=F7")
    page.wait_for_selector(".leaflet-tile-loaded")
    page.wait_for_selector("path.kind-hole")
    wait_for_truth(
        page,
        "[...document.querySelectorAll('img.leaflet-tile-loaded')]"
        ".some(image => image.naturalWidth === 256)",
    )
    page.locator("[data-layer][value=sat]").check()
    page.wait_for_selector(".leaflet-tile-loaded")
    page.evaluate("document.querySelector('[data-map]').map.setZoom(12)")
    page.wait_for_selector("img.leaflet-tile-loaded[src*='/sat/10/']")  # 11 to 13 are not stored


def test_area_is_drawn_planned_downloaded_and_go(
    planning_site: RunningSite, browser: "Browser", reference_provider: RunningProvider
) -> None:
    with open_tab(browser, planning_site) as page:
        page.goto(f"{planning_site.url}/map")
        page.evaluate("document.querySelector('[data-map]').map.setView([49.95, 36.2], 13)")
        page.get_by_role("button", name="Draw a box").click()
        page.mouse.move(300, 300)
        page.mouse.down()
        page.mouse.move(500, 400, steps=3)
        page.mouse.up()
        wait_for_truth(page, "!document.querySelector('.drawing')")
        assert len(page.get_by_label("Area west").input_value().split(",")) == 4
        assert page.locator("[data-tile-panel]").is_hidden(), "drawing explains no tile"
        page.get_by_role("textbox", name="Zoom").fill("14")
        page.get_by_label("Flight", exact=True).fill("F1")
        page.get_by_label("Sector").select_option("stable_rear")
        page.get_by_role("button", name="Plan", exact=True).click()
        page.get_by_label("Reason").fill("flight on Monday")
        tiles = page.locator("h1").inner_text().split()[1]
        if page.get_by_label(f"Type {tiles}").count():
            page.get_by_label(f"Type {tiles}").fill(tiles)
        reference_provider.reset()  # tiles were fetched to measure the time
        reference_provider.set_faults({"fault": "503", "call": "tile", "attempts": [1], "times": 1})
        page.get_by_role("button", name="Start now").click()
        page.wait_for_selector("text=Started as run")
        page.wait_for_selector("text=No transfers in progress")  # sent by the server
        page.goto(f"{planning_site.url}/flights")
        page.wait_for_selector(".verdict.ok:text-is('GO')")
        page.goto(f"{planning_site.url}/map?flight=F1")
        page.wait_for_selector("path.flight-area")
        wait_for_truth(page, "!document.querySelector('.leaflet-zoom-anim')")
        page.mouse.click(560, 475)  # the middle of the map, and of the area
        page.wait_for_selector("[data-tile-panel] .badge.ok")
        wait_for_truth(page, "document.querySelector('[data-tile-panel] img').naturalWidth === 256")
        retried = next(tile for tile, times in reference_provider.fetched.items() if times == 2)
        page.get_by_label("Explain a tile").fill(retried)
        page.get_by_role("button", name="Show").click()
        page.wait_for_selector("pre:has-text('HTTP 503')")


def test_dropped_file_is_shown_on_the_map(
    planning_site: RunningSite, browser: "Browser", tmp_path: Path
) -> None:
    file = tmp_path / "area.geojson"
    ring = [[36.1, 49.9], [36.14, 49.9], [36.12, 49.92], [36.1, 49.9]]
    file.write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    with open_tab(browser, planning_site) as page:
        page.goto(f"{planning_site.url}/map")
        page.locator("[data-geojson]").set_input_files(file)
        page.wait_for_selector("path.plan-area")
        assert "Polygon" in page.locator("[name=geojson]").input_value()
        page.locator("[name=bbox]").fill("36.1,49.9,36.2,50.0")
        assert page.locator("[name=geojson]").input_value() == "", "the last one counts"
        assert page.locator("path.plan-area").count() == 1


def test_keyboard_reaches_places_of_the_map_by_a_list(site: RunningSite, page: "Page") -> None:
    page.goto(f"{site.url}/map?flight=F7")
    page.wait_for_selector("path.kind-hole")
    page.locator("#overlay-list summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-tile-panel] >> text=Not in the cache")
    assert page.evaluate("document.activeElement.textContent").startswith("Tile 14/")
    page.locator("#kind-hole").uncheck()
    assert page.locator("path.kind-hole").count() == 0
    stops = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        stops.add(page.evaluate("document.activeElement.tagName"))
    assert "path" not in stops, "shapes are no stops"
    assert "A" in stops


def test_map_fits_a_phone(site: RunningSite, page: "Page") -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site.url}/map?flight=F7")
    page.wait_for_selector("path.kind-hole")
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width == 390


def test_checks_arrive_live_in_the_browser(site: RunningSite, page: "Page") -> None:
    page.goto(f"{site.url}/health")
    page.wait_for_selector("text=Checked 20")
    assert page.locator("tbody tr").count() > 5
    assert page.locator("h1").inner_text() == "Health"


def test_failed_partition_is_retried_and_succeeds(
    site: RunningSite,
    page: "Page",
    web_work: ControlPlane,
    shared_database_url: str,
    web_home: Path,
) -> None:
    key = partition_key(source="flow")
    web_work.partitions.enqueue([acquire_work(key)], actor=Actor.OPERATOR)

    def judge(outcome: VerdictOutcome, *reasons: str) -> None:
        (run,) = web_work.queue.claim(W1, limit=1, lease=LEASE, sources=["flow"])
        verdict = Verdict(run_id=run.run_id, outcome=outcome, reasons=reasons)
        web_work.control.process_result(run, verdict, sealed=create_sealed(run, key))

    judge(VerdictOutcome.FAILED, "too few tiles")
    fill_sink(shared_database_url, web_home / "raw")
    page.goto(f"{site.url}/partitions")
    page.get_by_role("link", name=str(key)).click()
    page.get_by_role("button", name="Retry…").click()
    page.get_by_label("Reason").fill("the link is back")
    page.get_by_role("button", name="Retry 1 partition").click()
    page.get_by_role("status").filter(has_text="1 partition retried.").wait_for()
    page.goto(f"{site.url}/partitions/{key}")
    page.get_by_text("… pending").first.wait_for()
    judge(VerdictOutcome.PASSED)
    page.get_by_text("✓ success").wait_for()  # sent by the server
    assert "the link is back" in page.locator("pre").inner_text()
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("link", name="flow/acme/city").click()
    page.get_by_role("link", name="1, 2026-03-01").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_bulk_cancel_asks_for_the_count(
    site: RunningSite, page: "Page", web_work: ControlPlane
) -> None:
    for number in range(12):
        web_work.submit_run(download_work(f"F{number}", "storm"))
    page.goto(f"{site.url}/runs")
    page.get_by_label("Source").select_option("storm")
    page.wait_for_url("**source=storm**")
    page.get_by_role("button", name="Cancel unfinished runs…").click()
    page.get_by_label("Reason").fill("a storm")
    page.get_by_label("Type 12 to confirm").fill("12")
    page.get_by_role("button", name="Cancel 12 runs").click()
    page.get_by_role("status").filter(has_text="12 runs cancelled.").wait_for()
    found = web_work.reader.list_runs(RunFilter(source="storm"), limit=20)
    assert {run.error_message for run in found} == {"cancelled: a storm"}


def test_giveup_shows_its_picture_and_sql(site: RunningSite, page: "Page") -> None:
    tile_id = TileId.parse("late/14/9750/5600")
    give_up_tile(site.installation, tile_id, "F20", "blurred")
    page.goto(f"{site.url}/giveups?flight=F20")
    wait_for_truth(page, "document.querySelector('.gallery img').naturalWidth === 256")
    page.get_by_text("SQL to reopen").click()
    page.get_by_text("UPDATE tiles SET voting_status = 'pending'").wait_for()
    assert page.get_by_role("button").all_inner_texts() == ["◐", "Filter"]


@pytest.mark.usefixtures("retried_calls")
def test_what_if_is_simulated(site: RunningSite, page: "Page") -> None:
    page.goto(f"{site.url}/policies")
    page.get_by_label("Policy").select_option("KV_GET")
    page.wait_for_url("**category=KV_GET**")
    page.get_by_label("Attempts").fill("1")
    page.get_by_role("button", name="Simulate").click()
    result = page.get_by_role("status")
    result.get_by_text("40 calls succeeded, but would have been given up earlier.").wait_for()
    assert "1 attempt" in result.inner_text()


PAGES = (
    *("/flights", "/flights/F7", "/transfers", "/runs", "/runs/{run}"),
    *(
        "/partitions",
        "/partitions?source=axe&customer=acme&query=city",
        "/partitions/{key}",
    ),
    f"/map/tile?tile={STORED}",
    *("/giveups", "/audit", "/audit/verify", "/audit/replay?about={run}", "/health"),
    "/policies?category=KV_GET&max_attempts=1",
)


def find_violations(page: "Page") -> list[str]:
    """Return what axe-core finds in a page, and again of its colours in the dark theme."""
    page.evaluate(read_axe())
    found = []
    for theme, options in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
        asked = {"resultTypes": ["violations"], **options}
        result = page.evaluate("options => axe.run(options)", asked)
        found += [
            f"{page.url}, {theme}: {one['impact']} {one['id']}: {one['nodes'][0]['html']}"
            for one in result["violations"]
        ]
    return found


@pytest.mark.usefixtures("retried_calls")
def test_axe_finds_nothing_on_any_page(
    site: RunningSite, page: "Page", web_work: ControlPlane
) -> None:
    key = partition_key(source="axe")
    web_work.partitions.enqueue([acquire_work(key)], actor=Actor.OPERATOR)
    (run,) = web_work.queue.claim(W1, limit=1, lease=LEASE, sources=["axe"])
    failed = Verdict(run_id=run.run_id, outcome=VerdictOutcome.FAILED, reasons=["too few"])
    web_work.control.process_result(run, failed, sealed=create_sealed(run, key))
    web_work.submit_run(download_work("F1", "axe"))
    give_up_tile(site.installation, TileId.parse("late/14/9751/5600"), "F21", "blurred")
    violations = []
    for path in PAGES:
        page.goto(site.url + path.format(run=run.run_id, key=key))
        violations += find_violations(page)
    page.goto(f"{site.url}/map?flight=F7")
    page.locator("#overlay-list summary").click()
    page.locator("#overlay-list a").first.click()
    page.locator("[data-tile-panel] h3").first.wait_for()
    for part in page.locator("details.part summary").all():
        part.click()
    violations += find_violations(page)  # everything on the map
    page.goto(f"{site.url}/runs?source=axe")
    page.get_by_role("button", name="Cancel unfinished runs…").click()
    page.get_by_label("Reason").wait_for()
    violations += find_violations(page)  # the preview of a change
    assert violations == []


def test_report_of_a_flight_opens_from_a_file(
    site: RunningSite, browser: "Browser", tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    file.write_text(make_flight_report(site.installation, "F7").render(), encoding="utf-8")
    page = browser.new_page(viewport={"width": 390, "height": 844})
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url.partition(":")[0]))
    page.goto(file.as_uri())
    page.locator(".imagery image").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert find_violations(page) == []
    assert {*loaded} <= {"file", "data"}
    page.close()


MAPLIBRE_PAGE = """<!DOCTYPE html><title>map</title><script src="maplibre.js"></script>
<div id="map" style="position:fixed;inset:0"></div><script>
const style = { version: 8, sources: { sat: { type: "raster", url: "%s", tileSize: 256 } },
  layers: [{ id: "sat", type: "raster", source: "sat" }] };
const map = new maplibregl.Map({ container: "map", style, center: [36.01, 50.005], zoom: 11,
  fadeDuration: 0, attributionControl: false });
map.once("idle", () => { document.title = "idle"; });
</script>"""


@pytest.mark.usefixtures("site")  # it has filled the cache
def test_maplibre_of_another_site_shows_the_tiles(
    browser: "Browser", shared_database_url: str, web_home: Path, tmp_path: Path
) -> None:
    handler = partial(QuietHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{other.server_port}"
        with serve_site(web_home, shared_database_url, {"cors_origins": [origin]}) as open_site:
            html = MAPLIBRE_PAGE % f"{open_site.url}/tiles/sat.json"
            (tmp_path / "index.html").write_text(html)
            (tmp_path / "maplibre.js").write_text(read_maplibre())
            page = browser.new_page(viewport={"width": 300, "height": 300})
            page.goto(origin)
            page.wait_for_function("document.title === 'idle'", timeout=20_000)
            with Image.open(io.BytesIO(page.screenshot())) as picture:
                drawn = cast("tuple[int, ...]", picture.convert("RGB").getpixel((150, 150)))
            page.close()
        other.shutdown()
    wanted = ImageColor.getrgb("#2b6777")  # the tile of level 10
    assert all(abs(one - other) < 4 for one, other in zip(drawn, wanted, strict=True)), drawn


def test_theme_is_remembered_by_the_server(site: RunningSite, page: "Page") -> None:
    page.goto(f"{site.url}/health")
    page.locator("[data-theme-toggle]").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.goto(f"{site.url}/map")
    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_keyboard_reaches_the_content(site: RunningSite, page: "Page") -> None:
    page.goto(f"{site.url}/health")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
