"""Groups of tiles that are made durable in the background, while the next one is filled."""

import pytest
from attrs import evolve
from support.group_bench import STEPS, WIDE, Bench, Later, add_and_raise, tiles

from tileferry.application.cache.group_commit import GroupLimits
from tileferry.domain.errors import StorageError

PAIRS = evolve(WIDE, tiles_max=2)


def test_invariant_2_rows_of_the_next_group_do_not_overtake_their_bytes() -> None:
    later = Later()
    bench = Bench(PAIRS, later)
    for number in (1, 2, 3):
        bench.add(number)
    assert bench.steps.taken == []
    later.run()
    assert bench.steps.taken == STEPS
    assert bench.visible(1, 2, 3) == [True, True, False]
    assert bench.journaled == tiles(1, 2)
    bench.group.flush()
    assert bench.journaled == tiles(1, 2, 3)


def test_only_one_group_at_a_time_is_made_durable() -> None:
    later = Later()
    bench = Bench(PAIRS, later)
    for number in range(5):
        bench.add(number)
    assert bench.steps.taken == STEPS, "the first, before the second was handed over"
    assert len(later.tasks) == 2
    bench.group.flush()
    assert bench.steps.taken == STEPS * 3
    assert bench.journaled == tiles(0, 1, 2, 3, 4)


def test_an_orderly_end_waits_for_the_background() -> None:
    bench = Bench(PAIRS, Later())
    with bench.group:
        for number in (1, 2, 3):
            bench.add(number)
    assert bench.journaled == tiles(1, 2, 3)


def test_an_error_ends_nothing_before_the_background_has_ended() -> None:
    later = Later()
    bench = Bench(PAIRS, later)
    bench.add(0)
    with pytest.raises(LookupError):
        add_and_raise(bench, LookupError)
    assert later.tasks[0].done()
    assert bench.journaled == tiles(0, 1)


@pytest.mark.parametrize("step", STEPS[:3])
@pytest.mark.parametrize("notice", ["add", "flush", "next group"])
def test_what_failed_in_the_background_is_told_and_tried_again_whole(
    step: str, notice: str
) -> None:
    later = Later()
    bench = Bench(PAIRS, later)
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
    assert bench.journaled == tiles(*taken_in)
    assert all(bench.visible(*taken_in)), "a journaled tile has its row"


def test_it_knows_how_many_are_durable() -> None:
    later = Later()
    bench = Bench(GroupLimits(tiles_max=2), later)
    for number in range(5):
        bench.add(number)
    assert len(later.tasks) == 2
    assert bench.group.durable == 2  # of the second group nobody has heard yet
    bench.group.flush()
    assert bench.group.durable == len(bench.journaled) == 5
