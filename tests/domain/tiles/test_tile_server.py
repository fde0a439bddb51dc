"""A plain tile server: who may ask it for much, what it is said to have, how fast it is asked."""

from datetime import UTC, date, datetime
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.addresses import is_loopback
from tileferry.domain.errors import InvalidValueError, NotPermittedError
from tileferry.domain.tiles import (
    BBox,
    ListingLimits,
    ListingProgress,
    RequestSpacing,
    TileCoverage,
    TileId,
    TileServer,
    TileTemplate,
    compute_ground_resolution,
)
from tileferry.domain.tiles.bbox import WORLD
from tileferry.domain.tiles.mercator import tile_bounds

HOST = "tiles.example.org"
AREA = BBox(west=36.0, south=50.0, east=37.0, north=50.6)


def make_server(host: str = HOST, **said: Any) -> TileServer:
    return TileServer(
        **{
            "template": TileTemplate(f"https://{host}/{{z}}/{{x}}/{{y}}.png"),
            "attribution": "© Example",
            "licence": "CC-BY-4.0",
            "imagery_date": date(2026, 5, 1),
            "acknowledged_for": host,
            **said,
        }
    )


# Who may be asked


def expect_not_permitted(asked: TileServer) -> NotPermittedError:
    with pytest.raises(NotPermittedError) as refused:
        asked.check_permitted()
    return refused.value


@pytest.mark.parametrize("said", [HOST, f" {HOST.upper()} "])
def test_acknowledged_host_is_permitted(said: str) -> None:
    make_server(acknowledged_for=said).check_permitted()
    make_server(f"{HOST}:8443", acknowledged_for=f"{said.strip()}:8443").check_permitted()


@pytest.mark.parametrize("said", [None, "", "example.org", "https://tiles.example.org", "*", "yes"])
def test_unacknowledged_host_is_rejected_with_remedy(said: str | None) -> None:
    error = expect_not_permitted(make_server(acknowledged_for=said))
    assert error.what == f"downloading in bulk from {HOST}"
    assert f'set xyz.bulk_download_acknowledged_for = "{HOST}"' in error.remedy
    assert "not acknowledged" in error.problem if said is None else repr(said) in error.problem


def test_acknowledgement_covers_one_port() -> None:
    assert (
        "another host"
        in expect_not_permitted(make_server(f"{HOST}:8443", acknowledged_for=HOST)).problem
    )


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("tile.openstreetmap.org", "OpenStreetMap's tile usage policy"),
        ("a.tile.openstreetmap.org", "OpenStreetMap's tile usage policy"),
        ("B.Tile.OpenStreetMap.org.", "OpenStreetMap's tile usage policy"),
        ("tile.openstreetmap.org:443", "OpenStreetMap's tile usage policy"),
        ("maps.wikimedia.org", "the terms of Wikimedia Maps"),
        ("mt1.google.com", "the terms of Google Maps"),
        ("tile.googleapis.com", "the terms of Google Maps"),
        ("khms0.googleapis.com", "the terms of Google Maps"),
        ("www.google.co.uk", "the terms of Google Maps"),
        ("mt2.google.cn", "the terms of Google Maps"),
    ],
)
def test_forbidden_host_is_rejected_despite_acknowledgement(host: str, why: str) -> None:
    error = expect_not_permitted(make_server(host, acknowledged_for=host.lower()))
    assert error.problem.startswith(why)
    assert ", see https://" in error.problem


@pytest.mark.parametrize(
    "host",
    [
        "nottile.openstreetmap.org.example",
        "xtile.openstreetmap.org",
        "google.tiles.example",
        "notgoogle.com",
    ],
)
def test_similar_host_name_is_permitted(host: str) -> None:
    make_server(host).check_permitted()


# What it has


def flatten_pages(found: list[list[str]]) -> list[str]:
    return [tile for page in found for tile in page]


