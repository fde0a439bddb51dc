"""Live updates: sent when they change, bounded, and ended by a stop."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.web_site import RunningSite, serve_site

from tileferry.domain.errors import NotFoundError
from tileferry.entrypoints.web import live, pages, server
from tileferry.entrypoints.web.site import Feed, Page, PageRequest

STATE: dict[str, Any] = {"text": "first", "renders": 0}


def render(request: PageRequest) -> str:
    STATE["renders"] += 1
    if STATE["text"] == "broken":
        raise NotFoundError(what="thing", name="x")
    return f"<b>{STATE['text']} {request.query.get('only', '')}</b>\n"


FEEDS = Page(
    title=None, path="/ticks", routes=(), feeds=(Feed(name="ticks", render=render, every_s=0.02),)
)


@pytest.fixture
def ticking(
    shared_database_url: str, web_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningSite]:
    STATE.update(text="first", renders=0)
    monkeypatch.setattr(server, "PAGES", (*pages.PAGES, FEEDS))
    with serve_site(web_home, shared_database_url) as site:
        yield site


def read_event(lines: Iterator[str]) -> tuple[str, str]:
    """Return the kind and the text of the next event."""
    kind = ""
    for line in lines:
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            return kind, json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream ended")


def test_changes_are_sent_as_they_happen(ticking: RunningSite) -> None:
    with ticking.client() as client, client.stream("GET", "/live/ticks?only=a") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        assert read_event(lines) == ("update", "<b>first a</b>\n")
        STATE["text"] = "second"
        assert read_event(lines) == ("update", "<b>second a</b>\n")
        STATE["text"] = "broken"
        assert read_event(lines) == ("failure", "thing x not found")


def test_watchers_of_one_fragment_share_its_rendering(ticking: RunningSite) -> None:
    with ticking.client() as one, ticking.client() as other:
        with (
            one.stream("GET", "/live/ticks") as first,
            other.stream("GET", "/live/ticks") as second,
        ):
            lines = first.iter_lines(), second.iter_lines()
            assert read_event(lines[0]) == read_event(lines[1])
            assert len(ticking.server.app.feeds._channels) == 1
        wait_until(lambda: not ticking.server.app.feeds._channels)
    renders = STATE["renders"]
    threading.Event().wait(0.1)
    assert STATE["renders"] <= renders + 1


def wait_until(is_done: Callable[[], bool]) -> None:
    for _ in range(200):
        if is_done():
            return
        threading.Event().wait(0.02)
    raise AssertionError("it did not happen")


def test_number_of_watchers_is_bounded(
    ticking: RunningSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "WATCHERS_MAX", 1)
    with ticking.client() as client, client.stream("GET", "/live/ticks") as stream:
        lines = stream.iter_lines()  # kept: the stream is closed with it
        read_event(lines)
        with ticking.client() as other:
            refused = other.get("/live/ticks")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
            assert other.get("/live/none").status_code == 404


def test_heartbeats_are_sent(ticking: RunningSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.05)
    with ticking.client() as client, client.stream("GET", "/live/ticks") as stream:
        lines = stream.iter_lines()
        read_event(lines)
        assert next(line for line in lines if line.startswith(":")) == ": still here"


def test_stop_ends_the_streams_at_once(shared_database_url: str, web_home: Path) -> None:
    with (
        serve_site(web_home, shared_database_url) as site,
        site.client() as client,
        client.stream("GET", "/live/health") as stream,
    ):
        lines = stream.iter_lines()
        read_event(lines)
        site.server.stop()
        assert "event: end" not in list(lines)  # it ends, or the client's timeout raises
