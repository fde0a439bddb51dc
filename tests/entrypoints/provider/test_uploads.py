"""Uploads: signed, checked tile by tile, and safe to repeat."""

import json
from base64 import b64encode
from typing import Any

import httpx
import pytest
from support.provider import RunningProvider
from support.provider_uploads import (
    FLIGHT,
    TILES,
    TIMESTAMP,
    Upload,
    batch,
    entry,
    multipart,
    signed,
)

ONE, TWO = "cam/15/19000/11000", "cam/15/19000/11001"
PHOTOS = {ONE: b"\xff\xd8 one \r\n--not a boundary", TWO: bytes(range(256)) * 10}


def statuses(response: httpx.Response) -> list[tuple[str, str]]:
    assert response.status_code == 200, response.text
    results = response.json()["results"]
    assert all(set(result) == {"tile_id", "status", "reason"} for result in results)
    return [(result["tile_id"], result["status"]) for result in results]


def refusal(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]


def test_design_6_a_batch_is_accepted_in_its_order(
    provider: RunningProvider, client: httpx.Client
) -> None:
    response = batch(PHOTOS).send(client)
    assert statuses(response) == [(ONE, "accepted"), (TWO, "accepted")]
    assert [result["reason"] for result in response.json()["results"]] == [None, None]
    assert [(line.tile_id, line.status, line.size) for line in provider.uploads] == [
        (ONE, "accepted", len(PHOTOS[ONE])),
        (TWO, "accepted", len(PHOTOS[TWO])),
    ]


def test_parts_may_have_file_names(client: httpx.Client) -> None:
    manifest = {"flight_id": FLIGHT, "tiles": [entry(ONE, PHOTOS[ONE])]}
    text = json.dumps(manifest).encode()
    body, kind = multipart(
        [
            ("manifest", ("manifest.json", text, "application/json; charset=utf-8")),
            (ONE, ("a.jpg", PHOTOS[ONE], "image/jpeg")),
        ]
    )
    assert statuses(signed(body, kind).send(client)) == [(ONE, "accepted")]


def test_a_repeat_gets_the_same_answer_and_is_not_carried_out_again(
    provider: RunningProvider, client: httpx.Client
) -> None:
    first = batch(PHOTOS).send(client)
    again = batch(PHOTOS).send(client)
    # httpx draws a new boundary for each body, so these two are different uploads of one key ...
    assert refusal(again) == (409, "key_conflict")
    upload = batch(PHOTOS, key="key-2")
    second, repeated = upload.send(client), upload.send(client)
    # ... and these are one upload, sent twice.
    assert repeated.content == second.content
    assert "Idempotent-Replayed" not in second.headers
    assert repeated.headers["Idempotent-Replayed"] == "true"
    assert statuses(first) == [(ONE, "accepted"), (TWO, "accepted")]
    assert statuses(second) == [(ONE, "duplicate"), (TWO, "duplicate")]
    assert len(provider.uploads) == 4
    keys = [(line.idempotency_key, line.attempt, line.status) for line in provider.requests]
    assert keys == [("key-1", 1, 200), ("key-1", 2, 409), ("key-2", 1, 200), ("key-2", 2, 200)]


def test_a_tile_with_other_bytes_is_another_tile(client: httpx.Client) -> None:
    assert statuses(batch({ONE: b"first"}).send(client)) == [(ONE, "accepted")]
    assert statuses(batch({ONE: b"second"}, key="key-2").send(client)) == [(ONE, "accepted")]
    assert statuses(batch({ONE: b"first"}, key="key-3").send(client)) == [(ONE, "duplicate")]


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"size": 3}, "the manifest says 3 bytes, and 25 came"),
        ({"sha256": "0" * 64}, "the bytes do not have the manifest's sha256"),
    ],
)
def test_a_tile_that_is_not_what_the_manifest_says_is_rejected_alone(
    client: httpx.Client, lie: dict[str, Any], reason: str
) -> None:
    told = [entry(ONE, PHOTOS[ONE], **lie), entry(TWO, PHOTOS[TWO])]
    response = batch(PHOTOS, manifest={"flight_id": FLIGHT, "tiles": told}).send(client)
    assert statuses(response) == [(ONE, "rejected"), (TWO, "accepted")]
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
def test_invariant_35_a_changed_header_fails_the_signature(
    provider: RunningProvider, client: httpx.Client, changes: dict[str, str]
) -> None:
    assert refusal(batch(PHOTOS).with_headers(**changes).send(client)) == (403, "bad_signature")
    assert provider.uploads == []


