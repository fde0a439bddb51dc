"""The pages of flights, over HTTP."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest
from support.web_site import (
    PATIENCE_S,
    PRODUCED_AT,
    RunningSite,
    confirm_change,
    post_form,
    read_fragment,
)

from tileferry.domain.errors import NotFoundError
from tileferry.domain.tiles import OperatorNote
from tileferry.entrypoints.web import flights, snapshots
from tileferry.entrypoints.web.snapshots import Snapshot


@pytest.fixture
def pinned_flight(site: RunningSite) -> Iterator[str]:
    site.installation.flights.pin("F7", OperatorNote(by="ann"))
    yield "F7"
    site.installation.flights.unpin("F7", OperatorNote(by="ann"))


def test_verdict_comes_first(client: httpx.Client) -> None:
    page = client.get("/flights").text
    assert "tileferry cache verify --flight" in page
    fragment = read_fragment(client, "/live/flights", "NO-GO")
    assert fragment.index("NO-GO") < fragment.index("/flights/F7")
    assert 'href="/map?flight=F7"' in fragment


def test_flight_shows_areas_and_facts(client: httpx.Client, pinned_flight: str) -> None:
    fragment = read_fragment(client, f"/live/flight?flight={pinned_flight}", "stable_rear")
    assert "pinned since" in fragment
    assert "of these its own" in fragment
    assert "NO-GO" in client.get(f"/flights/{pinned_flight}").text
    assert client.get("/flights/none").status_code == 404


def test_flight_is_pinned_and_unpinned_with_a_preview(client: httpx.Client) -> None:
    done = confirm_change(client, "/flights/pin", {"flight": "F7"}, reason="it flies tomorrow")
    assert "Flight F7 is pinned" in done.text
    again = post_form(client, "/flights/pin", {"flight": "F7"})
    assert "Nothing would change." in again.text
    done = confirm_change(client, "/flights/unpin", {"flight": "F7"}, reason="it has flown")
    assert "Flight F7 is unpinned" in done.text
    missing = post_form(client, "/flights/unpin", {"flight": "none"})
    assert missing.status_code == 404


def test_list_of_flights_is_bounded(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "_FLIGHTS_MAX", 0)
    assert "more; <code>tileferry flight list</code>" in client.get("/flights").text


def test_snapshot_is_computed_once_until_it_is_old() -> None:
    calls: list[int] = []

    def compute() -> int:
        calls.append(1)
        return len(calls)

    snapshot = Snapshot(compute)
    assert (snapshot.get(), snapshot.get(), snapshot.problem) == (1, 1, None)
    snapshot.taken_at = PRODUCED_AT - timedelta(days=1)
    snapshot.get()
    for _ in range(100):
        if snapshot.result == 2:
            break
        threading.Event().wait(0.01)
    assert snapshot.result == 2


def test_snapshot_can_wait_for_a_new_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_FIRST_WAIT_S", PATIENCE_S)
    numbers = iter(range(9))
    snapshot = Snapshot(lambda: next(numbers), repeat=timedelta(0), prefers_new=True)
    assert [snapshot.get() for _ in range(3)] == [0, 1, 2]


def test_snapshots_that_share_a_lock_are_computed_one_at_a_time() -> None:
    finish, running = threading.Event(), threading.Lock()
    slow = Snapshot(lambda: finish.wait(PATIENCE_S), running=running)
    other = Snapshot(lambda: "other", running=running)
    assert (slow.get(), other.get(), other.taken_at) == (None, None, None)
    finish.set()
    assert running.acquire(timeout=PATIENCE_S)  # the slow one has ended
    running.release()
    assert (slow.get(), other.get()) == (True, "other")


@pytest.mark.parametrize(
    ("error", "text"),
    [(NotFoundError(what="thing", name="x"), "thing x not found"), (OSError("x"), "internal")],
)
def test_failed_snapshot_keeps_the_reason(error: Exception, text: str) -> None:
    def fail() -> int:
        raise error

    snapshot = Snapshot(fail)
    assert snapshot.get() is None
    assert text in (snapshot.problem or "")
