"""A tile that a gate refused."""

from datetime import UTC, datetime, timedelta

from attrs import evolve

from tileferry.domain.tiles import SectorClass, TileId
from tileferry.domain.tiles.refusal import Gate, Refusal

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
REFUSAL = Refusal(
    tile_id=TileId.parse("sat/14/1/2"),
    gate=Gate.FRESHNESS,
    sector_class=SectorClass.ACTIVE_CONFLICT,
    produced_at=NOW - timedelta(days=400),
    resolution_m_per_px=0.6,
    refused_at=NOW,
)


def test_refusal_says_what_when_and_why() -> None:
    assert REFUSAL.describe() == (
        "imagery of 2025-09-27 refused on 2026-11-01 12:00:00 UTC: too old for active_conflict"
    )
    coarse = evolve(REFUSAL, gate=Gate.RESOLUTION)
    assert coarse.describe().endswith(": 0.6 m/px is outside the accepted resolution")
