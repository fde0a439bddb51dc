"""Uploads: signed, checked tile by tile, and safe to repeat."""

import json
from base64 import b64encode
from typing import Any

import httpx
import pytest
from support.provider import RunningProvider
from support.provider_requests import (
    FLIGHT,
    TILES,
    TIMESTAMP,
    Upload,
    create_batch_upload,
    create_manifest_entry,
    encode_multipart,
    sign_upload,
)

ONE, TWO = "cam/15/19000/11000", "cam/15/19000/11001"
PHOTOS = {ONE: b"\xff\xd8 one \r\n--not a boundary", TWO: bytes(range(256)) * 10}


def read_statuses(response: httpx.Response) -> list[tuple[str, str]]:
    assert response.status_code == 200, response.text
    results = response.json()["results"]
    assert all(set(result) == {"tile_id", "status", "reason"} for result in results)
    return [(result["tile_id"], result["status"]) for result in results]


def read_refusal(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]


def test_design_6_batch_is_accepted_in_order(
    provider: RunningProvider, client: httpx.Client
) -> None:
    response = create_batch_upload(PHOTOS).send(client)
    assert read_statuses(response) == [(ONE, "accepted"), (TWO, "accepted")]
    assert [result["reason"] for result in response.json()["results"]] == [None, None]
    assert [(line.tile_id, line.status, line.size) for line in provider.uploads] == [
        (ONE, "accepted", len(PHOTOS[ONE])),
        (TWO, "accepted", len(PHOTOS[TWO])),
    ]


def test_parts_may_have_file_names(client: httpx.Client) -> None:
    manifest = {"flight_id": FLIGHT, "tiles": [create_manifest_entry(ONE, PHOTOS[ONE])]}
    text = json.dumps(manifest).encode()
    body, kind = encode_multipart(
        [
            ("manifest", ("manifest.json", text, "application/json; charset=utf-8")),
            (ONE, ("a.jpg", PHOTOS[ONE], "image/jpeg")),
        ]
    )
    assert read_statuses(sign_upload(body, kind).send(client)) == [(ONE, "accepted")]


def test_repeated_upload_returns_recorded_answer(
    provider: RunningProvider, client: httpx.Client
) -> None:
    first = create_batch_upload(PHOTOS).send(client)
    again = create_batch_upload(PHOTOS).send(client)
    # httpx draws a new boundary for each body, so these two are different uploads of one key ...
    assert read_refusal(again) == (409, "key_conflict")
    upload = create_batch_upload(PHOTOS, key="key-2")
    second, repeated = upload.send(client), upload.send(client)
    # ... and these are one upload, sent twice.
    assert repeated.content == second.content
    assert "Idempotent-Replayed" not in second.headers
    assert repeated.headers["Idempotent-Replayed"] == "true"
    assert read_statuses(first) == [(ONE, "accepted"), (TWO, "accepted")]
    assert read_statuses(second) == [(ONE, "duplicate"), (TWO, "duplicate")]
    assert len(provider.uploads) == 4
    keys = [(line.idempotency_key, line.attempt, line.status) for line in provider.requests]
    assert keys == [("key-1", 1, 200), ("key-1", 2, 409), ("key-2", 1, 200), ("key-2", 2, 200)]


def test_duplicate_detection_compares_tile_bytes(client: httpx.Client) -> None:
    assert read_statuses(create_batch_upload({ONE: b"first"}).send(client)) == [(ONE, "accepted")]
    assert read_statuses(create_batch_upload({ONE: b"second"}, key="key-2").send(client)) == [
        (ONE, "accepted")
    ]
    assert read_statuses(create_batch_upload({ONE: b"first"}, key="key-3").send(client)) == [
        (ONE, "duplicate")
    ]


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"size": 3}, "the manifest says 3 bytes, and 25 came"),
        ({"sha256": "0" * 64}, "the bytes do not have the manifest's sha256"),
    ],
)
def test_tile_not_matching_manifest_is_rejected_alone(
    client: httpx.Client, lie: dict[str, Any], reason: str
) -> None:
    told = [create_manifest_entry(ONE, PHOTOS[ONE], **lie), create_manifest_entry(TWO, PHOTOS[TWO])]
    response = create_batch_upload(PHOTOS, manifest={"flight_id": FLIGHT, "tiles": told}).send(
        client
    )
    assert read_statuses(response) == [(ONE, "rejected"), (TWO, "accepted")]
    assert [result["reason"] for result in response.json()["results"]] == [reason, None]


