"""Every fault of a body, seen on the wire."""

import time
from base64 import b64decode
from hashlib import sha256

import httpx
import pytest
from support.provider import RunningProvider
from support.provider_requests import (
    CAPTURE,
    FAULT_CHECKS,
    TILE_PATH,
    checks_fault,
    create_batch_upload,
    get_last_fault,
    get_listing,
)

from tileferry.entrypoints.provider.faults.response_faults import BODY_FAULTS


@pytest.mark.parametrize("name", [fault.name for fault in BODY_FAULTS])
def test_body_fault(provider: RunningProvider, client: httpx.Client, name: str) -> None:
    FAULT_CHECKS[name](provider, client)


def read_until_broken(client: httpx.Client, path: str = TILE_PATH) -> tuple[int, int, str]:
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


@checks_fault("reset")
def check_reset(provider: RunningProvider, client: httpx.Client) -> None:
    whole = len(client.get(TILE_PATH).content)
    provider.set_faults({"fault": "reset"})
    assert read_until_broken(client) == (whole, whole // 2, "ReadError")
    assert get_last_fault(provider) == ("reset", 200)


@checks_fault("truncate")
def check_truncate(provider: RunningProvider, client: httpx.Client) -> None:
    whole = len(client.get(TILE_PATH).content)
    provider.set_faults({"fault": "truncate"})
    assert read_until_broken(client) == (whole, whole // 2, "RemoteProtocolError")


@checks_fault("stall")
def check_stall(provider: RunningProvider, client: httpx.Client) -> None:
    whole = len(client.get(TILE_PATH).content)
    provider.set_faults({"fault": "stall"})
    client.timeout = httpx.Timeout(20.0, read=0.8)
    assert read_until_broken(client) == (whole, whole // 2, "ReadTimeout")


@checks_fault("no-answer")
def check_no_answer(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "no-answer"})
    with pytest.raises(httpx.ReadTimeout):
        client.get(TILE_PATH, timeout=httpx.Timeout(20.0, read=0.3))
    assert get_last_fault(provider) == ("no-answer", None)


@checks_fault("slow")
def check_slow(provider: RunningProvider, client: httpx.Client) -> None:
    content = client.get(TILE_PATH).content
    provider.set_faults({"fault": "slow", "bytes_per_s": 40_000})
    started_s = time.monotonic()
    assert client.get(TILE_PATH).content == content
    assert time.monotonic() - started_s >= 0.9 * len(content) / 40_000


@checks_fault("wrong-digest")
def check_wrong_digest(provider: RunningProvider, client: httpx.Client) -> None:
    good = client.get(TILE_PATH)
    provider.set_faults({"fault": "wrong-digest"})
    bad = client.get(TILE_PATH)
    assert bad.content == good.content
    assert bad.headers["Repr-Digest"] != good.headers["Repr-Digest"]
    assert len(b64decode(bad.headers["Repr-Digest"][9:-1], validate=True)) == 32


@checks_fault("flipped-bit")
def check_flipped_bit(provider: RunningProvider, client: httpx.Client) -> None:
    good = client.get(TILE_PATH)
    provider.set_faults({"fault": "flipped-bit"})
    bad = client.get(TILE_PATH)
    changed = [a ^ b for a, b in zip(good.content, bad.content, strict=True) if a != b]
    assert changed == [1]
    assert bad.headers["Repr-Digest"] == good.headers["Repr-Digest"]


@checks_fault("wrong-type")
def check_wrong_type(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "wrong-type"})
    assert client.get(TILE_PATH).headers["Content-Type"] == "text/html"
    assert get_listing(client).headers["Content-Type"] == "text/html"


@checks_fault("no-headers")
def check_no_headers(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "no-headers"})
    response = client.get(TILE_PATH)
    assert response.status_code == 200
    for name in ("X-Resolution-M-Per-Px", "X-Produced-At", "Repr-Digest"):
        assert name not in response.headers


@checks_fault("bad-headers")
def check_bad_headers(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "bad-headers"})
    headers = client.get(TILE_PATH).headers
    assert (headers["X-Resolution-M-Per-Px"], headers["X-Produced-At"]) == ("NaN", "yesterday")


@checks_fault("bomb")
def check_bomb(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "bomb", "bytes": 3_000_000})
    headers = {"Accept-Encoding": "identity"}
    with client.stream("GET", TILE_PATH, headers=headers) as response:
        packed = b"".join(response.iter_raw())
    assert response.headers["Content-Encoding"] == "gzip"
    assert len(packed) < 10_000
    assert client.get(TILE_PATH, headers=headers).content == bytes(3_000_000)


@checks_fault("oversize")
def check_oversize(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "oversize", "times": 1}, {"fault": "oversize", "bytes": 200_000})
    with client.stream("GET", TILE_PATH) as response:
        assert int(response.headers["Content-Length"]) == 64 * 1024 * 1024 + 1
        assert next(response.iter_raw())
    assert read_until_broken(client) == (200_000, 200_000, "complete")


@checks_fault("endless-body")
def check_endless_body(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "endless-body"})
    got = 0
    with client.stream("GET", TILE_PATH) as response:
        assert "Content-Length" not in response.headers
        for piece in response.iter_raw():
            got += len(piece)
            if got > 2_000_000:
                break
    assert got > 2_000_000


@checks_fault("cut")
def check_cut(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "cut"})
    with pytest.raises(httpx.ReadError):
        client.get(TILE_PATH)
    with pytest.raises(httpx.ReadError):
        create_batch_upload({CAPTURE: b"x"}).send(client)
    assert get_last_fault(provider) == ("cut", None)
    assert provider.uploads == []


@checks_fault("lost-answer")
def check_lost_answer(provider: RunningProvider, client: httpx.Client) -> None:
    provider.set_faults({"fault": "lost-answer", "attempts": [1]})
    upload = create_batch_upload({CAPTURE: b"x"})
    with pytest.raises(httpx.ReadError):
        upload.send(client)
    assert [line.status for line in provider.uploads] == ["accepted"]
    repeated = upload.send(client)
    assert [result["status"] for result in repeated.json()["results"]] == ["accepted"]
    assert len(provider.uploads) == 1  # carried out once


# And afterwards


def test_provider_recovers_after_connection_faults(
    provider: RunningProvider, client: httpx.Client
) -> None:
    provider.set_faults(*({"fault": name, "times": 3} for name in ("reset", "cut", "truncate")))
    for _ in range(9):
        with pytest.raises(httpx.TransportError):
            client.get(TILE_PATH)
    response = client.get(TILE_PATH)
    digest = b64decode(response.headers["Repr-Digest"][9:-1])
    assert digest == sha256(response.content).digest()
    faults = [line.fault for line in provider.requests]
    assert faults == ["reset"] * 3 + ["cut"] * 3 + ["truncate"] * 3 + [None]
