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
from support.raw_partitions import AREA, DAY, NOW, RUN, TILES, entries_of, entry_of, header_of

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions.manifest import Damage
from tileferry.domain.partitions.manifest_stream import ManifestReader, manifest_lines
from tileferry.domain.partitions.validation import (
    REASON_CHARS_MAX,
    REASONS_MAX,
    ValidationRules,
    judge,
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


def verdict(*reasons: str, outcome: VerdictOutcome) -> Verdict:
    return Verdict(run_id=RUN, outcome=outcome, reasons=reasons)


def test_spec3_a_complete_partition_passes() -> None:
    tiles = TILES[:50]
    assert judge(header_of(50), entries_of(tiles), [], RULES) == verdict(outcome=PASSED)


def test_an_empty_listing_is_no_pass() -> None:
    assert judge(header_of(0), [], [], RULES) == verdict(
        "0 tiles are listed for the area: there is nothing to judge",
        "0 tiles are there, and at least 1 must be",
        outcome=FAILED,
    )


def test_an_empty_listing_over_tiles_of_an_earlier_part_is_no_pass() -> None:
    """A resumed run may find that the provider lists nothing any more."""
    old = entries_of(TILES[:2], produced_at=NOW - 400 * DAY)
    judged = judge(header_of(0), old, [], RULES)
    assert judged.outcome is FAILED
    assert judged.reasons[0].startswith("0 tiles are listed")


@pytest.mark.parametrize(
    ("tally", "rules", "outcome", "reason"),
    [
        (
            {"tiles_missing": 1},
            {},
            FAILED,
            "1 of 100 tiles missing: 1.00%, and 0.00% may be",
        ),
        (
            {"tiles_missing": 3},
            {"max_missing_share": 0.03},
            NEEDS_REVIEW,
            "3 of 100 tiles missing: 3.00%, and 3.00% may be",
        ),
        (
            {"tiles_missing": 4},
            {"max_missing_share": 0.03},
            FAILED,
            "4 of 100 tiles missing: 4.00%, and 3.00% may be",
        ),
        (
            {"tiles_failed": 7},
            {"max_failed_share": 0.07},
            NEEDS_REVIEW,
            "7 of 100 tiles failed: 7.00%, and 7.00% may be",
        ),
        ({"tiles_failed": 1}, {}, FAILED, "1 of 100 tiles failed: 1.00%, and 0.00% may be"),
        (
            {"tiles_rejected_resolution": 1, "tiles_rejected_freshness": 2},
            {"max_rejected_share": 0.03},
            NEEDS_REVIEW,
            "3 of 100 tiles refused by a gate: 3.00%, and 3.00% may be",
        ),
        (
            {"tiles_rejected_freshness": 2},
            {"max_rejected_share": 0.01},
            FAILED,
            "2 of 100 tiles refused by a gate: 2.00%, and 1.00% may be",
        ),
    ],
)
def test_spec3_holes_are_for_a_human_up_to_their_share_and_a_failure_beyond(
    tally: dict[str, Any], rules: dict[str, Any], outcome: VerdictOutcome, reason: str
) -> None:
    stored = 100 - sum(tally.values())
    judged = judge(
        header_of(stored, **tally), entries_of(TILES[:stored]), [], ValidationRules(**rules)
    )
    assert judged == verdict(reason, outcome=outcome)


@pytest.mark.parametrize(("stale", "outcome"), [(10, NEEDS_REVIEW), (11, FAILED)])
@pytest.mark.parametrize("told_by", ["date", "label"])
def test_spec3_downgraded_tiles_are_for_a_human_up_to_their_share(
    stale: int, outcome: VerdictOutcome, told_by: str
) -> None:
    changes: dict[str, Any] = (
        {"produced_at": NOW - 366 * DAY}
        if told_by == "date"
        else {"freshness": FreshnessLabel.DOWNGRADED}
    )
    entries = entries_of(TILES[:stale], **changes) + entries_of(TILES[stale:100])
    judged = judge(header_of(100, tiles_downgraded=stale), entries, [], RULES)
    assert judged.outcome is outcome
    (reason,) = judged.reasons
    assert reason.startswith(f"{stale} of 100 tiles downgraded: {stale}.00%, and 10.00% may be")
    assert f"first {TILES[0]}" in reason


def test_a_stale_tile_of_an_active_conflict_fails_the_partition() -> None:
    entries = [entry_of(TILES[0], produced_at=NOW - 184 * DAY), *entries_of(TILES[1:5])]
    judged = judge(header_of(5, area=ACTIVE), entries, [], RULES)
    assert judged == verdict(
        f"1 tile is too old for sector active_conflict, first {TILES[0]} of "
        "2026-04-25T12:00:00+00:00",
        outcome=FAILED,
    )


def test_freshness_counts_from_the_seal_so_that_a_later_look_says_the_same() -> None:
    entries = entries_of(TILES[:5], produced_at=NOW - 365 * DAY)
    header = header_of(5)
    assert judge(header, entries, [], RULES).outcome is PASSED
    later = evolve(header, sealed_at=NOW + timedelta(microseconds=1))
    assert judge(later, entries, [], RULES).outcome is FAILED  # all five are beyond their share


@pytest.mark.parametrize(
    ("resolution", "gate"),
    [(0.4, ResolutionGate()), (2.5, ResolutionGate(max_m_per_px=2.0))],
)
def test_a_tile_outside_the_resolution_fails_the_partition(
    resolution: float, gate: ResolutionGate
) -> None:
    entries = [*entries_of(TILES[:4]), entry_of(TILES[4], resolution_m_per_px=resolution)]
    judged = judge(header_of(5), entries, [], ValidationRules(resolution=gate))
    assert judged == verdict(
        f"1 tile is outside the resolution that is accepted, first {TILES[4]} with "
        f"{resolution} m/px",
        outcome=FAILED,
    )


def test_spec3_a_damaged_tile_fails_the_partition() -> None:
    damages = [Damage(subject=str(tile), problem="its bytes differ") for tile in TILES[2:4]]
    assert judge(header_of(5), entries_of(TILES[:5]), damages, RULES) == verdict(
        f"2 found damaged, first {TILES[2]}: its bytes differ", outcome=FAILED
    )


def test_tiles_that_nobody_got_to_fail_the_partition() -> None:
    judged = judge(header_of(5, listed=7), entries_of(TILES[:5]), [], RULES)
    assert judged == verdict("2 of 7 listed tiles were not got to", outcome=FAILED)


def test_fewer_tiles_than_were_stored_fail_the_partition() -> None:
    judged = judge(header_of(5), entries_of(TILES[:3]), [], RULES)
    assert judged == verdict("3 tiles are there, and 5 were stored", outcome=FAILED)


def test_tiles_that_are_listed_no_more_are_for_a_human() -> None:
    judged = judge(header_of(5), entries_of(TILES[:6]), [], RULES)
    assert judged == verdict(
        "1 tile is there that the provider does not list any more", outcome=NEEDS_REVIEW
    )


def test_a_partition_may_have_to_have_so_many_tiles() -> None:
    judged = judge(header_of(5), entries_of(TILES[:5]), [], ValidationRules(min_tiles=6))
    assert judged == verdict("5 tiles are there, and at least 6 must be", outcome=FAILED)


@pytest.mark.parametrize(
    "wrong",
    [
        TILES[0],
        TileId(source="satellite", zoom=3, x=0, y=0),
        evolve(TILES[9], source="elsewhere"),
        evolve(TILES[0], source="elsewhere"),
    ],
)
def test_a_tile_that_has_no_place_there_fails_the_partition(wrong: TileId) -> None:
    judged = judge(header_of(5), [*entries_of(TILES[:5]), entry_of(wrong)], [], RULES)
    assert judged == verdict(
        f"1 tile is not of the area, of another source, or there twice, first {wrong}",
        outcome=FAILED,
    )


def test_what_fails_is_said_before_what_is_for_a_human() -> None:
    entries = entries_of(TILES[:1], produced_at=NOW - 400 * DAY) + entries_of(TILES[1:99])
    judged = judge(header_of(99, tiles_missing=1), entries, [], RULES)
    assert judged.outcome is FAILED
    assert [reason.split(":")[0] for reason in judged.reasons] == [
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
def test_rules_that_cannot_be_kept_are_refused(field: str, value: Any) -> None:
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
    header = header_of(
        stored,
        tiles_downgraded=stale,
        tiles_missing=draw(counts),
        tiles_failed=draw(counts),
        tiles_rejected_resolution=draw(counts),
        tiles_rejected_freshness=draw(counts),
    )
    entries = entries_of(TILES[:stale], produced_at=NOW - 400 * DAY)
    return header, entries + entries_of(TILES[stale:stored]), stale


@given(partitions(), any_rules)
def test_the_outcome_follows_from_the_worst_share(
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
    assert judge(header, entries, [], rules).outcome is expected


@given(partitions(), any_rules, st.lists(st.text(max_size=400), max_size=30))
def test_damage_always_fails_and_reasons_are_few_short_and_safe(
    partition: tuple[Any, list[Any], int], rules: ValidationRules, problems: list[str]
) -> None:
    header, entries, _ = partition
    damages = [Damage(subject="\x1b[2Jtile\n", problem=problem) for problem in problems]
    judged = judge(header, entries, damages, rules)
    if damages:
        assert judged.outcome is FAILED
    assert len(judged.reasons) <= REASONS_MAX
    assert all(0 < len(reason) <= REASON_CHARS_MAX for reason in judged.reasons)
    assert all(reason.isprintable() for reason in judged.reasons)


@given(partitions(), any_rules, st.integers(0, 39))
def test_losing_a_tile_never_makes_a_verdict_better(
    partition: tuple[Any, list[Any], int], rules: ValidationRules, victim: int
) -> None:
    header, entries, _ = partition
    rank = [PASSED, NEEDS_REVIEW, FAILED]
    before = judge(header, entries, [], rules).outcome
    fewer = entries[:victim] + entries[victim + 1 :]
    after = judge(header, fewer, [], rules).outcome
    assert rank.index(after) >= rank.index(before)
    if len(fewer) < len(entries):
        assert after is FAILED


def peak_bytes(count: int) -> int:
    """Return how much memory it takes to write, read and judge a manifest of so many tiles."""
    area = evolve(AREA, zoom_levels=(18,))
    tiles = islice(area.coverage.tiles("satellite"), count)
    tracemalloc.start()
    try:
        lines = manifest_lines(header_of(count, area=area), (entry_of(tile) for tile in tiles))
        reader = ManifestReader.of(lines)
        assert judge(reader.header, reader.entries(), [], RULES).outcome is PASSED
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_invariant_25_a_manifest_is_judged_in_the_same_memory_however_long_it_is() -> None:
    peak_bytes(10)  # what is made once is made now
    assert peak_bytes(3_000) <= 1.1 * peak_bytes(300) + 10_000
