"""Signed envelopes of three small tiles."""

from datetime import UTC, datetime
from hashlib import sha256

from tileferry.domain.tiles import Batch, EnvelopeTile, SignedEnvelope, TileId


def create_tile(number: int) -> TileId:
    return TileId(source="cam", zoom=15, x=number, y=7)


def make_envelope(key: str, *, flight_id: str = "F1", tiles: int = 3) -> SignedEnvelope:
    lines = [
        EnvelopeTile(
            tile_id=create_tile(number),
            captured_at=datetime(2026, 10, 20, 8, 30, 1, 5, tzinfo=UTC),
            resolution_m_per_px=0.1 + 0.2,
            sha256=sha256(bytes([number])).hexdigest(),
            size=number,
            location=(1, number),
        )
        for number in range(tiles)
    ]
    return SignedEnvelope(
        batch=Batch(key=key, flight_id=flight_id, tiles=lines),
        body_sha256=sha256(key.encode()).hexdigest(),
        timestamp="2026-10-20T10:00:00.000001+00:00",
        public_key=bytes(range(32)),
        signature=bytes(range(64)),
    )
