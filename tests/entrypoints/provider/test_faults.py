"""Every fault of a status or a tile, seen on the wire; those of bodies and pages stand beside."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import pytest
from support.fault_calls import CAPTURE, SEEN, TILE, TILES, Sees, last_fault, listing, sees
from support.provider import PRODUCED_AT, RunningProvider
from support.provider_uploads import batch

from tileferry.entrypoints.provider.faults import FAULTS
from tileferry.entrypoints.provider.faults.bodies import BODY_FAULTS
from tileferry.entrypoints.provider.faults.pages import PAGE_FAULTS

ELSEWHERE = {fault.name for fault in (*BODY_FAULTS, *PAGE_FAULTS)}


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ELSEWHERE])
def test_fault(provider: RunningProvider, client: httpx.Client, name: str) -> None:
    SEEN[name](provider, client)


# Statuses


@sees("429")
def _rate_limited(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "429", "times": 1}, {"fault": "429", "retry_after": "NaN"})
    plain, odd = client.get(TILE), client.get(TILE)
    assert (plain.status_code, plain.headers["Retry-After"]) == (429, "1")
    assert (odd.status_code, odd.headers["Retry-After"]) == (429, "NaN")
    assert last_fault(provider) == ("429", 429)


@sees("429-date")
def _rate_limited_until(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "429-date", "retry_after": 60})
    response = listing(client)
    ahead = parsedate_to_datetime(response.headers["Retry-After"]) - datetime.now(UTC)
    assert response.status_code == 429
    assert timedelta(seconds=30) < ahead <= timedelta(seconds=60)


@sees("429-bare")
def _rate_limited_silently(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "429-bare"})
    response = client.get(TILE)
    assert response.status_code == 429
    assert "Retry-After" not in response.headers


def _status(status: int, *, retry_after: bool) -> Sees:
    def check(provider: RunningProvider, client: httpx.Client) -> None:
        rule: dict[str, Any] = {"fault": str(status)}
        provider.misbehave(rule)
        uploaded = batch({CAPTURE: b"x"}).send(client)
        for response in (client.get(TILE), listing(client), uploaded):
            assert response.status_code == status
            assert set(response.json()) == {"error", "message"}
            assert "Retry-After" not in response.headers
        assert provider.uploads == []
        if retry_after:
            provider.misbehave({**rule, "retry_after": 7})
            assert client.get(TILE).headers["Retry-After"] == "7"

    return check


for _code in (500, 502, 503, 504):
    SEEN[str(_code)] = _status(_code, retry_after=True)
for _code in (401, 403):
    SEEN[str(_code)] = _status(_code, retry_after=False)


@sees("404")
def _missing(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "404", "rate": 0.5})
    tiles = [f"{TILES}/15/19679/{y}" for y in range(11_090, 11_100)]
    first = [client.get(tile).status_code for tile in tiles]
    assert set(first) == {200, 404}
    assert [client.get(tile).status_code for tile in tiles] == first  # they stay missing


@sees("redirect")
def _redirected(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "redirect"})
    response = client.get(TILE, follow_redirects=False)
    assert response.status_code == 307
    assert response.headers["Location"].startswith("https://elsewhere.invalid/")
    provider.misbehave({"fault": "redirect", "to": "http://127.0.0.1:1", "status": 301})
    moved = listing(client)
    assert (moved.status_code, moved.headers["Location"]) == (301, "http://127.0.0.1:1/elsewhere")


# Tiles


@sees("stale")
def _stale(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "stale", "tile": "14/9834/*"})
    old = (PRODUCED_AT - timedelta(days=400)).strftime("%Y-%m-%dT%H:%M:%SZ")
    for tile in listing(client).json()["tiles"]:
        header = client.get(f"{TILES}/{tile['z']}/{tile['x']}/{tile['y']}").headers
        is_stale = (tile["z"], tile["x"]) == (14, 9834)
        assert tile["produced_at"] == (old if is_stale else "2026-10-01T00:00:00Z")
        assert header["X-Produced-At"] == tile["produced_at"]


@sees("sub-spec")
def _sub_spec(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "sub-spec", "rate": 0.4})
    tiles = listing(client).json()["tiles"]
    listed = [tile["resolution_m_per_px"] for tile in tiles]
    assert set(listed) == {0.3, 0.6}
    for tile, resolution in zip(tiles, listed, strict=True):
        response = client.get(f"{TILES}/{tile['z']}/{tile['x']}/{tile['y']}")
        assert float(response.headers["X-Resolution-M-Per-Px"]) == resolution
    provider.misbehave({"fault": "sub-spec", "call": "tile"})  # the listing promises more
    assert {tile["resolution_m_per_px"] for tile in listing(client).json()["tiles"]} == {0.6}
    assert client.get(TILE).headers["X-Resolution-M-Per-Px"] == "0.3"


@sees("poison")
def _poison(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "poison", "tile": CAPTURE, "reason": "no image"})
    other = "cam/15/19000/11001"
    for key in ("key-1", "key-2"):
        results = batch({CAPTURE: b"x", other: b"y"}, key=key).send(client).json()["results"]
        assert (results[0]["status"], results[0]["reason"]) == ("rejected", "no image")
        assert results[1]["status"] == ("accepted" if key == "key-1" else "duplicate")
    provider.misbehave({"fault": "poison", "tile": CAPTURE, "times": 1})
    keys = ("key-3", "key-4")
    answers = [batch({CAPTURE: b"x"}, key=key).send(client).json() for key in keys]
    assert [answer["results"][0]["status"] for answer in answers] == ["rejected", "accepted"]
