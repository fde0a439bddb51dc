"""Groups of tiles: when they are committed, in which order, and what an error leaves undone."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from tileferry.adapters.memory import ManualClock, MemoryJournal, MemoryTileStore
from tileferry.adapters.memory.journal import _Content
from tileferry.adapters.memory.tile_metadata import MemoryTileMetadataStore
from tileferry.application.group_commit import GROUP_TILES_MAX, GroupCommit, GroupLimits
from tileferry.domain.errors import FreshnessRejectionError, InvalidValueError, StorageError
from tileferry.domain.tiles import BlobRef, FreshnessLabel, NewTile, SectorClass, TileId

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
STEPS = ["blobs", "rows", "append", "journal"]
WIDE = GroupLimits(tiles_max=1_000, bytes_max=1_000_000, age_ms_max=1_000_000)


class Steps:
    """Notes each step, and fails at one if it is told to."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.failing: str | None = None

    def take(self, name: str) -> None:
        self.taken.append(name)
        if name == self.failing:
            raise StorageError(action="take", path=name, problem="no", remedy="none")


class Blobs(MemoryTileStore):
    steps: Steps

    def flush(self) -> None:
        self.steps.take("blobs")
        super().flush()


class Rows(MemoryTileMetadataStore):
    steps: Steps

    def detach(self) -> Callable[[], None]:
        group = list(self._waiting)
        show = super().detach()

        def write() -> None:
            try:
                self.steps.take("rows")
            except StorageError:
                self._waiting[:0] = group
                raise
            show()

        return write


class Notes(MemoryJournal):
    steps: Steps

    def append(self, tiles: Sequence[TileId]) -> None:
        self.steps.take("append")
        super().append(tiles)

    def flush(self) -> None:
        self.steps.take("journal")
        super().flush()


class LaterTask:
    """Work that is done when somebody waits for it, or says so."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._work is None

    def exception(self) -> BaseException | None:
        if self._work is not None:
            work, self._work = self._work, None
            try:
                work()
            except StorageError as error:
                self._error = error
        return self._error


class Later:
    """A background in which nothing happens by itself."""

    def __init__(self) -> None:
        self.tasks: list[LaterTask] = []

    def submit(self, work: Callable[[], None], /) -> LaterTask:
        self.tasks.append(LaterTask(work))
        return self.tasks[-1]

    def run(self) -> None:
        for task in self.tasks:
            task.exception()


class Bench:
    """A group commit over parts that note what is asked of them."""

    def __init__(self, limits: GroupLimits = WIDE, background: Later | None = None) -> None:
        self.clock = ManualClock(NOW.timestamp())
        self.steps = Steps()
        self.rows = Rows(clock=self.clock)
        self.blobs = Blobs(self.rows)
        self.notes = Notes(name="F1__0123456789abcdef.json", content=_Content())
        for part in (self.rows, self.blobs, self.notes):
            part.steps = self.steps
        self.group = GroupCommit(
            tile_store=self.blobs,
            metadata_store=self.rows,
            journal=self.notes,
            clock=self.clock,
            limits=limits,
            background=background,
        )

    def add(
        self,
        number: int,
        content: bytes | Iterator[bytes] = b"tile",
        *,
        age_days: float = 1,
        sector: SectorClass = SectorClass.ACTIVE_CONFLICT,
    ) -> FreshnessLabel:
        def describe(blob: BlobRef) -> NewTile:
            return NewTile(
                tile_id=tile(number),
                flight_id="F1",
                produced_at=NOW - timedelta(days=age_days),
                resolution_m_per_px=0.6,
                sector_class=sector,
                blob=blob,
            )

        return self.group.add(tile(number), content, describe)

    @property
    def journaled(self) -> list[TileId]:
        return self.notes._content.tiles

    def visible(self, *numbers: int) -> list[bool]:
        return [self.blobs.tile_exists(tile(number)) for number in numbers]


def tile(number: int) -> TileId:
    return TileId(source="sat", zoom=15, x=number, y=number)


def tiles(*numbers: int) -> list[TileId]:
    return [tile(number) for number in numbers]


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


def add_and_raise(bench: Bench, error: type[BaseException]) -> None:
    with bench.group:
        bench.add(1)
        raise error


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


# With a background

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


def test_what_failed_is_not_counted_as_durable(bench: Bench) -> None:
    bench.add(1)
    bench.steps.failing = "journal"
    with pytest.raises(StorageError):
        bench.group.flush()
    assert bench.group.durable == 0
