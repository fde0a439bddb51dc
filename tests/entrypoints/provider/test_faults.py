"""Every fault of a status or a tile, seen on the wire; those of bodies and pages stand beside."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import pytest
from support.provider import PRODUCED_AT, RunningProvider
from support.provider_requests import (
    CAPTURE,
    FAULT_CHECKS,
    LISTING_PATH,
    TILE_PATH,
    FaultCheck,
    checks_fault,
    create_batch_upload,
    get_last_fault,
    get_listing,
)

from tileferry.entrypoints.provider.faults import FAULTS
from tileferry.entrypoints.provider.faults.content_faults import PAGE_FAULTS
from tileferry.entrypoints.provider.faults.response_faults import BODY_FAULTS

ELSEWHERE = {fault.name for fault in (*BODY_FAULTS, *PAGE_FAULTS)}


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ELSEWHERE])
def test_status_or_tile_fault(provider: RunningProvider, client: httpx.Client, name: str) -> None:
    FAULT_CHECKS[name](provider, client)


# Statuses


@checks_fault("429")
def check_429(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "429", "times": 1}, {"fault": "429", "retry_after": "NaN"})
    plain, odd = client.get(TILE_PATH), client.get(TILE_PATH)
    assert (plain.status_code, plain.headers["Retry-After"]) == (429, "1")
    assert (odd.status_code, odd.headers["Retry-After"]) == (429, "NaN")
    assert get_last_fault(provider) == ("429", 429)


@checks_fault("429-date")
def check_429_date(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "429-date", "retry_after": 60})
    response = get_listing(client)
    ahead = parsedate_to_datetime(response.headers["Retry-After"]) - datetime.now(UTC)
    assert response.status_code == 429
    assert timedelta(seconds=30) < ahead <= timedelta(seconds=60)


@checks_fault("429-bare")
def check_429_without_retry_after(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "429-bare"})
    response = client.get(TILE_PATH)
    assert response.status_code == 429
    assert "Retry-After" not in response.headers


def make_status_check(status: int, *, retry_after: bool) -> FaultCheck:
    def check(provider: RunningProvider, client: httpx.Client) -> None:
        rule: dict[str, Any] = {"fault": str(status)}
        provider.set_faults(rule)
        uploaded = create_batch_upload({CAPTURE: b"x"}).send(client)
        for response in (client.get(TILE_PATH), get_listing(client), uploaded):
            assert response.status_code == status
            assert set(response.json()) == {"error", "message"}
            assert "Retry-After" not in response.headers
        assert provider.uploads == []
        if retry_after:
            provider.set_faults({**rule, "retry_after": 7})
            assert client.get(TILE_PATH).headers["Retry-After"] == "7"

    return check


for _code in (500, 502, 503, 504):
    FAULT_CHECKS[str(_code)] = make_status_check(_code, retry_after=True)
for _code in (401, 403):
    FAULT_CHECKS[str(_code)] = make_status_check(_code, retry_after=False)


@checks_fault("404")
def check_404(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "404", "rate": 0.5})
    tiles = [f"{LISTING_PATH}/15/19679/{y}" for y in range(11_090, 11_100)]
    first = [client.get(tile).status_code for tile in tiles]
    assert set(first) == {200, 404}
    assert [client.get(tile).status_code for tile in tiles] == first  # they stay missing


@checks_fault("redirect")
def check_redirect(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "redirect"})
    response = client.get(TILE_PATH, follow_redirects=False)
    assert response.status_code == 307
    assert response.headers["Location"].startswith("https://elsewhere.invalid/")
    provider.set_faults({"fault": "redirect", "to": "http://127.0.0.1:1", "status": 301})
    moved = get_listing(client)
    assert (moved.status_code, moved.headers["Location"]) == (301, "http://127.0.0.1:1/elsewhere")


# Tiles


@checks_fault("stale")
def check_stale(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "stale", "tile": "14/9834/*"})
    old = (PRODUCED_AT - timedelta(days=400)).strftime("%Y-%m-%dT%H:%M:%SZ")
    for tile in get_listing(client).json()["tiles"]:
        header = client.get(f"{LISTING_PATH}/{tile['z']}/{tile['x']}/{tile['y']}").headers
        is_stale = (tile["z"], tile["x"]) == (14, 9834)
        assert tile["produced_at"] == (old if is_stale else "2026-10-01T00:00:00Z")
        assert header["X-Produced-At"] == tile["produced_at"]


@checks_fault("sub-spec")
def check_sub_spec(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "sub-spec", "rate": 0.4})
    tiles = get_listing(client).json()["tiles"]
    listed = [tile["resolution_m_per_px"] for tile in tiles]
    assert set(listed) == {0.3, 0.6}
    for tile, resolution in zip(tiles, listed, strict=True):
        response = client.get(f"{LISTING_PATH}/{tile['z']}/{tile['x']}/{tile['y']}")
        assert float(response.headers["X-Resolution-M-Per-Px"]) == resolution
    provider.set_faults({"fault": "sub-spec", "call": "tile"})  # the listing promises more
    assert {tile["resolution_m_per_px"] for tile in get_listing(client).json()["tiles"]} == {0.6}
    assert client.get(TILE_PATH).headers["X-Resolution-M-Per-Px"] == "0.3"


@checks_fault("poison")
def check_poison(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "poison", "tile": CAPTURE, "reason": "no image"})
    other = "cam/15/19000/11001"
    for key in ("key-1", "key-2"):
        results = (
            create_batch_upload({CAPTURE: b"x", other: b"y"}, key=key)
            .send(client)
            .json()["results"]
        )
        assert (results[0]["status"], results[0]["reason"]) == ("rejected", "no image")
        assert results[1]["status"] == ("accepted" if key == "key-1" else "duplicate")
    provider.set_faults({"fault": "poison", "tile": CAPTURE, "times": 1})
    keys = ("key-3", "key-4")
    answers = [create_batch_upload({CAPTURE: b"x"}, key=key).send(client).json() for key in keys]
    assert [answer["results"][0]["status"] for answer in answers] == ["rejected", "accepted"]