def list_pages(asked: TileServer, coverage: TileCoverage) -> list[list[str]]:
    progress = ListingProgress(coverage=coverage, limits=ListingLimits())
    found, cursor = [], None
    while True:
        page = asked.list_page(coverage, cursor, source="satellite")
        found.append([str(tile.tile_id) for tile in progress.add_page(page)])
        cursor = page.next
        if cursor is None:
            return found


@pytest.mark.parametrize("zooms", [[3], [14], [13, 14], [11, 12, 14]])
def test_pages_list_every_tile_once_within_page_size(zooms: list[int]) -> None:
    coverage = TileCoverage(bbox=AREA, zoom_levels=zooms)
    found = list_pages(make_server(), coverage)
    assert flatten_pages(found) == [str(tile) for tile in coverage.tiles("satellite")]
    assert {len(page) for page in found[:-1]} <= {1_000}
    assert 0 < len(found[-1]) <= 1_000


def test_pages_continue_across_antimeridian() -> None:
    box = BBox(west=179.0, south=-1.0, east=-179.0, north=1.0)
    coverage = TileCoverage(bbox=box, zoom_levels=[12, 13])
    assert flatten_pages(list_pages(make_server(), coverage)) == [
        *map(str, coverage.tiles("satellite"))
    ]


@given(st.integers(0, 700))
def test_tiles_can_be_iterated_from_any_start(start: int) -> None:
    box = BBox(west=179.0, south=-1.0, east=-179.0, north=1.0)
    coverage = TileCoverage(bbox=box, zoom_levels=[10, 11])
    whole = list(coverage.tiles("satellite"))
    assert list(coverage.tiles("satellite", start=start)) == whole[start:]


def test_listed_tile_has_date_resolution_and_estimated_size() -> None:
    coverage = TileCoverage(bbox=AREA, zoom_levels=[14])
    line = make_server(estimated_tile_bytes=777).list_page(coverage, None, source="mine").tiles[0]
    assert (line.tile_id.source, line.estimated_bytes) == ("mine", 777)
    assert line.produced_at == datetime(2026, 5, 1, tzinfo=UTC)
    assert (
        line.resolution_m_per_px
        == compute_ground_resolution(line.tile_id)
        == pytest.approx(6.06, 0.01)
    )


@pytest.mark.parametrize("cursor", ["", "-1", "1.0", "x", "²", "9" * 30, "1000000"])
def test_unknown_cursor_is_rejected(cursor: str) -> None:
    with pytest.raises(InvalidValueError, match="whole number below"):
        make_server().list_page(
            TileCoverage(bbox=AREA, zoom_levels=[14]), cursor, source="satellite"
        )


def test_area_above_tile_limit_is_rejected() -> None:
    coverage = TileCoverage(bbox=AREA, zoom_levels=[14])
    make_server(max_tiles_per_download=coverage.count).list_page(coverage, None, source="satellite")
    with pytest.raises(NotPermittedError, match=r"xyz\.max_tiles_per_download is 100;"):
        make_server(max_tiles_per_download=100).list_page(coverage, None, source="satellite")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, ["0/0/0"]),
        ({"sample": TileId(source="any", zoom=9, x=3, y=4)}, ["9/3/4"]),
        ({"zooms": range(2, 19)}, ["2/2/2"]),
        ({"zooms": range(2, 19), "bounds": AREA}, ["2/2/1", "10/615/345", "18/157650/88563"]),
        (
            {
                "zooms": range(4, 6),
                "bounds": BBox(west=170.0, south=-10.0, east=-160.0, north=-5.0),
            },
            ["4/0/8", "5/0/16"],
        ),
    ],
)
def test_samples_are_tiles_that_the_server_should_have(
    said: dict[str, Any], expected: list[str]
) -> None:
    found = make_server(**said).list_samples("mine")
    assert [str(tile) for tile in found] == [f"mine/{each}" for each in expected]
    assert all(said.get("bounds", WORLD).south < tile_bounds(tile).north for tile in found)


def test_tile_beyond_the_zoom_levels_is_absent() -> None:
    server = make_server(zooms=range(3, 15))
    for zoom, reason in ((2, "the server has zoom levels 3 to 14 only"), (3, None), (14, None)):
        assert server.find_absence(TileId(source="s", zoom=zoom, x=0, y=0)) == reason


