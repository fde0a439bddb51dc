"""What the demo counts: the provider's record held against the map of what was safe."""

from typing import Any

from tileferry.entrypoints.demo.findings import DemoNotes, count_download, count_upload, list_tiles


def request_line(tile: str | None, *, status: int | None = 200, fault: str | None = None) -> Any:
    return {"kind": "request", "tile": tile, "status": status, "fault": fault}


def map_with_holes(*tiles: str) -> Any:
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
    request_line(None),  # a listing
    request_line("14/1/1"),
    request_line("14/1/2", status=503, fault="503"),
    request_line("14/1/2"),
    request_line("14/1/3"),  # on its way when the power went
]
AFTER = [
    request_line(None),
    request_line("14/1/3"),
    request_line("14/1/4", fault="truncate"),
    request_line("14/1/4", status=None, fault="cut"),
    request_line("14/1/4"),
]


def make_notebook(**changes: Any) -> DemoNotes:
    places = {"before_download": 1, "before_resuming": 6, "after_download": 11}
    return DemoNotes(**{**places, "killed": map_with_holes("14/1/3", "14/1/4"), **changes})


def test_every_download_request_is_counted() -> None:
    lines = [
        request_line("14/1/1"),
        *BEFORE,
        *AFTER,
        request_line("13/0/0"),
    ]  # a sample before, a run later
    count = count_download(lines, make_notebook())
    assert count.tiles == {"14/1/1", "14/1/2", "14/1/3", "14/1/4"}
    assert count.safe == {"14/1/1", "14/1/2"}
    assert (count.requests, count.failed, count.in_the_air, count.twice) == (8, 3, 1, 0)
    assert count.requests == len(count.tiles) + count.failed + count.in_the_air
    assert count.attempts == {1: 2, 2: 1, 3: 1}


def test_refetch_of_safe_tile_is_detected() -> None:
    lines = [request_line("14/1/1"), *BEFORE, *AFTER, request_line("14/1/1")]
    assert count_download(lines, make_notebook(after_download=12)).twice == 1


def test_map_patch_expands_to_all_its_tiles() -> None:
    patch = {"kind": "hole", "zoom": 14, "x_min": 3, "x_max": 4, "y_min": 7, "y_max": 8}
    drawn = {"features": [{"properties": patch}, {"properties": {**patch, "kind": "stale"}}]}
    assert [*list_tiles(drawn, "hole")] == ["14/3/7", "14/3/8", "14/4/7", "14/4/8"]


def test_delivered_tiles_are_counted_from_provider_record() -> None:
    lines = [
        {"kind": "upload", "tile_id": "flight-x/16/1/1", "status": "accepted"},
        {"kind": "upload", "tile_id": "flight-x/16/1/2", "status": "rejected"},
        request_line("14/1/1"),
    ]
    count = count_upload(lines, {"giveups": [{"tile_id": "flight-x/16/1/2", "attempts": 5}]})
    assert count.accepted == {"16/1/1"}
    assert count.given_up == {"16/1/2"}
    assert count.attempts == {1: 1, 5: 1}
