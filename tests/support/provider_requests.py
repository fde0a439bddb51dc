"""The calls of a provider, as the tests of its faults make them."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import httpx
from attrs import evolve, frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.provider import RunningProvider

LISTING_PATH = "/api/satellite/tiles"
TILE_PATH = f"{LISTING_PATH}/15/19679/11098"
LISTING_PARAMS = {"bbox": "36.10,49.95,36.20,50.02", "zoom": "14,15", "list-only": "true"}
CAPTURE = "cam/15/19000/11000"

FaultCheck = Callable[[RunningProvider, httpx.Client], None]
FAULT_CHECKS: dict[str, FaultCheck] = {}


def checks_fault(*names: str) -> Callable[[FaultCheck], FaultCheck]:
    """Enter a check under the names of the faults that it sees."""

    def enter(check: FaultCheck) -> FaultCheck:
        FAULT_CHECKS.update(dict.fromkeys(names, check))
        return check

    return enter


def get_listing(client: httpx.Client, **more: str) -> httpx.Response:
    """Ask for a page of the listing."""
    return client.get(LISTING_PATH, params={**LISTING_PARAMS, **more})


def get_last_fault(provider: RunningProvider) -> tuple[str | None, int | None]:
    """Return what the provider notes of the last request: its fault, and its status."""
    line = provider.requests[-1]
    return line.fault, line.status


TILES = "/api/satellite/tiles"
FLIGHT = "F1"
TIMESTAMP = "2026-11-01T12:00:00Z"
_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def create_manifest_entry(tile_id: str, content: bytes, **changes: Any) -> dict[str, Any]:
    """One tile of a manifest."""
    return {
        "tile_id": tile_id,
        "captured_at": TIMESTAMP,
        "resolution_m_per_px": 0.6,
        "sha256": sha256(content).hexdigest(),
        "size": len(content),
        **changes,
    }


@frozen
class Upload:
    """A request that has not been sent yet."""

    body: bytes
    headers: dict[str, str]

    def send(self, client: httpx.Client) -> httpx.Response:
        return client.post(TILES, content=self.body, headers=self.headers)

    def with_headers(self, **changes: str | None) -> "Upload":
        named = {name.replace("_", "-"): text for name, text in changes.items()}
        headers = {**self.headers, **named}
        kept = {name: text for name, text in headers.items() if text is not None}
        return evolve(self, headers=kept)


def sign_upload(
    body: bytes,
    content_type: str,
    *,
    key: str = "key-1",
    flight_id: str = FLIGHT,
    call: tuple[str, str] = ("POST", TILES),
) -> Upload:
    """Sign a body."""
    lines = (*call, sha256(body).hexdigest(), key, TIMESTAMP, flight_id)
    signature = _KEY.sign("\n".join(lines).encode())
    return Upload(
        body,
        {
            "Content-Type": content_type,
            "Idempotency-Key": key,
            "X-Flight-Id": flight_id,
            "X-Timestamp": TIMESTAMP,
            "X-Public-Key": b64encode(_KEY.public_key().public_bytes_raw()).decode(),
            "X-Signature": b64encode(signature).decode(),
        },
    )


def encode_multipart(
    parts: Sequence[tuple[str, tuple[str | None, bytes, str]]],
) -> tuple[bytes, str]:
    """Return a body and its content type."""
    request = httpx.Request("POST", "http://x", files=parts)
    return request.read(), request.headers["Content-Type"]


def create_batch_upload(
    tiles: Mapping[str, bytes],
    *,
    key: str = "key-1",
    flight_id: str = FLIGHT,
    manifest: object = None,
) -> Upload:
    """Return an upload of these tiles; ``manifest`` may say other things than what is true."""
    told = {
        "flight_id": flight_id,
        "tiles": [create_manifest_entry(name, tiles[name]) for name in tiles],
    }
    text = json.dumps(told if manifest is None else manifest).encode()
    parts = [("manifest", (None, text, "application/json"))]
    body, kind = encode_multipart(
        [*parts, *((name, (None, tiles[name], "image/jpeg")) for name in tiles)]
    )
    return sign_upload(body, kind, key=key, flight_id=flight_id)
