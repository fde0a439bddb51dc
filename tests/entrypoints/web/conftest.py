"""One site and one browser that the tests of a worker share."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from support.audit_events import create_call_events
from support.browser import open_tab
from support.control_plane import ControlPlane, create_postgres_control_plane
from support.things_page import APPLIED, SIZE, THINGS
from support.web_site import RunningSite, fill_cache, serve_site

from tileferry.adapters.memory import ManualClock
from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.domain.retry import Retryable, RetryCategory
from tileferry.entrypoints.web import pages, server
from tileferry.entrypoints.web.policies import TuningResult

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
    from support.provider import RunningProvider

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="session")
def web_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all sites with the shared database: they have one cache."""
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="session")
def site(shared_database_url: str, web_home: Path) -> Iterator[RunningSite]:
    """Run a site on loopback without tokens, with a filled cache."""
    with serve_site(web_home, shared_database_url) as running:
        fill_cache(running, shared_database_url)
        yield running


@pytest.fixture(scope="session")
def web_work(shared_database_url: str, site: RunningSite) -> Iterator[ControlPlane]:  # noqa: ARG001  # makes the schema
    """Return the control plane of the site's database."""
    database = Database.from_url(shared_database_url)
    plane = create_postgres_control_plane(database)
    plane.name_run = "0193a2b4c5d6-{:016x}".format
    yield plane
    database.close()


@pytest.fixture(scope="session")
def retried_calls(site: RunningSite, shared_database_url: str) -> None:
    """Store 40 calls of one policy over eleven hours: each succeeds on its second attempt."""
    start_s = (datetime.now(UTC) - timedelta(hours=12)).timestamp()
    events = []
    for number in range(40):
        clock = ManualClock(start_s + 1_000 * number)
        events += create_call_events(
            [Retryable()], clock=clock, key=f"w{number}", category=RetryCategory.KV_GET
        )
    database = Database.from_url(shared_database_url)
    PostgresAuditLog(database=database).emit(events)
    database.close()
    with site.client() as client:
        client.get("/policies")
    state = site.server.site.get_state(TuningResult, pytest.fail)
    state.result = state.compute()  # without waiting until the page repeats it


@pytest.fixture(scope="module")
def things_page() -> Iterator[None]:
    """Offer a page that can change something, on every site that the module starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "PAGES", (*pages.PAGES, THINGS))
        yield


@pytest.fixture(scope="module")
def console(
    shared_database_url: str,
    web_home: Path,
    things_page: None,  # noqa: ARG001  # adds the page
) -> Iterator[RunningSite]:
    """Run a site with a page that can change something."""
    with serve_site(web_home, shared_database_url) as running:
        yield running


@pytest.fixture(autouse=True)
def _reset_things(request: pytest.FixtureRequest) -> None:
    """Forget earlier changes and the rates of requests."""
    APPLIED.clear()
    SIZE["count"] = 3
    for name in {"console", "locked_site"} & {*request.fixturenames}:
        guard = request.getfixturevalue(name).server.app.guard
        guard._changes._buckets.clear()
        guard._logins._buckets.clear()


@pytest.fixture
def client(site: RunningSite) -> Iterator[httpx.Client]:
    with site.client() as client:
        yield client


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Start the system's chromium; without it, these tests are not run.

    For one module: while playwright runs, this thread has an event loop, in which other tests fail.
    """
    if not CHROMIUM.exists():
        pytest.skip(f"not run: the pages in a browser; {CHROMIUM} is not installed")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # it takes a while

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: "Browser", site: RunningSite) -> Iterator["Page"]:
    """Open a tab for the shared site."""
    with open_tab(browser, site) as page:
        yield page


@pytest.fixture(scope="module")
def planning_site(
    tmp_path_factory: pytest.TempPathFactory,
    module_database_url: str,
    provider_server: "RunningProvider",
) -> Iterator[RunningSite]:
    """Run a site with a provider, and a database and a cache of its own."""
    home = tmp_path_factory.mktemp("planning")
    with serve_site(home, module_database_url, provider=provider_server) as running:
        yield running
