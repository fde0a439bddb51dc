"""The two gates a tile passes: resolution and freshness."""

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import FreshnessRejectionError, InvalidValueError
from tileferry.domain.tiles import (
    FreshnessLabel,
    FreshnessRule,
    ResolutionGate,
    ResolutionVerdict,
    SectorClass,
    TileId,
)

TILE = TileId(source="sat", zoom=15, x=1, y=2)
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)


def judge_freshness(
    age: timedelta, sector: SectorClass, rule: FreshnessRule | None = None
) -> FreshnessLabel | None:
    """Return the label, or ``None`` for a rejection."""
    try:
        return (rule or FreshnessRule()).judge(TILE, sector, produced_at=NOW - age, now=NOW)
    except FreshnessRejectionError:
        return None


# Resolution


def test_ten_of_fifty_tiles_at_0_3_m_per_px_are_rejected() -> None:
    gate = ResolutionGate()
    verdicts = [gate.judge(0.3 if index < 10 else 0.5) for index in range(50)]
    assert verdicts.count(ResolutionVerdict.BELOW_MINIMUM) == 10
    assert verdicts.count(ResolutionVerdict.ACCEPTED) == 40


@given(st.floats(), st.floats(0.01, 10), st.none() | st.floats(10, 100))
def test_resolution_verdict_follows_from_bounds(
    value: float, low: float, high: float | None
) -> None:
    verdict = ResolutionGate(min_m_per_px=low, max_m_per_px=high).judge(value)
    if not math.isfinite(value) or value <= 0:
        assert verdict is ResolutionVerdict.UNREADABLE
    elif value < low:
        assert verdict is ResolutionVerdict.BELOW_MINIMUM
    elif high is not None and value > high:
        assert verdict is ResolutionVerdict.ABOVE_MAXIMUM
    else:
        assert verdict is ResolutionVerdict.ACCEPTED


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0])
def test_invalid_resolution_is_unreadable(value: float) -> None:
    assert ResolutionGate().judge(value) is ResolutionVerdict.UNREADABLE


def test_resolution_bounds_are_inclusive() -> None:
    gate = ResolutionGate(min_m_per_px=0.5, max_m_per_px=2)
    assert gate.judge(0.5) is gate.judge(2.0) is ResolutionVerdict.ACCEPTED
    assert gate.judge(math.nextafter(0.5, 0)) is ResolutionVerdict.BELOW_MINIMUM
    assert gate.judge(math.nextafter(2.0, 3)) is ResolutionVerdict.ABOVE_MAXIMUM


def test_coarse_imagery_passes_without_maximum() -> None:
    assert ResolutionGate().judge(1000.0) is ResolutionVerdict.ACCEPTED


def test_fine_imagery_passes_without_minimum() -> None:
    gate = ResolutionGate(min_m_per_px=None, max_m_per_px=2.0)
    assert gate.judge(0.01) is ResolutionVerdict.ACCEPTED
    assert gate.judge(2.1) is ResolutionVerdict.ABOVE_MAXIMUM


def test_verdict_is_described_with_its_limit_and_setting() -> None:
    gate = ResolutionGate(max_m_per_px=2.0)
    assert [gate.describe(verdict) for verdict in ResolutionVerdict] == [
        "within the accepted resolution",
        "finer than 0.5 m/px (c11.min_resolution_m_per_px)",
        "coarser than 2 m/px (c11.max_resolution_m_per_px)",
        "without a readable resolution",
    ]


def test_verdicts_have_stable_values() -> None:
    assert list(ResolutionVerdict) == ["accepted", "below_minimum", "above_maximum", "unreadable"]


@pytest.mark.parametrize("field", ["min_m_per_px", "max_m_per_px"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 10**400, -(10**400), True, "1"])
def test_invalid_bounds_are_rejected(field: str, value: Any) -> None:
    bounds: dict[str, Any] = {field: value}
    with pytest.raises(InvalidValueError) as caught:
        ResolutionGate(**bounds)
    assert caught.value.field == f"ResolutionGate.{field}"


def test_maximum_below_minimum_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match=r"max_m_per_px: is below min_m_per_px, 0\.5"):
        ResolutionGate(max_m_per_px=0.4)
    assert ResolutionGate(max_m_per_px=0.5).max_m_per_px == 0.5


# Freshness


def test_five_stale_tiles_in_active_conflict_are_rejected() -> None:
    ages = [200 * DAY] * 5 + [10 * DAY] * 15
    labels = [judge_freshness(age, SectorClass.ACTIVE_CONFLICT) for age in ages]
    assert labels.count(None) == 5
    assert labels.count(FreshnessLabel.FRESH) == 15


def test_three_stale_tiles_in_stable_rear_are_downgraded() -> None:
    ages = [400 * DAY] * 3 + [200 * DAY] * 7
    labels = [judge_freshness(age, SectorClass.STABLE_REAR) for age in ages]
    assert labels.count(FreshnessLabel.DOWNGRADED) == 3
    assert labels.count(FreshnessLabel.FRESH) == 7


