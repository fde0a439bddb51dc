"""Groups of tiles: when they are committed, in which order, and what an error leaves undone."""

from collections.abc import Iterator

import pytest
from attrs import evolve
from support.group_bench import NOW, STEPS, WIDE, Bench, add_and_raise, tile, tiles

from tileferry.application.cache.group_commit import GROUP_TILES_MAX, GroupLimits
from tileferry.domain.errors import FreshnessRejectionError, InvalidValueError, StorageError
from tileferry.domain.tiles import FreshnessLabel, SectorClass


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_invariant_2_the_order_is_blobs_then_rows_then_journal(bench: Bench) -> None:
    bench.add(1, b"one")
    bench.add(2, iter([b"t", b"wo"]))
    assert (bench.steps.taken, bench.visible(1, 2), bench.journaled) == ([], [False, False], [])
    bench.group.flush()
    assert bench.steps.taken == STEPS
    assert bench.journaled == tiles(1, 2)
    assert [bench.blobs.read_tile(tile(number)) for number in (1, 2)] == [b"one", b"two"]


def test_nothing_new_means_nothing_to_flush(bench: Bench) -> None:
    bench.group.flush()
    assert bench.steps.taken == []
    bench.add(1)
    bench.group.flush()
    bench.group.flush()
    assert bench.steps.taken == STEPS
    bench.add(2)
    bench.group.flush()
    assert bench.journaled == tiles(1, 2)


def test_a_group_is_full_by_tiles() -> None:
    bench = Bench(evolve(WIDE, tiles_max=3))
    for number in range(8):
        bench.add(number)
    assert bench.steps.taken == STEPS * 2
    assert bench.journaled == tiles(0, 1, 2, 3, 4, 5)


def test_a_group_is_full_by_bytes() -> None:
    bench = Bench(evolve(WIDE, bytes_max=10))
    bench.add(1, bytes(9))
    assert bench.journaled == []
    bench.add(2, bytes(1))
    assert bench.journaled == tiles(1, 2)
    bench.add(3, bytes(9))
    assert bench.journaled == tiles(1, 2)
    bench.add(4, bytes(100))
    assert bench.journaled == tiles(1, 2, 3, 4)


def test_a_group_is_old_by_its_first_tile() -> None:
    bench = Bench(evolve(WIDE, age_ms_max=500))
    bench.clock.pass_time(100)
    bench.add(1)
    bench.clock.pass_time(0.3)
    bench.add(2)
    assert bench.journaled == []
    bench.clock.pass_time(0.25)
    bench.add(3)
    assert bench.journaled == tiles(1, 2, 3)
    bench.clock.pass_time(0.4)
    bench.add(4)
    assert bench.journaled == tiles(1, 2, 3)


def test_a_jump_of_the_wall_clock_ages_no_group() -> None:
    bench = Bench(evolve(WIDE, age_ms_max=500))
    bench.add(1)
    bench.clock.set_wall_clock(NOW.timestamp() + 86_400)
    bench.add(2)
    assert bench.journaled == []


def test_a_limit_of_one_tile_commits_each() -> None:
    bench = Bench(GroupLimits(tiles_max=1))
    bench.add(1)
    bench.add(2)
    assert bench.steps.taken == STEPS * 2


@pytest.mark.parametrize(
    "wrong",
    [{"tiles_max": 0}, {"tiles_max": GROUP_TILES_MAX + 1}, {"bytes_max": 0}, {"age_ms_max": -1}],
)
def test_limits_that_make_no_group_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidValueError, match=next(iter(wrong))):
        GroupLimits(**wrong)


def test_the_label_is_what_the_freshness_rule_says(bench: Bench) -> None:
    assert bench.add(1) is FreshnessLabel.FRESH
    rear = SectorClass.STABLE_REAR
    assert bench.add(2, age_days=400, sector=rear) is FreshnessLabel.DOWNGRADED


def test_a_tile_that_is_refused_is_no_part_of_the_group() -> None:
    bench = Bench(evolve(WIDE, tiles_max=2))
    with pytest.raises(FreshnessRejectionError):
        bench.add(1, age_days=400)
    bench.group.flush()
    assert bench.steps.taken == []
    bench.add(2)
    with pytest.raises(FreshnessRejectionError):
        bench.add(3, age_days=400)
    assert bench.journaled == []
    bench.add(4)
    assert bench.journaled == tiles(2, 4)
    assert bench.visible(1, 2, 3, 4) == [False, True, False, True]


def test_a_stream_that_breaks_is_no_part_of_the_group(bench: Bench) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half of it"
        raise ConnectionError("gone")

    bench.add(1)
    with pytest.raises(ConnectionError):
        bench.add(2, broken())
    bench.group.flush()
    assert bench.journaled == tiles(1)
    assert bench.visible(1, 2) == [True, False]


def test_a_tile_that_comes_twice_is_journaled_once(bench: Bench) -> None:
    bench.add(1, b"first")
    bench.add(1, b"again")
    bench.group.flush()
    assert bench.notes.count == 1
    assert bench.blobs.read_tile(tile(1)) == b"again"


def test_an_orderly_end_flushes(bench: Bench) -> None:
    with bench.group as group:
        assert group is bench.group
        bench.add(1)
    assert bench.steps.taken == STEPS
    assert bench.journaled == tiles(1)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_nothing_more_is_promised(bench: Bench, error: type[BaseException]) -> None:
    with pytest.raises(error):
        add_and_raise(bench, error)
    assert bench.steps.taken == []
    assert (bench.visible(1), bench.journaled) == ([False], [])


@pytest.mark.parametrize("step", STEPS)
def test_invariant_2_whichever_step_fails_those_after_it_are_not_taken(
    bench: Bench, step: str
) -> None:
    bench.add(1)
    bench.steps.failing = step
    with pytest.raises(StorageError):
        bench.group.flush()
    done = STEPS[: STEPS.index(step) + 1]
    assert bench.steps.taken == done
    if step != "journal":  # what was appended may be there; nobody was told that it is
        assert bench.journaled == []
    assert bench.visible(1) == [step in {"append", "journal"}]


@pytest.mark.parametrize("step", STEPS[:3])
def test_a_step_that_failed_is_tried_again_from_the_first_on(bench: Bench, step: str) -> None:
    bench.add(1)
    bench.steps.failing = step
    with pytest.raises(StorageError):
        bench.group.flush()
    bench.steps.failing = None
    bench.steps.taken.clear()
    bench.group.flush()
    assert list(dict.fromkeys(bench.steps.taken)) == STEPS
    assert (bench.visible(1), bench.journaled) == ([True], tiles(1))


def test_an_error_when_a_group_is_full_reaches_who_added_the_tile() -> None:
    bench = Bench(evolve(WIDE, tiles_max=2))
    bench.steps.failing = "rows"
    bench.add(1)
    with pytest.raises(StorageError):
        bench.add(2)
    bench.steps.failing = None
    bench.add(2)  # the same tile again, as whoever was refused may try
    assert bench.journaled == tiles(1, 2)


def test_what_failed_is_not_counted_as_durable(bench: Bench) -> None:
    bench.add(1)
    bench.steps.failing = "journal"
    with pytest.raises(StorageError):
        bench.group.flush()
    assert bench.group.durable == 0
