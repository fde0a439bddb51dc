"""Which listed tiles are fetched, and which the cache already has."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import FreshnessRejectionError, InvalidValueError
from tileferry.domain.tiles import (
    BlobRef,
    FreshnessLabel,
    FreshnessRule,
    ResolutionGate,
    SectorClass,
    TileId,
    TileMetadata,
    TileSummary,
    VotingStatus,
)
from tileferry.domain.tiles.selection import (
    Disposition,
    FetchMode,
    TileGates,
    TileSelection,
    is_current,
)

NOW = datetime(2026, 11, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TILE = TileId(source="sat", zoom=14, x=1, y=2)
REAR, CONFLICT = SectorClass.STABLE_REAR, SectorClass.ACTIVE_CONFLICT


def make_stored(age_days: float = 10, **changes: Any) -> TileMetadata:
    stored = TileMetadata(
        tile_id=TILE,
        flight_id="another flight",
        produced_at=NOW - age_days * DAY,
        resolution_m_per_px=0.6,
        sector_class=REAR,
        freshness=FreshnessLabel.FRESH,
        blob=BlobRef(location=(1, 1), length=5, sha256="ab" * 32),
        voting_status=VotingStatus.TRUSTED,
        stored_at=NOW - DAY,
        last_used_at=NOW - DAY,
    )
    return evolve(stored, **changes)


def make_listed(age_days: float = 10, resolution: float = 0.6) -> TileSummary:
    return TileSummary(
        tile_id=TILE,
        produced_at=NOW - age_days * DAY,
        resolution_m_per_px=resolution,
        estimated_bytes=5,
    )


def make_rule(sector: SectorClass = REAR, mode: FetchMode = FetchMode.MISSING) -> TileSelection:
    gates = TileGates(resolution=ResolutionGate(), freshness=FreshnessRule(), now=NOW)
    return TileSelection(gates=gates, sector=sector, mode=mode)


@pytest.mark.parametrize(
    ("stored", "listed", "sector", "expected"),
    [
        (make_stored(), make_listed(), REAR, Disposition.REUSE),
        (make_stored(), make_listed(), CONFLICT, Disposition.REUSE),
        (make_stored(9), make_listed(10), REAR, Disposition.REUSE),
        (make_stored(11), make_listed(10), REAR, Disposition.FETCH),
        (make_stored(300), make_listed(300), REAR, Disposition.REUSE),
        (make_stored(400), make_listed(400), REAR, Disposition.REUSE_DOWNGRADED),
        (make_stored(300), make_listed(300), CONFLICT, Disposition.REFUSE_FRESHNESS),
        (make_stored(300), make_listed(100), CONFLICT, Disposition.FETCH),
        (make_stored(resolution_m_per_px=0.3), make_listed(), REAR, Disposition.FETCH),
        (make_stored(), make_listed(resolution=0.3), REAR, Disposition.REUSE),
        (None, make_listed(resolution=0.3), REAR, Disposition.REFUSE_RESOLUTION),
        (None, make_listed(), CONFLICT, Disposition.FETCH),
        (None, make_listed(400), REAR, Disposition.FETCH),
        (make_stored(voting_status=VotingStatus.PENDING), make_listed(), REAR, Disposition.FETCH),
        (make_stored(-30), make_listed(), REAR, Disposition.FETCH),
        (make_stored(-30), make_listed(-30), REAR, Disposition.REUSE_DOWNGRADED),
    ],
)
def test_stored_tile_is_reused_if_it_may_serve_the_request(
    stored: TileMetadata | None, listed: TileSummary, sector: SectorClass, expected: Disposition
) -> None:
    for mode in (FetchMode.MISSING, FetchMode.REPAIR):
        assert make_rule(sector, mode).select(listed, stored) is expected
    assert expected.is_reuse == (expected.value.startswith("reuse"))


def test_refresh_compares_by_listing_or_by_request() -> None:
    listing = make_rule(mode=FetchMode.REFRESH)
    assert listing.select(make_listed(), make_stored()) is Disposition.REUSE
    assert listing.select(make_listed(9), make_stored()) is Disposition.FETCH
    plain = evolve(listing, lists_versions=False)
    assert plain.select(make_listed(), make_stored()) is Disposition.REVALIDATE
    assert plain.select(make_listed(), None) is Disposition.FETCH
    assert plain.select(make_listed(9), make_stored()) is Disposition.FETCH
    missing = evolve(plain, mode=FetchMode.MISSING)
    assert missing.select(make_listed(), make_stored()) is Disposition.REUSE


def test_listed_digest_decides_between_tiles_of_one_date() -> None:
    same, other = evolve(make_listed(), sha256="ab" * 32), evolve(make_listed(), sha256="cd" * 32)
    assert is_current(make_stored(), same)
    assert not is_current(make_stored(), other)
    assert is_current(make_stored(9), other), "it is newer"
    with pytest.raises(InvalidValueError, match="sha256"):
        evolve(make_listed(), sha256="no digest")


def test_every_accepted_tile_is_fetched_again_on_request() -> None:
    again = make_rule(mode=FetchMode.AGAIN)
    assert again.select(make_listed(), make_stored()) is Disposition.FETCH
    assert again.select(make_listed(resolution=0.3), make_stored()) is (
        Disposition.REFUSE_RESOLUTION
    )


ages_days = st.sampled_from([-30.0, -1.0, 0.0, 10.0, 182.9, 183.0, 184.0, 365.0, 366.0, 900.0])
resolutions = st.sampled_from([0.1, 0.49, 0.5, 0.6, 2.0, 3.0])


@given(
    stored_age=ages_days,
    stored_days_ago=st.sampled_from([0.0, 1.0, 400.0]),
    stored_m_per_px=resolutions,
    listed_age=ages_days,
    status=st.sampled_from(VotingStatus),
    sector=st.sampled_from(SectorClass),
    other_sector=st.sampled_from(SectorClass),
    flight=st.sampled_from(["F1", "F2", "import"]),
    max_m_per_px=st.sampled_from([None, 2.0]),
)
def test_invariant_39_reuse_matches_a_brute_force_model(
    *,
    stored_age: float,
    stored_days_ago: float,
    stored_m_per_px: float,
    listed_age: float,
    status: VotingStatus,
    sector: SectorClass,
    other_sector: SectorClass,
    flight: str,
    max_m_per_px: float | None,
) -> None:
    stored = make_stored(
        stored_age,
        stored_at=NOW - stored_days_ago * DAY,
        resolution_m_per_px=stored_m_per_px,
        voting_status=status,
        sector_class=other_sector,
        flight_id=flight,
    )
    listed = make_listed(listed_age)
    freshness = FreshnessRule()
    gate = ResolutionGate(max_m_per_px=max_m_per_px)
    rule = TileSelection(
        gates=TileGates(resolution=gate, freshness=freshness, now=NOW), sector=sector
    )

    def would_be_inserted() -> bool:
        """As ``insert_metadata`` decides for this request, had the tile just been fetched."""
        try:
            freshness.judge(TILE, sector, produced_at=stored.produced_at, now=NOW)
        except FreshnessRejectionError:
            return False
        return True

    date_is_wrong = stored_age < stored_days_ago - 1
    serves = (
        status is VotingStatus.TRUSTED
        and (stored_age == listed_age if date_is_wrong else stored_age <= listed_age)
        and 0.5 <= stored_m_per_px <= (max_m_per_px or 1e9)
        and would_be_inserted()
    )
    assert rule.select(listed, stored).is_reuse == serves


def test_a_tile_that_replaced_the_listed_one_is_current() -> None:
    assert is_current(make_stored(10), make_listed(10))
    assert not is_current(make_stored(10.001), make_listed(10))


@pytest.mark.parametrize(
    ("absent_days_ago", "listed_age_days", "expected"),
    [
        (1, 10, Disposition.SKIP_ABSENT),
        (6.9, 10, Disposition.SKIP_ABSENT),
        (7, 10, Disposition.FETCH),
        (-0.5, 10, Disposition.SKIP_ABSENT),
        (-2, 10, Disposition.FETCH),
        (3, 2, Disposition.FETCH),
        (1, 300, Disposition.REFUSE_FRESHNESS),
    ],
)
def test_absent_tile_is_skipped_until_it_is_due_or_newer_imagery_is_listed(
    absent_days_ago: float, listed_age_days: float, expected: Disposition
) -> None:
    rule, absent_at = make_rule(CONFLICT), NOW - absent_days_ago * DAY
    assert rule.select(make_listed(listed_age_days), None, absent_at) is expected
    again = evolve(rule, mode=FetchMode.AGAIN)
    assert again.select(make_listed(listed_age_days), None, absent_at) in {
        Disposition.FETCH,
        Disposition.REFUSE_FRESHNESS,
    }


def test_stored_tile_is_reused_although_the_provider_lost_it() -> None:
    assert make_rule().select(make_listed(), make_stored(), NOW) is Disposition.REUSE
