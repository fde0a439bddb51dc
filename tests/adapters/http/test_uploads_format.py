"""The multipart body of an upload, and the JSON of its answer."""

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest
from attrs import evolve
from support.key_echo import ENCODINGS, find_key

from tileferry.adapters.http import uploads
from tileferry.adapters.http.uploads import (
    build_boundary,
    compute_body_size,
    iter_body,
    parse_upload_response,
)
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    Batch,
    EnvelopeTile,
    TileId,
)

CAPTURED = datetime(2026, 10, 20, 8, 30, tzinfo=UTC)
CONTENTS = [b"one", b"", b"three\r\n--x"]


def tile(number: int) -> TileId:
    return TileId(source="cam", zoom=15, x=100 + number, y=200)


def make_line(number: int, content: bytes = b"one") -> EnvelopeTile:
    return EnvelopeTile(
        tile_id=tile(number),
        captured_at=CAPTURED,
        resolution_m_per_px=0.6,
        sha256=sha256(content).hexdigest(),
        size=len(content),
    )


BATCH = Batch(
    key="k1",
    flight_id="F1",
    tiles=[make_line(number, content) for number, content in enumerate(CONTENTS)],
)


def test_body_is_manifest_followed_by_tiles_in_order() -> None:
    body = b"".join(iter_body(BATCH, CONTENTS))
    assert body == b"".join(iter_body(BATCH, CONTENTS))
    assert len(body) == compute_body_size(BATCH)
    first, *parts, end = body.split(f"--{build_boundary(BATCH)}".encode())
    assert (first, end) == (b"", b"--\r\n")
    contents = [part.split(b"\r\n\r\n", 1)[1].removesuffix(b"\r\n") for part in parts]
    assert contents == [BATCH.manifest, *CONTENTS]
    names = [part.split(b'name="')[1].split(b'"')[0].decode() for part in parts]
    assert names == ["manifest", *(str(tile(number)) for number in range(3))]


def test_large_body_is_yielded_in_chunks() -> None:
    contents = [bytes(200_000)] * 5
    batch = evolve(BATCH, tiles=[make_line(number, bytes(200_000)) for number in range(5)])
    pieces = list(iter_body(batch, contents))
    assert [len(piece) > 400_000 for piece in pieces] == [True, True, False]
    assert sum(map(len, pieces)) == compute_body_size(batch)


def test_boundary_is_derived_from_key() -> None:
    assert build_boundary(BATCH) != build_boundary(evolve(BATCH, key="k2"))
    assert build_boundary(BATCH) == build_boundary(evolve(BATCH, flight_id="F2"))


def test_contents_not_matching_manifest_are_rejected() -> None:
    with pytest.raises(ValueError, match="zip"):
        list(iter_body(BATCH, CONTENTS[:2]))


def make_response(*lines: Any) -> bytes:
    return json.dumps({"results": list(lines)}).encode()


def make_result(number: int, status: str = "accepted", **more: Any) -> dict[str, Any]:
    return {"tile_id": str(tile(number)), "status": status, **more}


def parse(content: bytes) -> Any:
    return parse_upload_response(content, BATCH, bytes_max=10_000)


def test_response_is_parsed_in_batch_order() -> None:
    found = parse(
        make_response(
            make_result(2, "rejected", reason="bl\x1burred"),
            make_result(0),
            make_result(1, "duplicate"),
        )
    )
    assert [(entry.tile_id, entry.status.value) for entry in found] == [
        (tile(0), "accepted"),
        (tile(1), "duplicate"),
        (tile(2), "rejected"),
    ]
    assert found[2].reason == "bl\\x1burred"


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"[]", "answer"),
        (b'{"results": {}}', "answer.results"),
        (make_response(7), "answer.results[0]"),
        (make_response({"status": "accepted"}), "answer.results[0].tile_id"),
        (make_response(make_result(9)), "answer.results[0].tile_id"),
        (make_response(make_result(0), make_result(0)), "answer.results[1].tile_id"),
        (make_response(make_result(0, "maybe")), "answer.results[0].status"),
        (make_response(make_result(0, "unreadable")), "answer.results[0].status"),
        (make_response({"tile_id": str(tile(0))}), "answer.results[0].status"),
        (make_response(make_result(0, reason=7)), "answer.results[0].reason"),
        (make_response(make_result(0), make_result(1)), "answer.results"),
    ],
)
def test_invalid_response_is_rejected_by_field(content: bytes, field: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        parse(content)
    assert refusal.value.field == field


@pytest.mark.parametrize("name", ENCODINGS)
def test_invariant_34_key_in_a_reason_is_redacted(name: str) -> None:
    key = "Canary-7d1e/0f55+aB9"
    results = [
        {"tile_id": str(tile.tile_id), "status": "rejected", "reason": ENCODINGS[name](key)}
        for tile in BATCH.tiles
    ]
    content = json.dumps({"results": results}).encode()
    parsed = parse_upload_response(content, BATCH, bytes_max=100_000, secret=key)
    assert all(find_key(each.reason or "", key) is None for each in parsed)
    assert all("***" in (each.reason or "") for each in parsed)


def write_plain(**changes: str) -> str:
    """Return a response that acknowledges all tiles; the changes replace parts of its text."""
    text = make_response(
        make_result(0, reason=None), make_result(1, "duplicate"), make_result(2, reason=None)
    ).decode()
    for old, new in changes.items():
        text = text.replace(f'"{old}":', new, 1)
    return text


def test_plain_response_is_parsed_without_the_checks_of_each_field(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = parse(make_response(*(make_result(n, reason="ok" if n else None) for n in range(3))))
    monkeypatch.setattr(uploads, "parse_json", None)
    found = parse(write_plain().encode())
    assert [entry.tile_id for entry in found] == [entry.tile_id for entry in expected]
    assert [entry.status.value for entry in found] == ["accepted", "duplicate", "accepted"]
    assert all(entry.reason is None for entry in found)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (write_plain(results='"results": [], "results":'), "answer"),
        (write_plain(status='"status": "rejected", "status":'), "answer.results[0]"),
        (write_plain(tile_id='"tile_id": "cam/1/1/1", "tile_id":'), "answer.results[0]"),
        (write_plain(reason='"reason": null, "reason":'), "answer.results[0]"),
        (write_plain(reason='"more": NaN, "reason":'), "answer.results[0].more"),
        (write_plain(reason='"more": 1e999, "reason":'), "answer.results[0].more"),
        (write_plain(reason=f'"more": {"9" * 30}, "reason":'), "answer.results[0].more"),
        (write_plain(reason='"more": "\\u0000", "reason":'), "answer.results[0].more"),
        (write_plain(reason='"more": "\\ud800", "reason":'), "answer.results[0].more"),
        (write_plain(reason='"a\\ud800": 1, "reason":'), "answer.results[0]"),
        (write_plain(results='"more": 1, "more": 2, "results":'), "answer"),
        (write_plain(results=f'"more": {"[" * 5_000}{"]" * 4_000}, "results":'), "answer"),
        (write_plain() + "x", "answer"),
        (write_plain() + " " * 10_000, "answer"),
    ],
)
def test_invariant_30_invalid_json_around_a_plain_response_is_rejected(
    text: str, field: str
) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        parse(text.encode())
    assert refusal.value.field.startswith(field)


def test_unknown_fields_of_a_response_are_ignored() -> None:
    found = parse(write_plain(results='"more": {"a": [1]}, "results":').encode())
    assert [entry.status.value for entry in found] == ["accepted", "duplicate", "accepted"]
