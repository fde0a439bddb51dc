"""The map page, over HTTP."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from attrs import evolve
from support.download_operator import wait_until
from support.web_site import HOLE

from tileferry.application.cache.flight_overlay import FlightOverlay, FlightOverlays
from tileferry.domain.errors import DatabaseError
from tileferry.domain.tiles import Area, Flight, FlightArea, SectorClass, Shape
from tileferry.domain.tiles.shape import shape_to_geojson
from tileferry.entrypoints.web import map_overlay
from tileferry.entrypoints.web.snapshots import Snapshot


def test_root_redirects_to_the_map(client: httpx.Client) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/map")


def test_overlay_has_areas_and_holes_of_a_flight(client: httpx.Client) -> None:
    found = load_overlay(client, "F7")
    kinds = [feature["kind"] for feature in found["features"]]
    assert kinds.count("area") == 1
    assert "hole" in kinds
    assert found["is_complete"]
    assert found["zooms"] == [10, 14]
    assert "NO-GO" in found["html"]
    assert f'data-tile="14/{HOLE.x}/{HOLE.y}"' in found["html"], "a link for the keyboard"


def test_overlay_draws_the_shape_of_an_area() -> None:
    shape = Shape.from_degrees(lines=[[(36.1, 49.9), (36.2, 50.0)]])
    area = Area.from_place(shape, [10], SectorClass.STABLE_REAR)
    now = datetime(2026, 11, 1, tzinfo=UTC)
    flight = Flight(
        flight_id="F9",
        areas=[
            FlightArea(source="sat", area=one, added_at=now)
            for one in (area, evolve(area, shape=None))
        ],
    )
    drawn, box = map_overlay._iter_areas(flight, None)
    assert drawn["shape"] == shape_to_geojson(shape)
    assert drawn["bbox"] == box["bbox"]
    assert box["shape"] is None


def load_overlay(client: httpx.Client, flight: str, **query: str) -> Any:
    """Return an overlay as the browser loads it: again until it is computed."""
    found: dict[str, Any] = {}

    def ask() -> bool:
        found.update(client.get("/map/overlay", params={"flight": flight, **query}).json())
        return bool(found["is_ready"])

    wait_until(ask, "the overlay")
    return found


def test_overlay_is_filtered_by_zoom(client: httpx.Client) -> None:
    found = load_overlay(client, "F7", zoom="10")
    assert [feature["kind"] for feature in found["features"]] == ["area"]
    assert load_overlay(client, "F7", zoom="12")["features"] == []
    answer = client.get("/map/overlay?flight=F7&zoom=x")
    assert (answer.status_code, "zoom" in answer.text) == (400, True)


def test_damage_is_found_only_if_the_tiles_are_read(client: httpx.Client) -> None:
    unread = load_overlay(client, "F7")["html"]
    assert 'damaged in the cache <span class="quiet">0<' not in unread
    read = load_overlay(client, "F7", damage="1")["html"]
    assert 'damaged in the cache <span class="quiet">0<' in read


def test_overlay_that_takes_long_is_asked_for_again(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    build = FlightOverlays.build

    def build_later(self: FlightOverlays, flight: Flight, *, quick: bool) -> FlightOverlay:
        go_on.wait(10)
        return build(self, flight, quick=quick)

    monkeypatch.setattr(FlightOverlays, "build", build_later)
    monkeypatch.setattr(map_overlay.Overlays, "get", _new_snapshot)
    early = client.get("/map/overlay?flight=F7").json()
    go_on.set()
    assert (early["is_ready"], "checking" in early["html"]) == (False, True)
    assert [feature["kind"] for feature in early["features"]] == ["area"]


def _new_snapshot(
    _self: map_overlay.Overlays, _key: object, compute: Callable[[], FlightOverlay]
) -> Snapshot[FlightOverlay]:
    return Snapshot(compute)


def test_failed_check_is_explained(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> FlightOverlay:
        raise DatabaseError(problem="the server is away", remedy="wait")

    monkeypatch.setattr(FlightOverlays, "build", fail)
    monkeypatch.setattr(map_overlay.Overlays, "get", _new_snapshot)
    found = load_overlay(client, "F7")
    assert "the server is away" in found["html"]


def test_unknown_flight_is_explained_as_on_the_command_line(client: httpx.Client) -> None:
    answer = client.get("/map/overlay?flight=none")
    assert answer.status_code == 404
    assert "flight none not found" in answer.text
    assert "tileferry flight list" in answer.text
