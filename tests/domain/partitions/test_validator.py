"""The validator's rules, one by one, and what holds for any manifest."""

import tracemalloc
from datetime import timedelta
from fractions import Fraction
from itertools import islice
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from support.raw_partitions import (
    AREA,
    DAY,
    NOW,
    RUN,
    TILES,
    create_entries,
    create_entry,
    create_header,
)

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions.manifest import PartitionDamage
from tileferry.domain.partitions.manifest_format import ManifestReader, format_manifest
from tileferry.domain.partitions.validator import (
    REASON_CHARS_MAX,
    REASONS_MAX,
    ValidationRules,
    judge_partition,
)
from tileferry.domain.runs import Verdict, VerdictOutcome
from tileferry.domain.tiles import (
    FreshnessLabel,
    FreshnessRule,
    ResolutionGate,
    SectorClass,
    TileId,
)

RULES = ValidationRules()
ACTIVE = evolve(AREA, sector_class=SectorClass.ACTIVE_CONFLICT)
PASSED, NEEDS_REVIEW, FAILED = VerdictOutcome


def make_verdict(*reasons: str, outcome: VerdictOutcome) -> Verdict:
    return Verdict(run_id=RUN, outcome=outcome, reasons=reasons)


def test_spec3_complete_partition_passes() -> None:
    tiles = TILES[:50]
    assert judge_partition(create_header(50), create_entries(tiles), [], RULES) == make_verdict(
        outcome=PASSED
    )


def test_empty_listing_fails() -> None:
    assert judge_partition(create_header(0), [], [], RULES) == make_verdict(
        "the provider lists no tiles for the area",
        "0 tiles found, minimum 1",
        outcome=FAILED,
    )


def test_empty_listing_fails_even_with_tiles_of_earlier_run_part() -> None:
    """A resumed run may find that the provider lists nothing any more."""
    old = create_entries(TILES[:2], produced_at=NOW - 400 * DAY)
    judged = judge_partition(create_header(0), old, [], RULES)
    assert judged.outcome is FAILED
    assert judged.reasons[0].startswith("the provider lists no tiles")


@pytest.mark.parametrize(
    ("tally", "rules", "outcome", "reason"),
    [
        (
            {"tiles_missing": 1},
            {},
            FAILED,
            "1 of 100 tiles missing (1.00%, limit 0.00%)",
        ),
        (
            {"tiles_missing": 3},
            {"max_missing_share": 0.03},
            NEEDS_REVIEW,
            "3 of 100 tiles missing (3.00%, limit 3.00%)",
        ),
        (
            {"tiles_missing": 4},
            {"max_missing_share": 0.03},
            FAILED,
            "4 of 100 tiles missing (4.00%, limit 3.00%)",
        ),
        (
            {"tiles_failed": 7},
            {"max_failed_share": 0.07},
            NEEDS_REVIEW,
            "7 of 100 tiles failed (7.00%, limit 7.00%)",
        ),
        ({"tiles_failed": 1}, {}, FAILED, "1 of 100 tiles failed (1.00%, limit 0.00%)"),
        (
            {"tiles_rejected_resolution": 1, "tiles_rejected_freshness": 2},
            {"max_rejected_share": 0.03},
            NEEDS_REVIEW,
            "3 of 100 tiles rejected by a gate (3.00%, limit 3.00%)",
        ),
        (
            {"tiles_rejected_freshness": 2},
            {"max_rejected_share": 0.01},
            FAILED,
            "2 of 100 tiles rejected by a gate (2.00%, limit 1.00%)",
        ),
    ],
)
def test_spec3_missing_tiles_need_review_up_to_limit_then_fail(
    tally: dict[str, Any], rules: dict[str, Any], outcome: VerdictOutcome, reason: str
) -> None:
    stored = 100 - sum(tally.values())
    judged = judge_partition(
        create_header(stored, **tally), create_entries(TILES[:stored]), [], ValidationRules(**rules)
    )
    assert judged == make_verdict(reason, outcome=outcome)


@pytest.mark.parametrize(("stale", "outcome"), [(10, NEEDS_REVIEW), (11, FAILED)])
@pytest.mark.parametrize("told_by", ["date", "label"])
def test_spec3_downgraded_tiles_need_review_up_to_limit_then_fail(
    stale: int, outcome: VerdictOutcome, told_by: str
) -> None:
    changes: dict[str, Any] = (
        {"produced_at": NOW - 366 * DAY}
        if told_by == "date"
        else {"freshness": FreshnessLabel.DOWNGRADED}
    )
    entries = create_entries(TILES[:stale], **changes) + create_entries(TILES[stale:100])
    judged = judge_partition(create_header(100, tiles_downgraded=stale), entries, [], RULES)
    assert judged.outcome is outcome
    (reason,) = judged.reasons
    assert reason.startswith(f"{stale} of 100 tiles downgraded ({stale}.00%, limit 10.00%)")
    assert f"first {TILES[0]}" in reason


