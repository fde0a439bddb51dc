"""Groups of tiles: when they are committed, in which order, and what an error leaves undone."""

import pytest
from attrs import evolve
from support.group_commit_bench import (
    NOW,
    STEPS,
    WIDE,
    GroupCommitBench,
    add_and_raise,
    create_tile,
    create_tiles,
)

from tileferry.application.cache.group_commit import GROUP_TILES_MAX, GroupLimits
from tileferry.domain.errors import FreshnessRejectionError, InvalidValueError, StorageError
from tileferry.domain.tiles import FreshnessLabel, SectorClass


@pytest.fixture
def bench() -> GroupCommitBench:
    return GroupCommitBench()


def test_invariant_2_commit_order_is_blobs_rows_journal(bench: GroupCommitBench) -> None:
    bench.add(1, b"one")
    bench.add(2, b"two")
    assert (bench.steps.taken, bench.check_visible(1, 2), bench.journaled) == (
        [],
        [False, False],
        [],
    )
    bench.group.flush()
    assert bench.steps.taken == STEPS
    assert bench.journaled == create_tiles(1, 2)
    assert [bench.blobs.read_tile(create_tile(number)) for number in (1, 2)] == [b"one", b"two"]


def test_flush_without_new_tiles_does_nothing(bench: GroupCommitBench) -> None:
    bench.group.flush()
    assert bench.steps.taken == []
    bench.add(1)
    bench.group.flush()
    bench.group.flush()
    assert bench.steps.taken == STEPS
    bench.add(2)
    bench.group.flush()
    assert bench.journaled == create_tiles(1, 2)


def test_group_commits_at_tile_limit() -> None:
    bench = GroupCommitBench(evolve(WIDE, tiles_max=3))
    for number in range(8):
        bench.add(number)
    assert bench.steps.taken == STEPS * 2
    assert bench.journaled == create_tiles(0, 1, 2, 3, 4, 5)


def test_group_commits_at_byte_limit() -> None:
    bench = GroupCommitBench(evolve(WIDE, bytes_max=10))
    bench.add(1, bytes(9))
    assert bench.journaled == []
    bench.add(2, bytes(1))
    assert bench.journaled == create_tiles(1, 2)
    bench.add(3, bytes(9))
    assert bench.journaled == create_tiles(1, 2)
    bench.add(4, bytes(100))
    assert bench.journaled == create_tiles(1, 2, 3, 4)


def test_group_age_counts_from_first_tile() -> None:
    bench = GroupCommitBench(evolve(WIDE, age_ms_max=500))
    bench.clock.advance(100)
    bench.add(1)
    bench.clock.advance(0.3)
    bench.add(2)
    assert bench.journaled == []
    bench.clock.advance(0.25)
    bench.add(3)
    assert bench.journaled == create_tiles(1, 2, 3)
    bench.clock.advance(0.4)
    bench.add(4)
    assert bench.journaled == create_tiles(1, 2, 3)


def test_wall_clock_jump_does_not_age_group() -> None:
    bench = GroupCommitBench(evolve(WIDE, age_ms_max=500))
    bench.add(1)
    bench.clock.set_wall_clock(NOW.timestamp() + 86_400)
    bench.add(2)
    assert bench.journaled == []


def test_limit_of_one_tile_commits_each_tile() -> None:
    bench = GroupCommitBench(GroupLimits(tiles_max=1))
    bench.add(1)
    bench.add(2)
    assert bench.steps.taken == STEPS * 2


@pytest.mark.parametrize(
    "wrong",
    [{"tiles_max": 0}, {"tiles_max": GROUP_TILES_MAX + 1}, {"bytes_max": 0}, {"age_ms_max": -1}],
)
def test_invalid_group_limits_are_rejected(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidValueError, match=next(iter(wrong))):
        GroupLimits(**wrong)


def test_add_returns_freshness_label(bench: GroupCommitBench) -> None:
    assert bench.add(1) is FreshnessLabel.FRESH
    rear = SectorClass.STABLE_REAR
    assert bench.add(2, age_days=400, sector=rear) is FreshnessLabel.DOWNGRADED


def test_rejected_tile_is_not_added_to_group() -> None:
    bench = GroupCommitBench(evolve(WIDE, tiles_max=2))
    with pytest.raises(FreshnessRejectionError):
        bench.add(1, age_days=400)
    bench.group.flush()
    assert bench.steps.taken == []
    bench.add(2)
    with pytest.raises(FreshnessRejectionError):
        bench.add(3, age_days=400)
    assert bench.journaled == []
    bench.add(4)
    assert bench.journaled == create_tiles(2, 4)
    assert bench.check_visible(1, 2, 3, 4) == [False, True, False, True]


def test_duplicate_tile_is_journaled_once(bench: GroupCommitBench) -> None:
    bench.add(1, b"first")
    bench.add(1, b"again")
    bench.group.flush()
    assert bench.notes.count == 1
    assert bench.blobs.read_tile(create_tile(1)) == b"again"


def test_normal_exit_flushes_group(bench: GroupCommitBench) -> None:
    with bench.group as group:
        assert group is bench.group
        bench.add(1)
    assert bench.steps.taken == STEPS
    assert bench.journaled == create_tiles(1)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_exit_on_error_commits_nothing(bench: GroupCommitBench, error: type[BaseException]) -> None:
    with pytest.raises(error):
        add_and_raise(bench, error)
    assert bench.steps.taken == []
    assert (bench.check_visible(1), bench.journaled) == ([False], [])


@pytest.mark.parametrize("step", STEPS)
def test_invariant_2_failed_step_skips_later_steps(bench: GroupCommitBench, step: str) -> None:
    bench.add(1)
    bench.steps.failing = step
    with pytest.raises(StorageError):
        bench.group.flush()
    done = STEPS[: STEPS.index(step) + 1]
    assert bench.steps.taken == done
    if step != "journal":  # what was appended may be there; nobody was told that it is
        assert bench.journaled == []
    assert bench.check_visible(1) == [step in {"append", "journal"}]


@pytest.mark.parametrize("step", STEPS[:3])
def test_flush_after_failure_repeats_all_steps(bench: GroupCommitBench, step: str) -> None:
    bench.add(1)
    bench.steps.failing = step
    with pytest.raises(StorageError):
        bench.group.flush()
    bench.steps.failing = None
    bench.steps.taken.clear()
    bench.group.flush()
    assert list(dict.fromkeys(bench.steps.taken)) == STEPS
    assert (bench.check_visible(1), bench.journaled) == ([True], create_tiles(1))


def test_commit_error_is_raised_from_add() -> None:
    bench = GroupCommitBench(evolve(WIDE, tiles_max=2))
    bench.steps.failing = "rows"
    bench.add(1)
    with pytest.raises(StorageError):
        bench.add(2)
    bench.steps.failing = None
    bench.add(2)  # the same tile again, as whoever was refused may try
    assert bench.journaled == create_tiles(1, 2)


def test_failed_commit_is_not_counted_as_durable(bench: GroupCommitBench) -> None:
    bench.add(1)
    bench.steps.failing = "journal"
    with pytest.raises(StorageError):
        bench.group.flush()
    assert bench.group.durable == 0
