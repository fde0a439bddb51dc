"""Groups of tiles that are made durable in the background, while the next one is filled."""

import pytest
from attrs import evolve
from support.group_commit_bench import (
    STEPS,
    WIDE,
    DeferredBackground,
    GroupCommitBench,
    add_and_raise,
    create_tiles,
)

from tileferry.application.cache.group_commit import GroupLimits
from tileferry.domain.errors import StorageError

PAIRS = evolve(WIDE, tiles_max=2)


def test_invariant_2_rows_of_next_group_wait_for_their_blobs() -> None:
    later = DeferredBackground()
    bench = GroupCommitBench(PAIRS, later)
    for number in (1, 2, 3):
        bench.add(number)
    assert bench.steps.taken == []
    later.run()
    assert bench.steps.taken == STEPS
    assert bench.check_visible(1, 2, 3) == [True, True, False]
    assert bench.journaled == create_tiles(1, 2)
    bench.group.flush()
    assert bench.journaled == create_tiles(1, 2, 3)


def test_only_one_group_is_committed_at_a_time() -> None:
    later = DeferredBackground()
    bench = GroupCommitBench(PAIRS, later)
    for number in range(5):
        bench.add(number)
    assert bench.steps.taken == STEPS, "the first, before the second was handed over"
    assert len(later.tasks) == 2
    bench.group.flush()
    assert bench.steps.taken == STEPS * 3
    assert bench.journaled == create_tiles(0, 1, 2, 3, 4)


def test_exit_waits_for_background_commit() -> None:
    bench = GroupCommitBench(PAIRS, DeferredBackground())
    with bench.group:
        for number in (1, 2, 3):
            bench.add(number)
    assert bench.journaled == create_tiles(1, 2, 3)


def test_exit_on_error_waits_for_background_commit() -> None:
    later = DeferredBackground()
    bench = GroupCommitBench(PAIRS, later)
    bench.add(0)
    with pytest.raises(LookupError):
        add_and_raise(bench, LookupError)
    assert later.tasks[0].done()
    assert bench.journaled == create_tiles(0, 1)


@pytest.mark.parametrize("step", STEPS[:3])
@pytest.mark.parametrize("notice", ["add", "flush", "next group"])
def test_background_failure_is_raised_and_group_is_retried(step: str, notice: str) -> None:
    later = DeferredBackground()
    bench = GroupCommitBench(PAIRS, later)
    bench.steps.failing = step
    bench.add(1)
    bench.add(2)
    if notice == "add":
        later.run()
        with pytest.raises(StorageError, match=step):
            bench.add(3)  # it is not taken in
    elif notice == "flush":
        with pytest.raises(StorageError, match=step):
            bench.group.flush()
    else:
        bench.add(3)
        with pytest.raises(StorageError, match=step):
            bench.add(4)
    assert bench.journaled == []
    bench.steps.failing = None
    bench.group.flush()
    taken_in = (1, 2, 3, 4) if notice == "next group" else (1, 2)
    assert bench.journaled == create_tiles(*taken_in)
    assert all(bench.check_visible(*taken_in)), "a journaled tile has its row"


def test_durable_count_excludes_uncommitted_groups() -> None:
    later = DeferredBackground()
    bench = GroupCommitBench(GroupLimits(tiles_max=2), later)
    for number in range(5):
        bench.add(number)
    assert len(later.tasks) == 2
    assert bench.group.durable == 2  # of the second group nobody has heard yet
    bench.group.flush()
    assert bench.group.durable == len(bench.journaled) == 5
