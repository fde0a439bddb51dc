"""Listing an area and fetching its tiles, over loopback."""

import asyncio
import io
from base64 import b64decode
from hashlib import sha256
from typing import Any

import httpx
import pytest
from PIL import Image
from support.provider import API_KEY, RunningProvider, serve_provider

from tileferry.domain.tiles import BBox, TileCoverage

TILES = "/api/satellite/tiles"
AREA = {"bbox": "36.10,49.95,36.20,50.02", "zoom": "14,15", "list-only": "true"}


def read_pages(client: httpx.Client, **query: str) -> list[dict[str, Any]]:
    """Read a listing to its end."""
    found, cursor = [], None
    while True:
        asked = {**query, **({} if cursor is None else {"cursor": cursor})}
        page = client.get(TILES, params=asked).raise_for_status().json()
        found.append(page)
        cursor = page["next"]
        if cursor is None:
            return found


def read_error(response: httpx.Response) -> tuple[int, str]:
    body = response.json()
    assert set(body) == {"error", "message"}
    assert body["message"]
    return response.status_code, body["error"]


@pytest.mark.parametrize(
    ("bbox", "zoom"),
    [
        ("36.10,49.95,36.20,50.02", "14,15"),
        ("36.10,49.95,36.20,50.02", "15,14,15"),
        ("179.9,-0.1,-179.9,0.1", "12"),  # across the antimeridian
        ("-180,-85,180,85", "0,1,2"),
    ],
)
def test_design_6_listing_has_every_tile_of_area_in_order(
    client: httpx.Client, bbox: str, zoom: str
) -> None:
    found = read_pages(client, **{"bbox": bbox, "zoom": zoom, "list-only": "true"})
    listed = [(tile["z"], tile["x"], tile["y"]) for page in found for tile in page["tiles"]]
    coverage = TileCoverage(bbox=BBox.parse(bbox), zoom_levels=map(int, zoom.split(",")))
    assert listed == [(tile.zoom, tile.x, tile.y) for tile in coverage.tiles("any")]
    assert all(len(page["tiles"]) == 10 for page in found[:-1])


def test_design_6_listing_entry_fields(client: httpx.Client) -> None:
    page = client.get(TILES, params=AREA).json()
    assert page["tiles"][0] == {
        "z": 14,
        "x": 9834,
        "y": 5555,
        "produced_at": "2026-10-01T00:00:00Z",
        "resolution_m_per_px": 0.6,
        "estimated_bytes": 16_000,
    }


def test_last_page_of_huge_area_is_fast(client: httpx.Client) -> None:
    asked = {"bbox": "-180,-85,180,85", "zoom": "21", "list-only": "true"}
    first = client.get(TILES, params=asked).json()
    coverage = TileCoverage(bbox=BBox.parse(asked["bbox"]), zoom_levels=[21])
    turn, _, check = first["next"].split("-")
    cursor = f"{turn}-{coverage.count - 3}-{check}"
    response = client.get(TILES, params={**asked, "cursor": cursor})
    assert response.elapsed.total_seconds() < 2
    last = response.json()
    (whole,) = coverage.ranges
    assert last["next"] is None
    assert [(tile["x"], tile["y"]) for tile in last["tiles"]] == [
        (whole.x_max, whole.y_max - 2),
        (whole.x_max, whole.y_max - 1),
        (whole.x_max, whole.y_max),
    ]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"bbox": "1,2,3"}, "bad_bbox"),
        ({"bbox": "36.2,50,36.1,49"}, "bad_bbox"),
        ({"bbox": None}, "bad_bbox"),
        ({"zoom": "fifteen"}, "bad_zoom"),
        ({"zoom": "22"}, "bad_zoom"),
        ({"zoom": None}, "bad_zoom"),
        ({"list-only": "false"}, "bad_query"),
        ({"list-only": None}, "bad_query"),
        ({"page": "2"}, "bad_query"),
        ({"zoom": ["14", "15"]}, "bad_query"),
        ({"cursor": "anything"}, "bad_cursor"),
        ({"cursor": "0-10-000000000000"}, "bad_cursor"),
    ],
)
def test_invalid_query_is_rejected_by_name(
    client: httpx.Client, changes: dict[str, Any], code: str
) -> None:
    asked = {name: text for name, text in {**AREA, **changes}.items() if text is not None}
    assert read_error(client.get(TILES, params=asked)) == (400, code)