def test_invariant_35_any_changed_byte_of_the_body_fails_the_signature(
    provider: RunningProvider, client: httpx.Client
) -> None:
    upload = batch({ONE: b"x"})
    for at in range(0, len(upload.body), 7):
        changed = bytearray(upload.body)
        changed[at] ^= 1
        response = Upload(bytes(changed), upload.headers).send(client)
        assert refusal(response) == (403, "bad_signature"), at
    assert provider.uploads == []
    assert statuses(upload.send(client)) == [(ONE, "accepted")]


@pytest.mark.parametrize("call", [("PUT", TILES), ("POST", f"{TILES}/15/1/2")], ids=str)
def test_invariant_35_a_signature_of_another_call_fails(
    client: httpx.Client, call: tuple[str, str]
) -> None:
    good = batch(PHOTOS)
    other = signed(good.body, good.headers["Content-Type"], call=call)
    assert refusal(other.send(client)) == (403, "bad_signature")
    assert statuses(good.send(client)) == [(ONE, "accepted"), (TWO, "accepted")]


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
def test_a_header_that_cannot_be_read_is_refused(
    client: httpx.Client, changes: dict[str, str | None]
) -> None:
    response = batch(PHOTOS).with_headers(**changes).send(client)
    assert refusal(response) == (400, "bad_header")
    (name,) = changes
    assert name.replace("_", "-") in response.json()["message"]


# Bodies

GOOD = entry(ONE, b"x")


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
        {"flight_id": FLIGHT, "tiles": [entry(TWO, b"x")]},
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
def test_a_bad_manifest_is_refused_whole(
    provider: RunningProvider, client: httpx.Client, manifest: object
) -> None:
    response = batch({ONE: b"x"}, manifest=manifest).send(client)
    assert refusal(response) == (400, "bad_manifest")
    assert "manifest" in response.json()["message"]
    assert provider.uploads == []
    # A refused upload does not use its key up.
    assert statuses(batch({ONE: b"x"}).send(client)) == [(ONE, "accepted")]


def test_the_manifest_comes_first_and_is_json(client: httpx.Client) -> None:
    text = json.dumps({"flight_id": FLIGHT, "tiles": [GOOD]}).encode()
    manifest = ("manifest", (None, text, "application/json"))
    tile = (ONE, (None, b"x", "image/jpeg"))
    plain = ("manifest", (None, text, "text/plain"))
    broken = ("manifest", (None, text[:-1], "application/json"))
    for parts in ([tile, manifest], [plain, tile], [broken, tile], [manifest], [tile]):
        assert refusal(signed(*multipart(parts)).send(client)) == (400, "bad_manifest")


def test_a_body_that_is_no_multipart_is_refused(client: httpx.Client) -> None:
    good = batch(PHOTOS)
    kind = good.headers["Content-Type"]
    nameless = good.body.replace(b'name="manifest"', b'nome="manifest"')
    assert refusal(signed(b"{}", "application/json").send(client)) == (415, "bad_content_type")
    assert refusal(signed(good.body[:-9], kind).send(client)) == (400, "bad_multipart")
    assert refusal(signed(b"nothing", kind).send(client)) == (400, "bad_multipart")
    assert refusal(signed(nameless, kind).send(client)) == (400, "bad_multipart")


def test_a_batch_has_a_largest_number_of_tiles(client: httpx.Client) -> None:
    tiles = {f"cam/15/1/{y}": b"x" for y in range(1_001)}
    assert refusal(batch(tiles).send(client)) == (413, "too_many_parts")
    assert len(statuses(batch(dict([*tiles.items()][1:])).send(client))) == 1_000


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_has_a_largest_size(
    provider: RunningProvider, client: httpx.Client, *, declared: bool
) -> None:
    body = bytes(1_000_001)
    content = body if declared else iter([body[:600_000], body[600_000:]])
    headers = signed(body, "multipart/form-data; boundary=b").headers
    response = client.post(TILES, content=content, headers=headers)
    assert refusal(response) == (413, "too_large")
    assert [line.status for line in provider.requests] == [413]


def test_the_uploads_can_be_read_from_this_machine(client: httpx.Client) -> None:
    batch({ONE: b"x"}).send(client)
    (tile,) = client.get("/_provider/uploads").json()["tiles"]
    assert (tile["tile_id"], tile["flight_id"], tile["idempotency_key"], tile["status"]) == (
        ONE, FLIGHT, "key-1", "accepted",
    )  # fmt: skip
