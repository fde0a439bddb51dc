"""A tab of the browser that watches what its pages do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from support.web_site import RunningSite

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@contextmanager
def open_tab(browser: "Browser", site: RunningSite) -> Iterator["Page"]:
    """Open a tab; fail if it logs an error, breaks the CSP, or leaves the host."""
    problems: list[str] = []
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.on(
        "console",
        lambda message: (
            problems.append(message.text) if message.type in {"error", "warning"} else None
        ),
    )
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None
            if re.match(re.escape(site.url) + "/", request.url)
            else problems.append(request.url)
        ),
    )
    yield page
    context.close()
    assert problems == []