@pytest.mark.parametrize(
    ("sector", "days", "stale"),
    [
        (SectorClass.ACTIVE_CONFLICT, 183, None),
        (SectorClass.STABLE_REAR, 365, FreshnessLabel.DOWNGRADED),
    ],
)
def test_tile_is_fresh_between_future_tolerance_and_max_age(
    sector: SectorClass, days: int, stale: FreshnessLabel | None
) -> None:
    assert judge_freshness(days * DAY, sector) is FreshnessLabel.FRESH
    assert judge_freshness(days * DAY + TICK, sector) is stale
    assert judge_freshness(-DAY, sector) is FreshnessLabel.FRESH
    assert judge_freshness(-DAY - TICK, sector) is stale


@given(
    st.timedeltas(-500 * DAY, 500 * DAY),
    st.integers(0, 400),
    st.integers(0, 400),
    st.integers(0, 30),
)
def test_stale_tile_is_rejected_in_conflict_and_downgraded_in_rear(
    age: timedelta, conflict_days: int, rear_days: int, ahead_days: int
) -> None:
    rule = FreshnessRule(
        active_conflict_max_age_days=conflict_days,
        stable_rear_max_age_days=rear_days,
        future_tolerance_days=ahead_days,
    )
    fresh = FreshnessLabel.FRESH
    expected = fresh if -ahead_days * DAY <= age <= conflict_days * DAY else None
    assert judge_freshness(age, SectorClass.ACTIVE_CONFLICT, rule) is expected
    in_rear = fresh if -ahead_days * DAY <= age <= rear_days * DAY else FreshnessLabel.DOWNGRADED
    assert judge_freshness(age, SectorClass.STABLE_REAR, rule) is in_rear


def test_freshness_rejection_carries_its_data() -> None:
    produced_at = NOW - 184 * DAY
    with pytest.raises(FreshnessRejectionError) as caught:
        FreshnessRule().judge(TILE, SectorClass.ACTIVE_CONFLICT, produced_at=produced_at, now=NOW)
    error = caught.value
    assert (error.tile, error.sector_class) == ("sat/15/1/2", "active_conflict")
    assert (error.produced_at, error.max_age_days) == (produced_at, 183)


def test_many_tiles_are_judged_like_each_of_them() -> None:
    tiles = [TileId(source="sat", zoom=15, x=x, y=2) for x in range(4)]
    dates = [NOW - DAY, NOW - 200 * DAY, NOW - DAY, NOW - 200 * DAY]
    sector = SectorClass.ACTIVE_CONFLICT
    verdicts = FreshnessRule().judge_all(tiles, sector, produced_at=dates, now=NOW)
    assert verdicts[::2] == [FreshnessLabel.FRESH] * 2
    for tile, verdict in zip(tiles[1::2], verdicts[1::2], strict=True):
        with pytest.raises(FreshnessRejectionError) as caught:
            FreshnessRule().judge(tile, sector, produced_at=dates[1], now=NOW)
        assert isinstance(verdict, FreshnessRejectionError)
        assert str(verdict) == str(caught.value)


def test_time_zones_are_compared_by_instant() -> None:
    kyiv = timezone(timedelta(hours=3))
    same_instant = (NOW - 183 * DAY).astimezone(kyiv)
    label = FreshnessRule().judge(
        TILE, SectorClass.ACTIVE_CONFLICT, produced_at=same_instant, now=NOW
    )
    assert label is FreshnessLabel.FRESH


@pytest.mark.parametrize("field", ["produced_at", "now"])
def test_naive_time_is_rejected(field: str) -> None:
    times = {"produced_at": NOW, "now": NOW, field: NOW.replace(tzinfo=None)}
    with pytest.raises(InvalidValueError) as caught:
        FreshnessRule().judge(TILE, SectorClass.STABLE_REAR, **times)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "field", ["active_conflict_max_age_days", "stable_rear_max_age_days", "future_tolerance_days"]
)
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, 10**9, 10**400, None])
def test_invalid_ages_are_rejected(field: str, value: Any) -> None:
    fields: dict[str, Any] = {field: value}
    with pytest.raises(InvalidValueError, match=field):
        FreshnessRule(**fields)


def test_extreme_dates_are_downgraded_without_overflow() -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    rule = FreshnessRule()
    for produced_at, now in ((first, last), (last, first)):
        label = rule.judge(TILE, SectorClass.STABLE_REAR, produced_at=produced_at, now=now)
        assert label is FreshnessLabel.DOWNGRADED


def test_sectors_and_labels_have_stable_values() -> None:
    assert list(SectorClass) == ["active_conflict", "stable_rear"]
    assert list(FreshnessLabel) == ["fresh", "downgraded"]


@pytest.mark.parametrize("value", ["abc", None, True, "0.6", [0.6]])
def test_non_number_resolution_is_unreadable(value: Any) -> None:
    assert ResolutionGate().judge(value) is ResolutionVerdict.UNREADABLE


@pytest.mark.parametrize("sector", ["stable_rear", "nope", None])
def test_sector_as_text_is_rejected(sector: Any) -> None:
    with pytest.raises(InvalidValueError, match="sector: must be a SectorClass"):
        FreshnessRule().judge(TILE, sector, produced_at=NOW, now=NOW)
