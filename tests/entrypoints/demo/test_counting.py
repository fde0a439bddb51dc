"""What the demo counts: the provider's record held against the map of what was safe."""

from typing import Any

from tileferry.entrypoints.demo.counting import Notebook, delivered, downloaded, tiles_of


def asked(tile: str | None, *, status: int | None = 200, fault: str | None = None) -> Any:
    return {"kind": "request", "tile": tile, "status": status, "fault": fault}


def holes(*tiles: str) -> Any:
    places = [tuple(map(int, tile.split("/"))) for tile in tiles]
    return {
        "features": [
            {
                "properties": {
                    "kind": "hole",
                    "zoom": z,
                    "x_min": x,
                    "x_max": x,
                    "y_min": y,
                    "y_max": y,
                }
            }
            for z, x, y in places
        ]
    }


BEFORE = [
    asked(None),  # a listing
    asked("14/1/1"),
    asked("14/1/2", status=503, fault="503"),
    asked("14/1/2"),
    asked("14/1/3"),  # on its way when the power went
]
AFTER = [
    asked(None),
    asked("14/1/3"),
    asked("14/1/4", fault="truncate"),
    asked("14/1/4", status=None, fault="cut"),
    asked("14/1/4"),
]


def notebook(**changes: Any) -> Notebook:
    places = {"before_download": 1, "before_resuming": 6, "after_download": 11}
    return Notebook(**{**places, "killed": holes("14/1/3", "14/1/4"), **changes})


def test_every_request_of_the_download_is_accounted_for() -> None:
    lines = [asked("14/1/1"), *BEFORE, *AFTER, asked("13/0/0")]  # a sample before, a run later
    count = downloaded(lines, notebook())
    assert count.tiles == {"14/1/1", "14/1/2", "14/1/3", "14/1/4"}
    assert count.safe == {"14/1/1", "14/1/2"}
    assert (count.requests, count.failed, count.in_the_air, count.twice) == (8, 3, 1, 0)
    assert count.requests == len(count.tiles) + count.failed + count.in_the_air
    assert count.attempts == {1: 2, 2: 1, 3: 1}


def test_a_safe_tile_that_is_asked_for_again_is_found() -> None:
    lines = [asked("14/1/1"), *BEFORE, *AFTER, asked("14/1/1")]
    assert downloaded(lines, notebook(after_download=12)).twice == 1


def test_a_patch_of_a_map_is_all_of_its_tiles() -> None:
    patch = {"kind": "hole", "zoom": 14, "x_min": 3, "x_max": 4, "y_min": 7, "y_max": 8}
    drawn = {"features": [{"properties": patch}, {"properties": {**patch, "kind": "stale"}}]}
    assert [*tiles_of(drawn, "hole")] == ["14/3/7", "14/3/8", "14/4/7", "14/4/8"]


def test_what_was_delivered_is_the_providers_word() -> None:
    lines = [
        {"kind": "upload", "tile_id": "flight-x/16/1/1", "status": "accepted"},
        {"kind": "upload", "tile_id": "flight-x/16/1/2", "status": "rejected"},
        asked("14/1/1"),
    ]
    count = delivered(lines, {"giveups": [{"tile_id": "flight-x/16/1/2", "attempts": 5}]})
    assert count.accepted == {"16/1/1"}
    assert count.given_up == {"16/1/2"}
    assert count.attempts == {1: 1, 5: 1}
