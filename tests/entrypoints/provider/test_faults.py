"""Every fault, seen on the wire."""

import json
import time
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Any

import httpx
import pytest
from support.provider import PRODUCED_AT, RunningProvider
from support.provider_uploads import batch

from tileferry.entrypoints.provider.faults import FAULTS

TILES = "/api/satellite/tiles"
TILE = f"{TILES}/15/19679/11098"
AREA = {"bbox": "36.10,49.95,36.20,50.02", "zoom": "14,15", "list-only": "true"}
CAPTURE = "cam/15/19000/11000"

Sees = Callable[[RunningProvider, httpx.Client], None]
SEEN: dict[str, Sees] = {}


def sees(*names: str) -> Callable[[Sees], Sees]:
    """Enter a check under the names of the faults that it sees."""

    def enter(check: Sees) -> Sees:
        SEEN.update(dict.fromkeys(names, check))
        return check

    return enter


@pytest.mark.parametrize("name", FAULTS)
def test_fault(provider: RunningProvider, client: httpx.Client, name: str) -> None:
    SEEN[name](provider, client)


def listing(client: httpx.Client, **more: str) -> httpx.Response:
    return client.get(TILES, params={**AREA, **more})


def first_tile(client: httpx.Client) -> dict[str, Any]:
    tile: dict[str, Any] = listing(client).json()["tiles"][0]
    return tile


def last_fault(provider: RunningProvider) -> tuple[str | None, int | None]:
    line = provider.requests[-1]
    return line.fault, line.status


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


# Bodies


def body_until_it_breaks(client: httpx.Client, path: str = TILE) -> tuple[int, int, str]:
    """Return the declared length, what came of it, and how it ended."""
    got = 0
    with client.stream("GET", path) as response:
        declared = int(response.headers["Content-Length"])
        try:
            for piece in response.iter_raw():
                got += len(piece)
        except httpx.TransportError as error:
            return declared, got, type(error).__name__
    return declared, got, "complete"


@sees("reset")
def _reset(provider: RunningProvider, client: httpx.Client) -> None:
    whole = len(client.get(TILE).content)
    provider.misbehave({"fault": "reset"})
    assert body_until_it_breaks(client) == (whole, whole // 2, "ReadError")
    assert last_fault(provider) == ("reset", 200)


@sees("truncate")
def _truncated(provider: RunningProvider, client: httpx.Client) -> None:
    whole = len(client.get(TILE).content)
    provider.misbehave({"fault": "truncate"})
    assert body_until_it_breaks(client) == (whole, whole // 2, "RemoteProtocolError")


@sees("stall")
def _stalled(provider: RunningProvider, client: httpx.Client) -> None:
    whole = len(client.get(TILE).content)
    provider.misbehave({"fault": "stall"})
    client.timeout = httpx.Timeout(20.0, read=0.8)
    assert body_until_it_breaks(client) == (whole, whole // 2, "ReadTimeout")


@sees("no-answer")
def _never_answered(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "no-answer"})
    with pytest.raises(httpx.ReadTimeout):
        client.get(TILE, timeout=httpx.Timeout(20.0, read=0.3))
    assert last_fault(provider) == ("no-answer", None)


@sees("slow")
def _slow(provider: RunningProvider, client: httpx.Client) -> None:
    content = client.get(TILE).content
    provider.misbehave({"fault": "slow", "bytes_per_s": 40_000})
    started_s = time.monotonic()
    assert client.get(TILE).content == content
    assert time.monotonic() - started_s >= 0.9 * len(content) / 40_000


@sees("wrong-digest")
def _wrong_digest(provider: RunningProvider, client: httpx.Client) -> None:
    good = client.get(TILE)
    provider.misbehave({"fault": "wrong-digest"})
    bad = client.get(TILE)
    assert bad.content == good.content
    assert bad.headers["Repr-Digest"] != good.headers["Repr-Digest"]
    assert len(b64decode(bad.headers["Repr-Digest"][9:-1], validate=True)) == 32


@sees("flipped-bit")
def _flipped(provider: RunningProvider, client: httpx.Client) -> None:
    good = client.get(TILE)
    provider.misbehave({"fault": "flipped-bit"})
    bad = client.get(TILE)
    changed = [a ^ b for a, b in zip(good.content, bad.content, strict=True) if a != b]
    assert changed == [1]
    assert bad.headers["Repr-Digest"] == good.headers["Repr-Digest"]


@sees("wrong-type")
def _wrong_type(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "wrong-type"})
    assert client.get(TILE).headers["Content-Type"] == "text/html"
    assert listing(client).headers["Content-Type"] == "text/html"


@sees("no-headers")
def _no_headers(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "no-headers"})
    response = client.get(TILE)
    assert response.status_code == 200
    for name in ("X-Resolution-M-Per-Px", "X-Produced-At", "Repr-Digest"):
        assert name not in response.headers


@sees("bad-headers")
def _bad_headers(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "bad-headers"})
    headers = client.get(TILE).headers
    assert (headers["X-Resolution-M-Per-Px"], headers["X-Produced-At"]) == ("NaN", "yesterday")


