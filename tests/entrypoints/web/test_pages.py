"""The pages in a real browser. They are in one module, because a browser takes a while to start."""

from typing import TYPE_CHECKING

from support.web_site import RunningSite

if TYPE_CHECKING:
    from playwright.sync_api import Page


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


def test_checks_arrive_live_in_the_browser(site: RunningSite, page: "Page") -> None:
    page.goto(f"{site.url}/health")
    page.wait_for_selector("text=Checked 20")
    assert page.locator("tbody tr").count() > 5
    assert page.locator("h1").inner_text() == "Health"


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