# Signatures


OTHER_KEY = b64encode(bytes(31) + b"\1").decode()


@pytest.mark.parametrize(
    "changes",
    [
        {"Idempotency_Key": "key-2"},
        {"X_Flight_Id": "F2"},
        {"X_Timestamp": "2026-11-01T12:00:01Z"},
        {"X_Public_Key": OTHER_KEY},
        {"X_Signature": b64encode(bytes(64)).decode()},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_invariant_35_changed_header_fails_signature(
    provider: RunningProvider, client: httpx.Client, changes: dict[str, str]
) -> None:
    assert read_refusal(create_batch_upload(PHOTOS).with_headers(**changes).send(client)) == (
        403,
        "bad_signature",
    )
    assert provider.uploads == []


def test_invariant_35_changed_body_byte_fails_signature(
    provider: RunningProvider, client: httpx.Client
) -> None:
    upload = create_batch_upload({ONE: b"x"})
    for at in range(0, len(upload.body), 7):
        changed = bytearray(upload.body)
        changed[at] ^= 1
        response = Upload(bytes(changed), upload.headers).send(client)
        assert read_refusal(response) == (403, "bad_signature"), at
    assert provider.uploads == []
    assert read_statuses(upload.send(client)) == [(ONE, "accepted")]


@pytest.mark.parametrize("call", [("PUT", TILES), ("POST", f"{TILES}/15/1/2")], ids=str)
def test_invariant_35_signature_of_another_call_fails(
    client: httpx.Client, call: tuple[str, str]
) -> None:
    good = create_batch_upload(PHOTOS)
    other = sign_upload(good.body, good.headers["Content-Type"], call=call)
    assert read_refusal(other.send(client)) == (403, "bad_signature")
    assert read_statuses(good.send(client)) == [(ONE, "accepted"), (TWO, "accepted")]


@pytest.mark.parametrize(
    "changes",
    [
        {"Idempotency_Key": None},
        {"Idempotency_Key": "k" * 201},
        {"X_Flight_Id": "../F1"},
        {"X_Timestamp": "noon"},
        {"X_Timestamp": "2026-11-01T12:00:00"},
        {"X_Public_Key": "AAAA"},
        {"X_Public_Key": "not base64!"},
        {"X_Signature": "AAAA"},
    ],
    ids=str,
)
def test_invalid_header_is_rejected(client: httpx.Client, changes: dict[str, str | None]) -> None:
    response = create_batch_upload(PHOTOS).with_headers(**changes).send(client)
    assert read_refusal(response) == (400, "bad_header")
    (name,) = changes
    assert name.replace("_", "-") in response.json()["message"]


# Bodies

GOOD = create_manifest_entry(ONE, b"x")


@pytest.mark.parametrize(
    "manifest",
    [
        [],
        {},
        {"flight_id": FLIGHT, "tiles": []},
        {"flight_id": FLIGHT, "tiles": "all"},
        {"flight_id": "F2", "tiles": [GOOD]},
        {"tiles": [GOOD]},
        {"flight_id": FLIGHT, "tiles": [GOOD, GOOD]},
        {"flight_id": FLIGHT, "tiles": [create_manifest_entry(TWO, b"x")]},
        {"flight_id": FLIGHT, "tiles": ["x"]},
        {"flight_id": FLIGHT, "tiles": [{"tile_id": ONE}]},
        {"flight_id": FLIGHT, "tiles": [{**GOOD, "tile_id": "cam/15/../1"}]},
        {"flight_id": FLIGHT, "tiles": [{**GOOD, "captured_at": "noon"}]},
        {"flight_id": FLIGHT, "tiles": [{**GOOD, "captured_at": 7}]},
        {"flight_id": FLIGHT, "tiles": [{**GOOD, "captured_at": TIMESTAMP[:-1]}]},
        {"flight_id": FLIGHT, "tiles": [{**GOOD, "resolution_m_per_px": 0}]},
        {"flight_id": FLIGHT, "tiles": [{**GOOD, "resolution_m_per_px": float("nan")}]},
        {"flight_id": FLIGHT, "tiles": [{**GOOD, "sha256": "AB" * 32}]},
        {"flight_id": FLIGHT, "tiles": [{**GOOD, "size": -1}]},
    ],
    ids=range(18),
)
def test_invalid_manifest_rejects_whole_batch(
    provider: RunningProvider, client: httpx.Client, manifest: object
) -> None:
    response = create_batch_upload({ONE: b"x"}, manifest=manifest).send(client)
    assert read_refusal(response) == (400, "bad_manifest")
    assert "manifest" in response.json()["message"]
    assert provider.uploads == []
    # A refused upload does not use its key up.
    assert read_statuses(create_batch_upload({ONE: b"x"}).send(client)) == [(ONE, "accepted")]


def test_manifest_must_be_first_part_and_json(client: httpx.Client) -> None:
    text = json.dumps({"flight_id": FLIGHT, "tiles": [GOOD]}).encode()
    manifest = ("manifest", (None, text, "application/json"))
    tile = (ONE, (None, b"x", "image/jpeg"))
    plain = ("manifest", (None, text, "text/plain"))
    broken = ("manifest", (None, text[:-1], "application/json"))
    for parts in ([tile, manifest], [plain, tile], [broken, tile], [manifest], [tile]):
        assert read_refusal(sign_upload(*encode_multipart(parts)).send(client)) == (
            400,
            "bad_manifest",
        )


def test_invalid_multipart_body_is_rejected(client: httpx.Client) -> None:
    good = create_batch_upload(PHOTOS)
    kind = good.headers["Content-Type"]
    nameless = good.body.replace(b'name="manifest"', b'nome="manifest"')
    assert read_refusal(sign_upload(b"{}", "application/json").send(client)) == (
        415,
        "bad_content_type",
    )
    assert read_refusal(sign_upload(good.body[:-9], kind).send(client)) == (400, "bad_multipart")
    assert read_refusal(sign_upload(b"nothing", kind).send(client)) == (400, "bad_multipart")
    assert read_refusal(sign_upload(nameless, kind).send(client)) == (400, "bad_multipart")


def test_batch_over_tile_limit_is_rejected(client: httpx.Client) -> None:
    tiles = {f"cam/15/1/{y}": b"x" for y in range(1_001)}
    assert read_refusal(create_batch_upload(tiles).send(client)) == (413, "too_many_parts")
    assert len(read_statuses(create_batch_upload(dict([*tiles.items()][1:])).send(client))) == 1_000


@pytest.mark.parametrize("declared", [True, False])
def test_body_over_size_limit_is_rejected(
    provider: RunningProvider, client: httpx.Client, *, declared: bool
) -> None:
    body = bytes(1_000_001)
    content = body if declared else iter([body[:600_000], body[600_000:]])
    headers = sign_upload(body, "multipart/form-data; boundary=b").headers
    response = client.post(TILES, content=content, headers=headers)
    assert read_refusal(response) == (413, "too_large")
    assert [line.status for line in provider.requests] == [413]


def test_uploads_can_be_read_from_localhost(client: httpx.Client) -> None:
    create_batch_upload({ONE: b"x"}).send(client)
    (tile,) = client.get("/_provider/uploads").json()["tiles"]
    assert (tile["tile_id"], tile["flight_id"], tile["idempotency_key"], tile["status"]) == (
        ONE, FLIGHT, "key-1", "accepted",
    )  # fmt: skip