def test_cursor_is_valid_only_for_its_area(client: httpx.Client) -> None:
    cursor = client.get(TILES, params=AREA).json()["next"]
    other = {**AREA, "zoom": "15", "cursor": cursor}
    assert read_error(client.get(TILES, params=other)) == (400, "bad_cursor")
    turn, _, check = cursor.split("-")
    beyond = {**AREA, "cursor": f"{turn}-1000000-{check}"}
    assert read_error(client.get(TILES, params=beyond)) == (400, "bad_cursor")


def test_design_6_tile_response_headers(client: httpx.Client) -> None:
    response = client.get(f"{TILES}/15/19679/11098")
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "image/jpeg"
    assert int(response.headers["Content-Length"]) == len(response.content)
    assert response.headers["X-Resolution-M-Per-Px"] == "0.6"
    assert response.headers["X-Produced-At"] == "2026-10-01T00:00:00Z"
    digest = response.headers["Repr-Digest"]
    assert (digest[:9], digest[-1]) == ("sha-256=:", ":")
    assert b64decode(digest[9:-1], validate=True) == sha256(response.content).digest()
    assert Image.open(io.BytesIO(response.content)).size == (256, 256)


@pytest.mark.parametrize(
    "tile", ["15/19679/32768", "22/1/1", "15/01/1", "15/-1/1", "a/b/c", "15/1/%00", "15/1/²"]
)
def test_invalid_tile_is_rejected(client: httpx.Client, tile: str) -> None:
    assert read_error(client.get(f"{TILES}/{tile}")) == (400, "bad_tile")


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/", 404), ("GET", f"{TILES}/15/1", 404), ("DELETE", TILES, 405),
])  # fmt: skip
def test_unknown_call_returns_error_body(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    assert read_error(client.request(method, path)) == (status, "no_such_call")


@pytest.mark.parametrize(("method", "path"), [
    ("GET", TILES), ("GET", f"{TILES}/15/19679/11098"), ("POST", TILES),
])  # fmt: skip
def test_every_call_requires_key(provider: RunningProvider, method: str, path: str) -> None:
    with provider.client(api_key=None) as stranger:
        missing = stranger.request(method, path)
        assert read_error(missing) == (401, "unauthorized")
        assert missing.headers["WWW-Authenticate"] == "Bearer"
        basic = stranger.request(method, path, headers={"Authorization": f"Basic {API_KEY}"})
        assert read_error(basic) == (401, "unauthorized")
    with provider.client(api_key=API_KEY[:-1]) as impostor:
        assert read_error(impostor.request(method, path)) == (403, "forbidden")
    assert [line.status for line in provider.requests] == [401, 401, 403]


def test_true_resolution_depends_on_zoom_and_latitude() -> None:
    with serve_provider(resolution_m_per_px=None) as provider, provider.client() as client:
        asked = {"bbox": "36.10,49.95,36.11,49.96", "zoom": "15,16", "list-only": "true"}
        entries = client.get(TILES, params=asked).json()["tiles"]
        header = client.get(f"{TILES}/0/0/0").headers["X-Resolution-M-Per-Px"]
    said = {entry["z"]: entry["resolution_m_per_px"] for entry in entries}
    assert said == {15: 3.07, 16: 1.54}  # 156543 m/px * cos(49.96°) / 2**zoom
    assert float(header) == 156_543.03


@pytest.mark.parametrize("path", ["/_provider/record", "/_provider/uploads"])
def test_record_is_served_to_localhost_only(provider: RunningProvider, path: str) -> None:
    async def status_for(host: str) -> int:
        transport = httpx.ASGITransport(provider.server.provider.app, client=(host, 4_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return (await client.get(path)).status_code

    statuses = [asyncio.run(status_for(host)) for host in ("127.0.0.1", "::1", "203.0.113.9")]
    assert statuses == [200, 200, 403]


def test_record_lists_every_request_without_key(
    provider: RunningProvider, client: httpx.Client
) -> None:
    client.get(TILES, params=AREA)
    client.get(f"{TILES}/15/19679/11098")
    client.get(f"{TILES}/15/19679/11098")
    lines = client.get("/_provider/record").json()["requests"]
    assert [(line["call"], line["tile"], line["attempt"], line["status"]) for line in lines] == [
        ("listing", None, 1, 200),
        ("tile", "15/19679/11098", 1, 200),
        ("tile", "15/19679/11098", 2, 200),
    ]
    assert "zoom=14%2C15" in lines[0]["query"]
    assert API_KEY not in str(lines)
    assert provider.fetched == {"15/19679/11098": 2}
