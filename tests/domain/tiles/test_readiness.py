"""Whether an area is ready: what is wrong with a tile, and when the whole is GO."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    BlobRef,
    Flaw,
    FlightStandard,
    FreshnessLabel,
    ReadinessCount,
    ResolutionGate,
    SectorClass,
    TileId,
    TileMetadata,
    VotingStatus,
    judge_area,
)

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
DAY = timedelta(days=1)
CONFLICT, REAR = SectorClass.ACTIVE_CONFLICT, SectorClass.STABLE_REAR
TILE = TileId(source="sat", zoom=15, x=19_000, y=11_000)


def standard(sector: SectorClass = CONFLICT, **options: Any) -> FlightStandard:
    given: dict[str, Any] = {"sector": sector, "now": NOW, "flown_at": NOW}
    return FlightStandard(**(given | options))


def aged(days: float, *, m_per_px: float = 0.6, stored_as: str = "fresh") -> TileMetadata:
    return TileMetadata(
        tile_id=TILE,
        flight_id="F1",
        produced_at=NOW - days * DAY,
        resolution_m_per_px=m_per_px,
        sector_class=REAR,
        freshness=FreshnessLabel(stored_as),
        blob=BlobRef(segment=1, offset=16, length=20, sha256="ab" * 32),
        voting_status=VotingStatus.TRUSTED,
        stored_at=NOW,
        last_used_at=NOW,
    )


def found(judged_by: FlightStandard, tile: TileMetadata) -> list[tuple[Flaw, str]]:
    return [(defect.flaw, defect.detail) for defect in judged_by.defects_of(tile)]


def test_a_fresh_tile_of_an_accepted_resolution_has_no_flaw() -> None:
    assert found(standard(), aged(183)) == []
    assert found(standard(REAR), aged(365)) == []


def test_an_old_tile_is_stale_in_conflict_and_downgraded_in_the_rear() -> None:
    assert found(standard(), aged(400)) == [(Flaw.STALE, "400 days old, 183 allowed")]
    assert found(standard(REAR), aged(400)) == [(Flaw.DOWNGRADED, "400 days old, 365 allowed")]


def test_what_counts_is_the_sector_of_the_flight_not_the_one_it_was_stored_for() -> None:
    stored_for_the_rear = aged(200)
    assert found(standard(REAR), stored_for_the_rear) == []
    assert found(standard(CONFLICT), stored_for_the_rear) != []


def test_a_tile_that_is_fresh_today_may_be_stale_on_the_day_of_the_flight() -> None:
    tile = aged(180)
    assert found(standard(), tile) == []
    assert found(standard(flown_at=NOW + 3 * DAY), tile) == []
    late = found(standard(flown_at=NOW + 4 * DAY), tile)
    assert late == [(Flaw.STALE, "184 days old, 183 allowed")]


def test_a_date_in_the_future_does_not_become_true_by_flying_later() -> None:
    tile = aged(-30)
    expected = [(Flaw.STALE, "dated 30 days ahead of now")]
    assert found(standard(), tile) == expected
    assert found(standard(flown_at=NOW + 40 * DAY), tile) == expected
    assert found(standard(REAR), tile) == [(Flaw.DOWNGRADED, "dated 30 days ahead of now")]


def test_what_was_downgraded_when_it_was_stored_stays_so() -> None:
    expected = [(Flaw.DOWNGRADED, "was downgraded when it was stored")]
    assert found(standard(), aged(1, stored_as="downgraded")) == expected
    assert found(standard(REAR), aged(1, stored_as="downgraded")) == expected


def test_a_resolution_that_is_not_accepted_is_sub_spec_beside_any_other_flaw() -> None:
    assert found(standard(), aged(1, m_per_px=0.25)) == [
        (Flaw.SUB_SPEC, "0.25 m/px, below minimum")
    ]
    bounded = standard(resolution=ResolutionGate(max_m_per_px=2.0))
    assert found(bounded, aged(400, m_per_px=4.0)) == [
        (Flaw.STALE, "400 days old, 183 allowed"),
        (Flaw.SUB_SPEC, "4 m/px, above maximum"),
    ]
    assert found(standard(), aged(1, m_per_px=float("nan")))[0][0] is Flaw.SUB_SPEC


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        (aged(900), aged(400)),
        (aged(-90), aged(-30)),
        (aged(1, m_per_px=0.1), aged(1, m_per_px=0.4)),
        (aged(1, m_per_px=9.0), aged(1, m_per_px=3.0)),
    ],
)
def test_the_further_off_the_worse(worse: TileMetadata, better: TileMetadata) -> None:
    judged_by = standard(resolution=ResolutionGate(max_m_per_px=2.0))
    (first,), (second,) = judged_by.defects_of(worse), judged_by.defects_of(better)
    assert first.flaw is second.flaw
    assert first.severity > second.severity


@given(days=st.floats(-800, 800), ahead=st.integers(0, 500), sector=st.sampled_from(SectorClass))
def test_flying_later_never_makes_a_tile_better(
    days: float, ahead: int, sector: SectorClass
) -> None:
    tile = aged(days)
    today = standard(sector).defects_of(tile)
    later = standard(sector, flown_at=NOW + ahead * DAY).defects_of(tile)
    assert len(later) >= len(today)


@given(days=st.floats(-800, 800), ahead=st.integers(0, 500))
def test_what_is_fresh_enough_for_conflict_is_fresh_enough_for_the_rear(
    days: float, ahead: int
) -> None:
    flown_at = NOW + ahead * DAY
    if not standard(CONFLICT, flown_at=flown_at).defects_of(aged(days)):
        assert standard(REAR, flown_at=flown_at).defects_of(aged(days)) == ()


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
def test_a_standard_that_makes_no_sense_is_refused(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidValueError, match=field):
        standard(**options)


# The verdict


def counted(tiles: int = 100, **flaws: int) -> ReadinessCount:
    return ReadinessCount(tiles=tiles, flaws={flaw: flaws.get(flaw.value, 0) for flaw in Flaw})


def test_an_area_without_a_flaw_is_go() -> None:
    verdict = judge_area({15: counted()}, standard())
    assert (str(verdict), verdict.reasons, verdict.warnings) == ("GO", (), ())


@pytest.mark.parametrize(
    ("flaw", "reason"),
    [
        ("hole", "1 tile not in the cache, 0 allowed"),
        ("damaged", "1 tile cannot be read as stored"),
        ("stale", "1 tile too old for the sector"),
        ("sub_spec", "1 tile of a resolution that is not accepted"),
    ],
)
def test_one_flawed_tile_is_enough_for_no_go(flaw: str, reason: str) -> None:
    verdict = judge_area({15: counted(**{flaw: 1})}, standard())
    assert (str(verdict), verdict.reasons) == ("NO-GO", (reason,))


def test_downgraded_tiles_are_go_with_a_warning() -> None:
    verdict = judge_area({15: counted(downgraded=1_234, tiles=5_000)}, standard(REAR))
    assert (str(verdict), verdict.warnings) == ("GO", ("1,234 tiles downgraded for age",))


def test_so_many_holes_are_allowed_and_not_one_more() -> None:
    three = standard(holes_max=3)
    allowed = judge_area({15: counted(hole=3)}, three)
    assert (str(allowed), allowed.warnings) == ("GO", ("3 tiles not in the cache, 3 allowed",))
    assert str(judge_area({15: counted(hole=4)}, three)) == "NO-GO"


def test_an_area_of_which_nothing_is_there_is_never_ready() -> None:
    assert str(judge_area({15: counted(hole=100)}, standard(holes_max=1_000))) == "NO-GO"


counts = st.builds(
    lambda numbers: counted(**dict(zip(Flaw, numbers, strict=True))),
    st.lists(st.integers(0, 100), min_size=len(Flaw), max_size=len(Flaw)),
)


@given(count=counts, holes_max=st.integers(0, 120))
def test_go_means_that_every_flaw_that_grounds_is_absent(
    count: ReadinessCount, holes_max: int
) -> None:
    verdict = judge_area({15: count}, standard(holes_max=holes_max))
    flaws = count.flaws
    ready = (
        flaws[Flaw.HOLE] <= holes_max
        and (count.present > 0 or flaws[Flaw.HOLE] == 0)
        and not any(flaws[flaw] for flaw in (Flaw.DAMAGED, Flaw.STALE, Flaw.SUB_SPEC))
    )
    assert verdict.is_go == ready
    said = len(verdict.reasons) + len(verdict.warnings)
    assert said == sum(1 for tiles in flaws.values() if tiles)


@given(one=counts, other=counts)
def test_counts_add_up(one: ReadinessCount, other: ReadinessCount) -> None:
    both = one + other
    assert both.tiles == one.tiles + other.tiles
    assert both.present == one.present + other.present
    assert all(both.flaws[flaw] == one.flaws[flaw] + other.flaws[flaw] for flaw in Flaw)


def test_a_zoom_level_of_which_nothing_is_there_is_no_go_however_many_holes_are_allowed() -> None:
    levels = {5: counted(tiles=1, hole=1), 15: counted()}
    verdict = judge_area(levels, standard(holes_max=10))
    assert str(verdict) == "NO-GO"
    assert verdict.reasons == ("1 tile not in the cache, 10 allowed; nothing at all of zoom 5",)
    some = {5: counted(tiles=2, hole=1), 15: counted()}
    assert str(judge_area(some, standard(holes_max=10))) == "GO"


@pytest.mark.parametrize("sector", SectorClass)
def test_on_a_clock_that_was_set_back_nothing_is_fresh(sector: SectorClass) -> None:
    tile = aged(0)
    set_back = NOW - 100 * DAY
    judged_by = standard(sector, now=set_back, flown_at=set_back)
    expected = [(Flaw.STALE, "stored 100 days after now: is the clock right?")]
    assert found(judged_by, tile) == expected
    an_hour_off = NOW - DAY / 24
    assert found(standard(sector, now=an_hour_off, flown_at=an_hour_off), tile) == []
