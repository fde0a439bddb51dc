"""The pages in a real browser. They are in one module, because a browser takes a while to start."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
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
from support.web_site import RunningSite, give_up_tile
from support.work_operator import fill_sink

from tileferry.application.ports.work import RunFilter
from tileferry.domain.runs import Verdict, VerdictOutcome
from tileferry.domain.state_machine import Actor
from tileferry.domain.tiles import TileId

if TYPE_CHECKING:
    from playwright.sync_api import Page


def wait_for_truth(page: "Page", expression: str) -> None:
    """Wait without ``wait_for_function``, which needs eval, which the pages' CSP forbids."""
    wait_until(lambda: bool(page.evaluate(expression)), expression)


def test_browser_shows_imagery_and_the_hole(site: RunningSite, page: "Page") -> None:
    page.goto(f"{site.url}/map?flight=F7")
    page.wait_for_selector(".leaflet-tile-loaded")
    page.wait_for_selector("path.flaw-hole")
    wait_for_truth(
        page,
        "[...document.querySelectorAll('img.leaflet-tile-loaded')]"
        ".some(image => image.naturalWidth === 256)",
    )
    page.locator("[data-layer][value=sat]").check()
    page.wait_for_selector(".leaflet-tile-loaded")
    page.evaluate("document.querySelector('[data-map]').map.setZoom(12)")
    page.wait_for_selector("img.leaflet-tile-loaded[src*='/sat/10/']")  # 11 to 13 are not stored


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
