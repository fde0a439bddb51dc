"""Whether an area is ready: what is wrong with a tile, and when the whole is GO."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    BlobRef,
    Flaw,
    FlightStandard,
    FreshnessLabel,
    ReadinessCount,
    ReadinessVerdict,
    ResolutionGate,
    SectorClass,
    TileId,
    TileMetadata,
    VotingStatus,
    judge_area,
)
from tileferry.domain.tiles.readiness import combine_verdicts

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
DAY = timedelta(days=1)
CONFLICT, REAR = SectorClass.ACTIVE_CONFLICT, SectorClass.STABLE_REAR
TILE = TileId(source="sat", zoom=15, x=19_000, y=11_000)


def make_standard(sector: SectorClass = CONFLICT, **options: Any) -> FlightStandard:
    given: dict[str, Any] = {"sector": sector, "now": NOW, "flown_at": NOW}
    return FlightStandard(**(given | options))


def make_tile(days: float, *, m_per_px: float = 0.6, stored_as: str = "fresh") -> TileMetadata:
    return TileMetadata(
        tile_id=TILE,
        flight_id="F1",
        produced_at=NOW - days * DAY,
        resolution_m_per_px=m_per_px,
        sector_class=REAR,
        freshness=FreshnessLabel(stored_as),
        blob=BlobRef(location=(1, 16), length=20, sha256="ab" * 32),
        voting_status=VotingStatus.TRUSTED,
        stored_at=NOW,
        last_used_at=NOW,
    )


def find_flaws(judged_by: FlightStandard, tile: TileMetadata) -> list[tuple[Flaw, str]]:
    return [(defect.flaw, defect.detail) for defect in judged_by.find_defects(tile)]


def test_fresh_tile_of_accepted_resolution_has_no_flaw() -> None:
    assert find_flaws(make_standard(), make_tile(183)) == []
    assert find_flaws(make_standard(REAR), make_tile(365)) == []


def test_old_tile_is_stale_in_conflict_and_downgraded_in_rear() -> None:
    assert find_flaws(make_standard(), make_tile(400)) == [
        (Flaw.STALE, "400 days old, 183 allowed")
    ]
    assert find_flaws(make_standard(REAR), make_tile(400)) == [
        (Flaw.DOWNGRADED, "400 days old, 365 allowed")
    ]


def test_freshness_is_judged_by_sector_of_flight() -> None:
    stored_for_the_rear = make_tile(200)
    assert find_flaws(make_standard(REAR), stored_for_the_rear) == []
    assert find_flaws(make_standard(CONFLICT), stored_for_the_rear) != []


def test_freshness_is_judged_at_flight_date() -> None:
    tile = make_tile(180)
    assert find_flaws(make_standard(), tile) == []
    assert find_flaws(make_standard(flown_at=NOW + 3 * DAY), tile) == []
    late = find_flaws(make_standard(flown_at=NOW + 4 * DAY), tile)
    assert late == [(Flaw.STALE, "184 days old, 183 allowed")]


def test_future_production_date_stays_flawed_for_later_flight() -> None:
    tile = make_tile(-30)
    expected = [(Flaw.STALE, "dated 30 days in the future")]
    assert find_flaws(make_standard(), tile) == expected
    assert find_flaws(make_standard(flown_at=NOW + 40 * DAY), tile) == expected
    assert find_flaws(make_standard(REAR), tile) == [
        (Flaw.DOWNGRADED, "dated 30 days in the future")
    ]


def test_tile_stored_as_downgraded_stays_downgraded_in_its_sector() -> None:
    expected = [(Flaw.DOWNGRADED, "downgraded when it was stored")]
    assert find_flaws(make_standard(REAR), make_tile(1, stored_as="downgraded")) == expected
    assert find_flaws(make_standard(CONFLICT), make_tile(1, stored_as="downgraded")) == []


def test_rejected_resolution_is_sub_spec_in_addition_to_other_flaws() -> None:
    assert find_flaws(make_standard(), make_tile(1, m_per_px=0.25)) == [
        (Flaw.SUB_SPEC, "0.25 m/px, finer than 0.5 m/px (c11.min_resolution_m_per_px)")
    ]
    bounded = make_standard(resolution=ResolutionGate(max_m_per_px=2.0))
    assert find_flaws(bounded, make_tile(400, m_per_px=4.0)) == [
        (Flaw.STALE, "400 days old, 183 allowed"),
        (Flaw.SUB_SPEC, "4 m/px, coarser than 2 m/px (c11.max_resolution_m_per_px)"),
    ]
    assert find_flaws(make_standard(), make_tile(1, m_per_px=float("nan")))[0][0] is Flaw.SUB_SPEC


def test_tile_must_be_confirmed_within_the_limit() -> None:
    tile = evolve(make_tile(1), stored_at=NOW - 30 * DAY)
    assert find_flaws(make_standard(), tile) == []
    week = make_standard(confirmed_within_days=7)
    expected = [(Flaw.UNCONFIRMED, "last confirmed 30 days ago, 7 allowed")]
    assert find_flaws(week, tile) == expected
    assert find_flaws(week, evolve(tile, reconfirmed_at=NOW - 7 * DAY)) == []
    verdict = judge_area({15: make_count(unconfirmed=2)}, week)
    assert verdict.reasons == ("2 tiles not confirmed by the provider in time",)


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        (make_tile(900), make_tile(400)),
        (make_tile(-90), make_tile(-30)),
        (make_tile(1, m_per_px=0.1), make_tile(1, m_per_px=0.4)),
        (make_tile(1, m_per_px=9.0), make_tile(1, m_per_px=3.0)),
    ],
)
def test_severity_grows_with_distance_from_limit(worse: TileMetadata, better: TileMetadata) -> None:
    judged_by = make_standard(resolution=ResolutionGate(max_m_per_px=2.0))
    (first,), (second,) = judged_by.find_defects(worse), judged_by.find_defects(better)
    assert first.flaw is second.flaw
    assert first.severity > second.severity


@given(days=st.floats(-800, 800), ahead=st.integers(0, 500), sector=st.sampled_from(SectorClass))
def test_later_flight_never_removes_flaws(days: float, ahead: int, sector: SectorClass) -> None:
    tile = make_tile(days)
    today = make_standard(sector).find_defects(tile)
    later = make_standard(sector, flown_at=NOW + ahead * DAY).find_defects(tile)
    assert len(later) >= len(today)


@given(days=st.floats(-800, 800), ahead=st.integers(0, 500))
def test_fresh_for_conflict_implies_fresh_for_rear(days: float, ahead: int) -> None:
    flown_at = NOW + ahead * DAY
    if not make_standard(CONFLICT, flown_at=flown_at).find_defects(make_tile(days)):
        assert make_standard(REAR, flown_at=flown_at).find_defects(make_tile(days)) == ()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"flown_at": NOW - DAY}, "flown_at"),
        ({"flown_at": datetime(2026, 12, 1)}, "flown_at"),  # noqa: DTZ001  # the point
        ({"holes_max": -1}, "holes_max"),
        ({"holes_max": 1.5}, "holes_max"),
        ({"sector": "stable_rear"}, "sector"),
        ({"freshness": None}, "freshness"),
        ({"resolution": 0.5}, "resolution"),
    ],
)
def test_invalid_standard_is_rejected(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidValueError, match=field):
        make_standard(**options)


# The verdict


def make_count(tiles: int = 100, **flaws: int) -> ReadinessCount:
    return ReadinessCount(tiles=tiles, flaws={flaw: flaws.get(flaw.value, 0) for flaw in Flaw})


def test_area_without_flaws_is_go() -> None:
    verdict = judge_area({15: make_count()}, make_standard())
    assert (str(verdict), verdict.reasons, verdict.warnings) == ("GO", (), ())


@pytest.mark.parametrize(
    ("flaw", "reason"),
    [
        ("hole", "1 tile not in the cache, 0 allowed"),
        ("damaged", "1 tile damaged in the cache"),
        ("stale", "1 tile too old for the sector"),
        ("sub_spec", "1 tile outside the accepted resolution"),
    ],
)
def test_one_flawed_tile_is_no_go(flaw: str, reason: str) -> None:
    verdict = judge_area({15: make_count(**{flaw: 1})}, make_standard())
    assert (str(verdict), verdict.reasons) == ("NO-GO", (reason,))


def test_downgraded_tiles_are_go_with_warning() -> None:
    verdict = judge_area({15: make_count(downgraded=1_234, tiles=5_000)}, make_standard(REAR))
    assert (str(verdict), verdict.warnings) == ("GO", ("1,234 tiles downgraded for age",))


def test_holes_are_allowed_up_to_holes_max() -> None:
    three = make_standard(holes_max=3)
    allowed = judge_area({15: make_count(hole=3)}, three)
    assert (str(allowed), allowed.warnings) == ("GO", ("3 tiles not in the cache, 3 allowed",))
    assert str(judge_area({15: make_count(hole=4)}, three)) == "NO-GO"


def test_empty_area_is_no_go() -> None:
    assert str(judge_area({15: make_count(hole=100)}, make_standard(holes_max=1_000))) == "NO-GO"


counts = st.builds(
    lambda numbers: make_count(**dict(zip(Flaw, numbers, strict=True))),
    st.lists(st.integers(0, 100), min_size=len(Flaw), max_size=len(Flaw)),
)


@given(count=counts, holes_max=st.integers(0, 120))
def test_go_requires_absence_of_blocking_flaws(count: ReadinessCount, holes_max: int) -> None:
    verdict = judge_area({15: count}, make_standard(holes_max=holes_max))
    flaws = count.flaws
    ready = (
        flaws[Flaw.HOLE] <= holes_max
        and (count.present != 0 or flaws[Flaw.HOLE] == 0)
        and not any(
            tiles for flaw, tiles in flaws.items() if flaw not in {Flaw.HOLE, Flaw.DOWNGRADED}
        )
    )
    assert verdict.is_go == ready
    said = len(verdict.reasons) + len(verdict.warnings)
    assert said == sum(1 for tiles in flaws.values() if tiles)


def test_absent_tiles_are_no_go_unless_accepted() -> None:
    absent = {15: make_count(absent=3)}
    refused = judge_area(absent, make_standard(holes_max=10))
    assert (str(refused), refused.reasons) == ("NO-GO", ("3 tiles absent at the provider",))
    accepted = judge_area(absent, make_standard(accepts_absent=True))
    assert (str(accepted), accepted.warnings) == ("GO", ("3 tiles absent at the provider",))
    empty = judge_area({15: make_count(absent=100)}, make_standard(accepts_absent=True))
    assert empty.reasons == ("100 tiles absent at the provider; no tiles at zoom 15",)


@given(one=counts, other=counts)
def test_readiness_counts_add_up(one: ReadinessCount, other: ReadinessCount) -> None:
    both = one + other
    assert both.tiles == one.tiles + other.tiles
    assert both.present == one.present + other.present
    assert all(both.flaws[flaw] == one.flaws[flaw] + other.flaws[flaw] for flaw in Flaw)


def test_empty_zoom_level_is_no_go_regardless_of_holes_max() -> None:
    levels = {5: make_count(tiles=1, hole=1), 15: make_count()}
    verdict = judge_area(levels, make_standard(holes_max=10))
    assert str(verdict) == "NO-GO"
    assert verdict.reasons == ("1 tile not in the cache, 10 allowed; no tiles at zoom 5",)
    some = {5: make_count(tiles=2, hole=1), 15: make_count()}
    assert str(judge_area(some, make_standard(holes_max=10))) == "GO"


@pytest.mark.parametrize("sector", SectorClass)
def test_tile_stored_after_now_is_stale(sector: SectorClass) -> None:
    tile = make_tile(0)
    set_back = NOW - 100 * DAY
    judged_by = make_standard(sector, now=set_back, flown_at=set_back)
    expected = [(Flaw.STALE, "stored 100 days in the future; check the clock")]
    assert find_flaws(judged_by, tile) == expected
    an_hour_off = NOW - DAY / 24
    assert find_flaws(make_standard(sector, now=an_hour_off, flown_at=an_hour_off), tile) == []


def test_several_areas_are_go_only_together() -> None:
    go = ReadinessVerdict(reasons=(), warnings=("1 tile downgraded for age",))
    no_go = ReadinessVerdict(reasons=("2 tiles not in the cache",), warnings=())
    assert combine_verdicts([("here", go)]) == go
    both = combine_verdicts([("here", go), ("there", no_go)])
    assert (str(both), both.reasons) == ("NO-GO", ("there: 2 tiles not in the cache",))
    assert both.warnings == ("here: 1 tile downgraded for age",)
    assert not combine_verdicts([]).is_go