def test_stale_tile_in_active_conflict_sector_fails() -> None:
    entries = [create_entry(TILES[0], produced_at=NOW - 184 * DAY), *create_entries(TILES[1:5])]
    judged = judge_partition(create_header(5, area=ACTIVE), entries, [], RULES)
    assert judged == make_verdict(
        f"1 tile is too old for sector active_conflict, first {TILES[0]} of "
        "2026-04-25T12:00:00+00:00",
        outcome=FAILED,
    )


def test_freshness_is_measured_at_seal_time() -> None:
    entries = create_entries(TILES[:5], produced_at=NOW - 365 * DAY)
    header = create_header(5)
    assert judge_partition(header, entries, [], RULES).outcome is PASSED
    later = evolve(header, sealed_at=NOW + timedelta(microseconds=1))
    assert (
        judge_partition(later, entries, [], RULES).outcome is FAILED
    )  # all five are beyond their share


@pytest.mark.parametrize(
    ("resolution", "gate"),
    [(0.4, ResolutionGate()), (2.5, ResolutionGate(max_m_per_px=2.0))],
)
def test_tile_outside_resolution_gate_fails(resolution: float, gate: ResolutionGate) -> None:
    entries = [*create_entries(TILES[:4]), create_entry(TILES[4], resolution_m_per_px=resolution)]
    judged = judge_partition(create_header(5), entries, [], ValidationRules(resolution=gate))
    assert judged == make_verdict(
        f"1 tile is outside the accepted resolution, first {TILES[4]} with {resolution} m/px",
        outcome=FAILED,
    )


def test_spec3_damaged_tile_fails() -> None:
    damages = [
        PartitionDamage(subject=str(tile), problem="its bytes differ") for tile in TILES[2:4]
    ]
    assert judge_partition(
        create_header(5), create_entries(TILES[:5]), damages, RULES
    ) == make_verdict(f"2 damaged, first {TILES[2]}: its bytes differ", outcome=FAILED)


def test_unprocessed_listed_tiles_fail() -> None:
    judged = judge_partition(create_header(5, listed=7), create_entries(TILES[:5]), [], RULES)
    assert judged == make_verdict("2 of 7 listed tiles were not attempted", outcome=FAILED)


def test_fewer_tiles_than_stored_fail() -> None:
    judged = judge_partition(create_header(5), create_entries(TILES[:3]), [], RULES)
    assert judged == make_verdict("3 tiles found, 5 were stored", outcome=FAILED)


def test_tiles_no_longer_listed_need_review() -> None:
    judged = judge_partition(create_header(5), create_entries(TILES[:6]), [], RULES)
    assert judged == make_verdict(
        "1 tile is no longer listed by the provider", outcome=NEEDS_REVIEW
    )


def test_fewer_than_min_tiles_fail() -> None:
    judged = judge_partition(
        create_header(5), create_entries(TILES[:5]), [], ValidationRules(min_tiles=6)
    )
    assert judged == make_verdict("5 tiles found, minimum 6", outcome=FAILED)


@pytest.mark.parametrize(
    "wrong",
    [
        TILES[0],
        TileId(source="satellite", zoom=3, x=0, y=0),
        evolve(TILES[9], source="elsewhere"),
        evolve(TILES[0], source="elsewhere"),
    ],
)
def test_foreign_or_duplicate_tile_fails(wrong: TileId) -> None:
    judged = judge_partition(
        create_header(5), [*create_entries(TILES[:5]), create_entry(wrong)], [], RULES
    )
    assert judged == make_verdict(
        f"1 tile is outside the area, from another source or duplicated, first {wrong}",
        outcome=FAILED,
    )


def test_failure_reasons_precede_review_reasons() -> None:
    entries = create_entries(TILES[:1], produced_at=NOW - 400 * DAY) + create_entries(TILES[1:99])
    judged = judge_partition(create_header(99, tiles_missing=1), entries, [], RULES)
    assert judged.outcome is FAILED
    assert [reason.split(" (")[0] for reason in judged.reasons] == [
        "1 of 100 tiles missing",
        "1 of 100 tiles downgraded",
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("min_tiles", 0),
        ("max_missing_share", 1.1),
        ("max_failed_share", -0.1),
        ("max_rejected_share", "0.1"),
        ("max_downgraded_share", float("nan")),
        ("resolution", 0.5),
        ("freshness", None),
    ],
)
def test_invalid_validation_rules_are_rejected(field: str, value: Any) -> None:
    with pytest.raises(InvalidValueError, match=f"ValidationRules.{field}"):
        ValidationRules(**{field: value})


