"""Every fault of a body, seen on the wire."""

import time
from base64 import b64decode
from hashlib import sha256

import httpx
import pytest
from support.fault_calls import CAPTURE, SEEN, TILE, last_fault, listing, sees
from support.provider import RunningProvider
from support.provider_uploads import batch

from tileferry.entrypoints.provider.faults.bodies import BODY_FAULTS


@pytest.mark.parametrize("name", [fault.name for fault in BODY_FAULTS])
def test_fault(provider: RunningProvider, client: httpx.Client, name: str) -> None:
    SEEN[name](provider, client)


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