@sees("bomb")
def _bomb(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "bomb", "bytes": 3_000_000})
    headers = {"Accept-Encoding": "identity"}
    with client.stream("GET", TILE, headers=headers) as response:
        packed = b"".join(response.iter_raw())
    assert response.headers["Content-Encoding"] == "gzip"
    assert len(packed) < 10_000
    assert client.get(TILE, headers=headers).content == bytes(3_000_000)


@sees("oversize")
def _oversize(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "oversize", "times": 1}, {"fault": "oversize", "bytes": 200_000})
    with client.stream("GET", TILE) as response:
        assert int(response.headers["Content-Length"]) == 64 * 1024 * 1024 + 1
        assert next(response.iter_raw())
    assert body_until_it_breaks(client) == (200_000, 200_000, "complete")


@sees("endless-body")
def _endless_body(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "endless-body"})
    got = 0
    with client.stream("GET", TILE) as response:
        assert "Content-Length" not in response.headers
        for piece in response.iter_raw():
            got += len(piece)
            if got > 2_000_000:
                break
    assert got > 2_000_000


@sees("cut")
def _cut(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "cut"})
    with pytest.raises(httpx.ReadError):
        client.get(TILE)
    with pytest.raises(httpx.ReadError):
        batch({CAPTURE: b"x"}).send(client)
    assert last_fault(provider) == ("cut", None)
    assert provider.uploads == []


@sees("lost-answer")
def _lost_answer(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "lost-answer", "attempts": [1]})
    upload = batch({CAPTURE: b"x"})
    with pytest.raises(httpx.ReadError):
        upload.send(client)
    assert [line.status for line in provider.uploads] == ["accepted"]
    repeated = upload.send(client)
    assert [result["status"] for result in repeated.json()["results"]] == ["accepted"]
    assert len(provider.uploads) == 1  # carried out once


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


# Listings


@sees("missing-field")
def _missing_field(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "missing-field", "field": "x"})
    first, second, *_ = listing(client).json()["tiles"]
    assert set(second) - set(first) == {"x"}


@sees("renamed-field")
def _renamed_field(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "renamed-field"})
    first, second, *_ = listing(client).json()["tiles"]
    assert set(second) ^ set(first) == {"produced_at", "made_at"}


def _text(name: str, expected: str) -> None:
    def check(provider: RunningProvider, client: httpx.Client) -> None:
        provider.misbehave({"fault": name})
        assert expected in listing(client).text

    SEEN[name] = check


_text("nan", '"resolution_m_per_px": NaN')
_text("infinity", '"resolution_m_per_px": Infinity')
_text("huge-int", '"estimated_bytes": 1' + 400 * "0" + "}")
_text("wrong-kind", '"x": "seven"')
_text("out-of-range", '"x": 1099511627776')
_text("nul", '"produced_at": "2026-01-01T00:00:00Z\\u0000"')
_text("surrogate", '"produced_at": "\\ud800"')
_text("control-text", '"produced_at": "\\u001b[2Jgone\\n\\u202e"')
_text("unasked-tile", '{"z": 20, ')
_text("duplicate-key", '{"z": 3, "z": 14, ')


@sees("repeated-tile")
def _repeated_tile(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "repeated-tile"})
    tiles = listing(client).json()["tiles"]
    assert tiles[0] == tiles[1] != tiles[2]


@sees("huge-page")
def _huge_page(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "huge-page", "items": 5_000})
    assert len(listing(client).json()["tiles"]) == 5_000


@sees("repeated-cursor")
def _repeated_cursor(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "repeated-cursor"})
    cursor = listing(client).json()["next"]
    assert cursor is not None
    assert [listing(client, cursor=cursor).json()["next"] for _ in range(3)] == [cursor] * 3


@sees("endless")
def _endless(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "endless"})
    cursors, page = [], listing(client, zoom="14").json()
    tiles_first = page["tiles"]
    tiles_again = 0
    for _ in range(20):
        cursors.append(page["next"])
        page = listing(client, zoom="14", cursor=page["next"]).json()
        tiles_again += page["tiles"] == tiles_first
    assert len(set(cursors)) == 20
    assert tiles_again >= 2


@sees("garbage-json", "not-utf8")
def _garbage(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "garbage-json"})
    garbage = listing(client).content
    assert garbage.startswith(b"<html>")
    provider.misbehave({"fault": "not-utf8"})
    for content in (garbage, listing(client).content):
        with pytest.raises(ValueError, match=r"Expecting value|can't decode|codec"):
            json.loads(content.decode("utf-8"))


@sees("deep-json")
def _deep(provider: RunningProvider, client: httpx.Client) -> None:
    provider.misbehave({"fault": "deep-json"})
    assert listing(client).content == b"[" * 100_000 + b"]" * 100_000


# And afterwards


def test_after_faults_that_broke_connections_everything_is_well(
    provider: RunningProvider, client: httpx.Client
) -> None:
    provider.misbehave(*({"fault": name, "times": 3} for name in ("reset", "cut", "truncate")))
    for _ in range(9):
        with pytest.raises(httpx.TransportError):
            client.get(TILE)
    response = client.get(TILE)
    digest = b64decode(response.headers["Repr-Digest"][9:-1])
    assert digest == sha256(response.content).digest()
    faults = [line.fault for line in provider.requests]
    assert faults == ["reset"] * 3 + ["cut"] * 3 + ["truncate"] * 3 + [None]
