"""A group commit over parts in memory that note what is asked of them, and fail when told to."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from tileferry.adapters.memory import ManualClock, MemoryJournal, MemoryTileStore
from tileferry.adapters.memory.tiles import MemoryTileMetadataStore
from tileferry.adapters.memory.transfers import _JournalContent
from tileferry.application.cache.group_commit import GroupCommit, GroupLimits, TileBatch
from tileferry.domain.errors import FreshnessRejectionError, StorageError
from tileferry.domain.tiles import FreshnessLabel, SectorClass, TileId

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
STEPS = ["blobs", "rows", "append", "journal"]
WIDE = GroupLimits(tiles_max=1_000, bytes_max=1_000_000, age_ms_max=1_000_000)


class StepLog:
    """Notes each step, and fails at one if it is told to."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.failing: str | None = None

    def record(self, name: str) -> None:
        self.taken.append(name)
        if name == self.failing:
            raise StorageError(action="take", path=name, problem="no", remedy="none")


class LoggedTileStore(MemoryTileStore):
    steps: StepLog

    def flush(self) -> None:
        self.steps.record("blobs")
        super().flush()


class LoggedMetadataStore(MemoryTileMetadataStore):
    steps: StepLog

    def detach(self) -> Callable[[], None]:
        group = list(self._waiting)
        show = super().detach()

        def write() -> None:
            try:
                self.steps.record("rows")
            except StorageError:
                self._waiting[:0] = group
                raise
            show()

        return write


class LoggedJournal(MemoryJournal):
    steps: StepLog

    def append(self, tiles: Sequence[TileId]) -> None:
        self.steps.record("append")
        super().append(tiles)

    def flush(self) -> None:
        self.steps.record("journal")
        super().flush()


class DeferredTask:
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


class DeferredBackground:
    """A background in which nothing happens by itself."""

    def __init__(self) -> None:
        self.tasks: list[DeferredTask] = []

    def submit(self, work: Callable[[], None], /) -> DeferredTask:
        self.tasks.append(DeferredTask(work))
        return self.tasks[-1]

    def run(self) -> None:
        for task in self.tasks:
            task.exception()


class GroupCommitBench:
    """A group commit over parts that note what is asked of them."""

    def __init__(
        self, limits: GroupLimits = WIDE, background: DeferredBackground | None = None
    ) -> None:
        self.clock = ManualClock(NOW.timestamp())
        self.steps = StepLog()
        self.rows = LoggedMetadataStore(clock=self.clock)
        self.blobs = LoggedTileStore(self.rows)
        self.notes = LoggedJournal(name="F1__0123456789abcdef.json", content=_JournalContent())
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
        content: bytes = b"tile",
        *,
        age_days: float = 1,
        sector: SectorClass = SectorClass.ACTIVE_CONFLICT,
    ) -> FreshnessLabel:
        batch = TileBatch(flight_id="F1", sector_class=sector).append(
            create_tile(number),
            content,
            digest=sha256(content).digest(),
            produced_at=NOW - timedelta(days=age_days),
            resolution_m_per_px=0.6,
        )
        (verdict,) = self.group.add(batch)
        if isinstance(verdict, FreshnessRejectionError):
            raise verdict
        return verdict

    @property
    def journaled(self) -> list[TileId]:
        return self.notes._content.tiles

    def check_visible(self, *numbers: int) -> list[bool]:
        return [self.blobs.tile_exists(create_tile(number)) for number in numbers]


def create_tile(number: int) -> TileId:
    return TileId(source="sat", zoom=15, x=number, y=number)


def create_tiles(*numbers: int) -> list[TileId]:
    return [create_tile(number) for number in numbers]


def add_and_raise(bench: GroupCommitBench, error: type[BaseException]) -> None:
    with bench.group:
        bench.add(1)
        raise error