@pytest.mark.parametrize(
    ("tile_px", "width_px", "factor"),
    [(256, 256, None), (256, 512, 2), (256, 128, None), (512, 512, None), (512, 256, 1)],
)
def test_resolution_of_an_image(tile_px: int, width_px: int, factor: int | None) -> None:
    tile = TileId(source="s", zoom=14, x=9_830, y=5_544)
    template = TileTemplate(f"https://{HOST}/{{z}}/{{x}}/{{y}}{{r}}", tile_px=tile_px)
    server = make_server(template=template)
    found = server.compute_resolution(tile, width_px)
    assert found == (None if factor is None else compute_ground_resolution(tile) / factor)
    listed = server.list_page(TileCoverage(bbox=AREA, zoom_levels=[14]), None, source="s").tiles[0]
    expected = compute_ground_resolution(listed.tile_id) * 256 / tile_px
    assert listed.resolution_m_per_px == pytest.approx(expected)


@pytest.mark.parametrize("host", ["{s}.tile.openstreetmap.org", "{a-c}.tile.osm.org"])
def test_every_server_of_a_template_must_be_permitted(host: str) -> None:
    assert "forbids bulk" in expect_not_permitted(make_server(host, acknowledged_for=host)).problem
    make_server("{s}.tiles.example.org").check_permitted()


def test_identity_differs_by_server_key_and_imagery_date() -> None:
    told = {
        make_server().compute_identity(""),
        make_server().compute_identity("key"),
        make_server("other.example").compute_identity(""),
        make_server(imagery_date=date(2026, 6, 1)).compute_identity(""),
        make_server(template=evolve(make_server().template, tile_px=512)).compute_identity(""),
    }
    assert len(told) == 5
    assert make_server(attribution="© Somebody").compute_identity("") in told


@pytest.mark.parametrize("name", ["attribution", "licence"])
def test_attribution_and_licence_are_required(name: str) -> None:
    with pytest.raises(InvalidValueError, match=f"TileServer.{name}"):
        make_server(**{name: ""})


# How fast it is asked


def simulate_send_times(rate: float, gaps: list[float]) -> list[float]:
    spacing, now_s, sent = RequestSpacing(max_per_s=rate), 1_000.0, []
    for gap in gaps:
        now_s += gap
        wait_s, spacing = spacing.take_turn(now_s)
        assert wait_s >= 0
        sent.append(now_s + wait_s)
    return sent


@given(st.floats(0.5, 100), st.lists(st.floats(0, 3), min_size=2, max_size=40))
def test_requests_are_spaced_exactly_by_rate(rate: float, gaps: list[float]) -> None:
    sent, asked = simulate_send_times(rate, gaps), 1_000.0 + gaps[0]
    assert sent[0] == asked  # the first goes at once
    for gap, before, after in zip(gaps[1:], sent, sent[1:], strict=False):
        asked += gap
        assert after == pytest.approx(max(asked, before + 1 / rate))
    assert simulate_send_times(rate, gaps) == sent


def test_idle_time_allows_no_burst() -> None:
    spacing = RequestSpacing(max_per_s=2.0)
    waits = []
    for now_s in (0.0, 100.0, 100.0, 100.0, 100.2):
        wait_s, spacing = spacing.take_turn(now_s)
        waits.append(round(wait_s, 6))
    assert waits == [0.0, 0.0, 0.5, 1.0, 1.3]


@pytest.mark.parametrize("rate", [0, 0.001, 101, float("nan"), True])
def test_rate_out_of_bounds_is_rejected(rate: float) -> None:
    with pytest.raises(InvalidValueError, match=r"RequestSpacing\.max_per_s"):
        RequestSpacing(max_per_s=rate)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1"])
def test_loopback_hosts_are_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["localhost.example.org", "128.0.0.1", "::2", "", "127.0.0.1.x"])
def test_other_hosts_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)
