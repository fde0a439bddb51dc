"""The map page, over HTTP."""

import httpx


def test_root_redirects_to_the_map(client: httpx.Client) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/map")


def test_overlay_has_areas_and_holes_of_a_flight(client: httpx.Client) -> None:
    found = client.get("/map/overlay?flight=F7").json()
    classes = [feature["class"] for feature in found["features"]]
    assert classes.count("flight-area") == 1
    assert "flaw-hole" in classes
    assert found["is_complete"]


def test_unknown_flight_is_explained_as_on_the_command_line(client: httpx.Client) -> None:
    answer = client.get("/map/overlay?flight=none")
    assert answer.status_code == 404
    assert "flight none not found" in answer.text
    assert "tileferry flight list" in answer.text
