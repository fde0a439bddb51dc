"""The health page, over HTTP and in a browser."""

from typing import TYPE_CHECKING

import httpx
from support.web_site import RunningSite

if TYPE_CHECKING:
    from playwright.sync_api import Page


def test_page_has_navigation_skip_link_and_assets(client: httpx.Client) -> None:
    answer = client.get("/health")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-encoding"] == "gzip"
    assert 'href="/health" aria-current="page"' in answer.text
    assert 'href="#main"' in answer.text
    for part in answer.text.split('href="/static/')[1:] + answer.text.split('src="/static/')[1:]:
        asset = client.get(f"/static/{part.split(chr(34))[0]}")
        assert asset.status_code == 200
        assert asset.headers["cache-control"] == "max-age=31536000, immutable"
        etag = {"if-none-match": asset.headers["etag"]}
        assert client.get(asset.url.path, headers=etag).status_code == 304


def test_first_load_is_small(client: httpx.Client) -> None:
    paths = [
        "/map",
        "/static/x/console.js",
        "/static/x/console.css",
        "/static/x/leaflet/leaflet.js",
    ]
    sizes = [int(client.get(path).headers["content-length"]) for path in paths]
    assert sum(sizes) < 100_000


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
