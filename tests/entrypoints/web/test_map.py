"""The map page, over HTTP and in a browser."""

from typing import TYPE_CHECKING

import httpx
from support.web_site import RunningSite

if TYPE_CHECKING:
    from playwright.sync_api import Page


def test_start_leads_to_the_map(client: httpx.Client) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/map")


def test_overlay_has_areas_and_holes_of_a_flight(client: httpx.Client) -> None:
    found = client.get("/map/overlay?flight=F7").json()
    classes = [feature["class"] for feature in found["features"]]
    assert classes.count("flight-area") == 1
    assert "flaw-hole" in classes
    assert found["is_complete"]


def test_unknown_flight_is_explained_like_on_the_command_line(client: httpx.Client) -> None:
    answer = client.get("/map/overlay?flight=none")
    assert answer.status_code == 404
    assert "flight none not found" in answer.text
    assert "tileferry flight list" in answer.text


def test_browser_shows_imagery_and_the_hole(site: RunningSite, page: "Page") -> None:
    page.goto(f"{site.url}/map?flight=F7")
    page.wait_for_selector(".leaflet-tile-loaded")
    page.wait_for_selector("path.flaw-hole")
    page.wait_for_function(
        "[...document.querySelectorAll('img.leaflet-tile-loaded')]"
        ".some(image => image.naturalWidth === 256)"
    )
    page.locator("[data-layer][value=sat]").check()
    page.wait_for_selector(".leaflet-tile-loaded")


def test_map_fits_a_phone(site: RunningSite, page: "Page") -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{site.url}/map?flight=F7")
    page.wait_for_selector("path.flaw-hole")
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width == 390