shares = st.sampled_from([0.0, 0.05, 0.2, 1.0])
any_rules = st.builds(
    ValidationRules,
    min_tiles=st.integers(1, 10),
    max_missing_share=shares,
    max_failed_share=shares,
    max_rejected_share=shares,
    max_downgraded_share=shares,
    freshness=st.builds(FreshnessRule, stable_rear_max_age_days=st.sampled_from([30.0, 365.0])),
)
counts = st.integers(0, 12)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[Any, list[Any], int]:
    """A manifest that fits its tally, and how many of its tiles are stale."""
    stored, stale = draw(st.integers(0, 40)), draw(counts)
    stale = min(stale, stored)
    header = create_header(
        stored,
        tiles_downgraded=stale,
        tiles_missing=draw(counts),
        tiles_failed=draw(counts),
        tiles_rejected_resolution=draw(counts),
        tiles_rejected_freshness=draw(counts),
    )
    entries = create_entries(TILES[:stale], produced_at=NOW - 400 * DAY)
    return header, entries + create_entries(TILES[stale:stored]), stale


@given(partitions(), any_rules)
def test_outcome_follows_from_worst_share(
    partition: tuple[Any, list[Any], int], rules: ValidationRules
) -> None:
    header, entries, stale = partition
    tally, listed = header.tally, header.tiles_listed
    rejected = tally.tiles_rejected_resolution + tally.tiles_rejected_freshness
    flawed = [
        (tally.tiles_missing, rules.max_missing_share),
        (tally.tiles_failed, rules.max_failed_share),
        (rejected, rules.max_rejected_share),
        (stale, rules.max_downgraded_share),
    ]
    too_few = not listed or len(entries) < rules.min_tiles
    if too_few or any(count > Fraction(str(share)) * listed for count, share in flawed):
        expected = FAILED
    else:
        expected = NEEDS_REVIEW if any(count for count, _ in flawed) else PASSED
    assert judge_partition(header, entries, [], rules).outcome is expected


@given(partitions(), any_rules, st.lists(st.text(max_size=400), max_size=30))
def test_damage_always_fails_with_bounded_printable_reasons(
    partition: tuple[Any, list[Any], int], rules: ValidationRules, problems: list[str]
) -> None:
    header, entries, _ = partition
    damages = [PartitionDamage(subject="\x1b[2Jtile\n", problem=problem) for problem in problems]
    judged = judge_partition(header, entries, damages, rules)
    if damages:
        assert judged.outcome is FAILED
    assert len(judged.reasons) <= REASONS_MAX
    assert all(0 < len(reason) <= REASON_CHARS_MAX for reason in judged.reasons)
    assert all(reason.isprintable() for reason in judged.reasons)


@given(partitions(), any_rules, st.integers(0, 39))
def test_losing_tile_never_improves_verdict(
    partition: tuple[Any, list[Any], int], rules: ValidationRules, victim: int
) -> None:
    header, entries, _ = partition
    rank = [PASSED, NEEDS_REVIEW, FAILED]
    before = judge_partition(header, entries, [], rules).outcome
    fewer = entries[:victim] + entries[victim + 1 :]
    after = judge_partition(header, fewer, [], rules).outcome
    assert rank.index(after) >= rank.index(before)
    if len(fewer) < len(entries):
        assert after is FAILED


def measure_peak_bytes(count: int) -> int:
    """Return how much memory it takes to write, read and judge a manifest of so many tiles."""
    area = evolve(AREA, zoom_levels=(18,))
    tiles = islice(area.coverage.tiles("satellite"), count)
    tracemalloc.start()
    try:
        lines = format_manifest(
            create_header(count, area=area), (create_entry(tile) for tile in tiles)
        )
        reader = ManifestReader.from_chunks(lines)
        assert judge_partition(reader.header, reader.entries(), [], RULES).outcome is PASSED
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_invariant_25_validation_memory_does_not_grow_with_manifest() -> None:
    measure_peak_bytes(10)  # what is made once is made now
    assert measure_peak_bytes(3_000) <= 1.1 * measure_peak_bytes(300) + 10_000
