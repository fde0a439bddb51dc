"""Signed batches: the same bytes each time, and nothing left out of the signature."""

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest
from attrs import evolve

from tileferry.domain.canonical import canonical_json
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    BATCH_TILES_MAX,
    Batch,
    BlobRef,
    EnvelopeTile,
    FreshnessLabel,
    SectorClass,
    SignedEnvelope,
    TileId,
    TileMetadata,
    VotingStatus,
    build_signing_input,
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


def test_envelope_tile_carries_tile_metadata() -> None:
    blob = BlobRef(location=(1, 0), length=3, sha256=sha256(b"one").hexdigest())
    stored = TileMetadata(
        tile_id=tile(0),
        flight_id="F1",
        produced_at=CAPTURED,
        resolution_m_per_px=0.6,
        sector_class=SectorClass.STABLE_REAR,
        freshness=FreshnessLabel.FRESH,
        blob=blob,
        voting_status=VotingStatus.PENDING,
        stored_at=CAPTURED,
        last_used_at=CAPTURED,
    )
    assert EnvelopeTile.from_metadata(stored) == make_line(0)
    assert json.loads(make_line(0).format_line()) == {
        "tile_id": "cam/15/100/200",
        "captured_at": "2026-10-20T08:30:00+00:00",
        "resolution_m_per_px": 0.6,
        "sha256": sha256(b"one").hexdigest(),
        "size": 3,
    }


def test_batch_round_trips_through_manifest() -> None:
    read = Batch.parse("k1", BATCH.manifest)
    assert read == BATCH
    assert read.manifest == BATCH.manifest


@pytest.mark.parametrize("metres", [1.0, 0.1 + 0.2, 2.5e-7, 30.0, 1e6])
def test_manifest_is_canonical_for_any_resolution(metres: float) -> None:
    batch = evolve(BATCH, tiles=[evolve(make_line(0), resolution_m_per_px=metres)])
    assert batch.manifest == canonical_json(json.loads(batch.manifest))
    assert f'"resolution_m_per_px":{canonical_json(metres).decode()}'.encode() in batch.manifest
    read = Batch.parse("k1", batch.manifest)
    assert (read, read.manifest) == (batch, batch.manifest)


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"[]",
        b'{"flight_id": "F1"}',
        b'{"flight_id": 1, "tiles": []}',
        b'{"flight_id": "F1", "tiles": []}',
        b'{"flight_id": "F1", "tiles": [1]}',
        b'{"flight_id": "F1", "tiles": [{}]}',
        BATCH.manifest.replace(b"cam/15", b"cam/99"),
        BATCH.manifest.replace(b"2026-10", b"2026-13"),
        BATCH.manifest.replace(b'"size":3', b'"size":-3'),
    ],
)
def test_invalid_manifest_is_rejected(manifest: bytes) -> None:
    with pytest.raises(InvalidValueError):
        Batch.parse("k1", manifest)


@pytest.mark.parametrize("count", [0, BATCH_TILES_MAX + 1])
def test_batch_with_invalid_tile_count_is_rejected(count: int) -> None:
    with pytest.raises(InvalidValueError, match=r"Batch\.tiles: must be 1 to 1000 tiles"):
        Batch(key="k", flight_id="F1", tiles=[make_line(0)] * count)


def test_invariant_35_signature_covers_every_line() -> None:
    parts: dict[str, str] = {
        "method": "POST",
        "path": "/api/satellite/tiles",
        "body_sha256": "0" * 64,
        "key": "k1",
        "timestamp": "2026-10-20T08:30:00+00:00",
        "flight_id": "F1",
    }
    message = build_signing_input(**parts)
    assert message.decode().split("\n") == list(parts.values())
    for name, value in parts.items():
        assert build_signing_input(**{**parts, name: f"{value}x"}) != message


def test_incomplete_envelope_is_rejected() -> None:
    whole: dict[str, Any] = {
        "batch": BATCH,
        "body_sha256": "0" * 64,
        "timestamp": "t",
        "public_key": bytes(32),
        "signature": bytes(64),
    }
    assert "signature=…" in repr(SignedEnvelope(**whole))
    for name, value in (
        ("public_key", bytes(31)), ("signature", b""), ("signature", "x" * 64),
        ("body_sha256", "0"), ("timestamp", ""), ("batch", None),
    ):  # fmt: skip
        with pytest.raises(InvalidValueError):
            SignedEnvelope(**{**whole, name: value})


def test_locations_and_answers_are_not_part_of_the_manifest() -> None:
    locations = [(1, number) for number in range(len(CONTENTS))]
    placed = Batch.parse("k1", BATCH.manifest, locations).with_rejections({tile(1)})
    assert (placed, placed.manifest) == (BATCH, BATCH.manifest)
    assert [line.blob and line.blob.location for line in placed.tiles] == locations
    assert [line.is_rejected for line in placed.tiles] == [False, True, False]
    bare = Batch.parse("k1", BATCH.manifest)
    assert [(line.blob, line.is_rejected) for line in bare.tiles] == [(None, None)] * 3
