"""Taking a flight's captures in, with everything in memory."""

import logging
from collections.abc import Callable, Container, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import define, evolve, field
from support.managers import find_log_messages
from support.pictures import make_picture

from tileferry.adapters.memory import (
    ManualClock,
    MemoryBlobIndex,
    MemoryCacheLock,
    MemoryFlightBook,
    MemoryTileMetadataStore,
    MemoryTileStore,
)
from tileferry.application import CaptureIngest, GroupLimits, IngestReport
from tileferry.application.cache.bulk_store import NAMED_MAX
from tileferry.application.ports.captures import CaptureFile
from tileferry.application.ports.progress import ItemsProcessed, ProgressEvent, Task
from tileferry.domain.errors import (
    CacheBudgetExceededError,
    CacheLockError,
    FreshnessRejectionError,
    InvalidValueError,
    MisuseError,
    TileManagerError,
)
from tileferry.domain.tiles import (
    EvictionResult,
    FreshnessLabel,
    NewTile,
    TileId,
    TileMetadata,
    VotingStatus,
    build_capture_source,
    compute_ground_resolution,
)

SIZE = len(make_picture("1"))
CHANGED = datetime(2025, 5, 1, 12, tzinfo=UTC)


def capture_tile(y: int) -> TileId:
    return TileId(source=build_capture_source("F1"), zoom=15, x=19_000, y=y)


@define
class MemoryFolder:
    """A folder that is a dictionary."""

    contents: dict[str, bytes]
    metadata: bytes | None = None

    def read_facts(self) -> bytes | None:
        return self.metadata

    def iter_files(self) -> Iterator[CaptureFile]:
        for path, content in self.contents.items():
            parts = tuple(path.split("/"))
            yield CaptureFile(parts=parts, size_bytes=len(content), changed_at=CHANGED)

    def read(self, file: CaptureFile, *, bytes_max: int) -> bytes:
        return self.contents[file.path][: bytes_max + 1]


def make_folder(*ys: int, version: str = "", facts: bytes | None = None) -> MemoryFolder:
    return MemoryFolder({f"15/19000/{y}.png": make_picture(f"{y}{version}") for y in ys}, facts)


@define
class FakeBudget:
    """Has room for so much, and notes whom it promised what."""

    available_bytes: int = 10**9
    promised: list[int] = field(factory=list)
    released: int = 0

    def reserve_headroom(
        self,
        estimated_bytes: int,
        *,
        keep: Container[TileId] = (),  # noqa: ARG002  # nothing is evicted here
    ) -> EvictionResult:
        self.promised.append(estimated_bytes)
        return EvictionResult(requested_bytes=estimated_bytes, available_bytes=self.available_bytes)

    def release_headroom(self) -> None:
        self.released += 1


@define
class IngestEnv:
    """Where the aircraft's card is read."""

    clock: ManualClock = field(factory=ManualClock)
    budget: FakeBudget = field(factory=FakeBudget)
    lock: MemoryCacheLock = field(factory=MemoryCacheLock)
    store: MemoryTileStore = field(init=False)
    metadata: MemoryTileMetadataStore = field(init=False)

    def __attrs_post_init__(self) -> None:
        index = MemoryBlobIndex()
        self.store = MemoryTileStore(index)
        self.metadata = MemoryTileMetadataStore(clock=self.clock, index=index)
        self.lock.acquire()

    def ingest(self, card: MemoryFolder, **options: Any) -> IngestReport:
        ingest = CaptureIngest(
            tile_store=self.store,
            tile_metadata_store=self.metadata,
            budget_enforcer=self.budget,
            lock=self.lock,
            clock=self.clock,
            logger=logging.getLogger("tests.ingest"),
            **options,
        )
        return ingest.ingest("F1", card)

    def row(self, y: int) -> TileMetadata:
        found = self.metadata.get_metadata(capture_tile(y))
        assert found is not None
        return found


def test_valid_tiles_become_pending_uploads() -> None:
    hangar = IngestEnv()
    card = make_folder(1, 2, 3)
    report = hangar.ingest(card)
    assert (report.tiles_ingested, report.tiles_unchanged, report.refused) == (3, 0, ())
    assert [row.tile_id for row in hangar.metadata.pending_uploads("F1")] == [
        *map(capture_tile, (1, 2, 3))
    ]
    assert hangar.store.read_tile(capture_tile(2)) == card.contents["15/19000/2.png"]
    row = hangar.row(1)
    assert (row.produced_at, row.resolution_m_per_px) == (
        CHANGED,
        compute_ground_resolution(capture_tile(1)),
    )
    assert hangar.budget.promised == [sum(map(len, card.contents.values()))]
    assert hangar.budget.released == 2  # what a dead process held, and our own


def test_flight_is_recorded() -> None:
    env = IngestEnv()
    book = MemoryFlightBook(tiles=env.metadata, clock=env.clock)
    env.ingest(make_folder(1), flights=book)
    assert [flight.flight_id for flight in book.list_flights()] == ["F1"]
    assert book.measure_usage()["F1"].tiles == 1


def test_folder_metadata_is_applied_to_tiles() -> None:
    hangar = IngestEnv()
    facts = b'{"captured_at": "2025-05-02T00:00:00+02:00", "resolution_m_per_px": 0.25}'
    hangar.ingest(make_folder(1, facts=facts))
    row = hangar.row(1)
    assert row.produced_at == datetime(2025, 5, 1, 22, tzinfo=UTC)
    assert row.resolution_m_per_px == 0.25


def test_future_capture_date_is_rejected() -> None:
    hangar = IngestEnv()
    now = datetime.fromtimestamp(hangar.clock.now(), UTC)

    def dated(moment: datetime) -> IngestReport:
        return hangar.ingest(
            make_folder(1, facts=b'{"captured_at": "%s"}' % moment.isoformat().encode())
        )

    (refused,) = dated(now + timedelta(days=1, seconds=1)).refused
    assert refused.path == "15/19000/1.png"
    assert "captured_at: is in the future" in refused.problem
    assert dated(now + timedelta(days=1)).tiles_ingested == 1  # clocks and zones differ


def test_future_date_is_replaced_when_tile_is_repaired() -> None:
    hangar = IngestEnv()
    hangar.ingest(make_folder(1))
    hangar.store._contents.clear()
    row = hangar.row(1)
    hangar.metadata._tiles[row.tile_id] = evolve(row, produced_at=row.stored_at + timedelta(days=2))
    assert hangar.ingest(make_folder(1)).tiles_ingested == 1
    assert hangar.row(1).produced_at == CHANGED


def test_repeated_ingest_changes_nothing() -> None:
    hangar = IngestEnv()
    hangar.ingest(make_folder(1, 2))
    before = hangar.metadata.all_tiles()
    report = hangar.ingest(make_folder(1, 2, 3))
    assert (report.tiles_ingested, report.tiles_unchanged) == (1, 2)
    assert hangar.metadata.all_tiles()[:2] == before


def test_pending_tile_with_lost_bytes_is_ingested_again() -> None:
    hangar = IngestEnv()
    hangar.ingest(make_folder(1))
    hangar.store._contents.clear()
    assert hangar.ingest(make_folder(1)).tiles_ingested == 1
    assert hangar.store.read_tile(capture_tile(1)) == make_picture("1")


def test_older_copy_repairs_pending_tile_but_keeps_its_date() -> None:
    hangar = IngestEnv()
    hangar.ingest(make_folder(1, facts=b'{"captured_at": "2025-05-02T00:00:00Z"}'))
    hangar.store._contents.clear()
    report = hangar.ingest(make_folder(1))
    assert (report.tiles_ingested, report.files_refused) == (1, 0)
    assert hangar.store.read_tile(capture_tile(1)) == make_picture("1")
    assert hangar.row(1).produced_at == datetime(2025, 5, 2, tzinfo=UTC)


def test_bytes_of_uploaded_tile_are_not_checked() -> None:
    hangar = IngestEnv()
    hangar.ingest(make_folder(1))
    hangar.metadata.mark_uploaded(capture_tile(1))
    hangar.store._contents.clear()
    assert hangar.ingest(make_folder(1)).tiles_unchanged == 1
    assert hangar.row(1).voting_status is VotingStatus.UPLOADED


def test_invalid_files_are_reported_and_others_ingested(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hangar = IngestEnv()
    card = make_folder(1)
    card.contents |= {
        "readme.txt": b"hello",
        "15/19000/7.png": make_picture("half")[:-20],
        "15/19000/8.png": make_picture("a page") + b"<script>",
        "15/19000/9.png": b"no picture",
    }
    events: list[ProgressEvent] = []
    report = hangar.ingest(card, progress=events.append)
    assert events == [ItemsProcessed(task=Task.INGEST)] * 5  # each file counts
    assert report.tiles_ingested == 1
    assert [(file.path, file.problem) for file in report.refused] == [
        (
            "readme.txt",
            "path: is not z/x/y.<ext>, such as 16/39000/22000.png (got 'readme.txt')",
        ),
        ("15/19000/7.png", "content: is incomplete (got 'png, 63 bytes')"),
        ("15/19000/8.png", "content: has data after the end of the image (got 'png, 93 bytes')"),
        ("15/19000/9.png", "content: is not a PNG, JPEG, WebP or AVIF image (got '10 bytes')"),
    ]
    assert len(find_log_messages(caplog, "c11.ingest.refused")) == 4


def test_given_up_tile_is_not_replaced() -> None:
    hangar = IngestEnv()
    hangar.ingest(make_folder(1))
    hangar.metadata.update_voting_status(capture_tile(1), VotingStatus.UPLOAD_GIVEUP)
    report = hangar.ingest(make_folder(1, version=" anew"))
    (refused,) = report.refused
    assert "is in the cache with different bytes, which are newer or given up" in refused.problem
    assert hangar.store.read_tile(capture_tile(1)) == make_picture("1")


@pytest.mark.parametrize("again", [False, True])
def test_first_of_two_files_for_one_tile_wins(*, again: bool) -> None:
    hangar = IngestEnv()
    card = make_folder(4, 5, 6)
    first, second = make_picture("the first"), make_picture("the second")
    card.contents |= {"15/19000/5.jpg": first, "15/19000/5.png": second, "15/19000/5.webp": first}
    card.contents = dict(sorted(card.contents.items()))
    report = hangar.ingest(card)
    assert (report.tiles_ingested, report.tiles_unchanged, report.files_refused) == (3, 1, 1)
    if again:
        report = hangar.ingest(card)
        assert (report.tiles_ingested, report.tiles_unchanged, report.files_refused) == (0, 4, 1)
    (refused,) = report.refused
    assert refused.path == "15/19000/5.png"
    assert "is in the folder twice with different bytes; the first file is kept" in refused.problem
    assert hangar.store.read_tile(capture_tile(5)) == first


def test_all_refusals_are_counted_but_listing_is_capped() -> None:
    card = MemoryFolder({f"junk-{number}": b"" for number in range(NAMED_MAX + 1)})
    report = IngestEnv().ingest(card)
    assert (report.files_refused, len(report.refused)) == (NAMED_MAX + 1, NAMED_MAX)


def test_interrupted_ingest_commits_ingested_tiles() -> None:
    class Interrupted(MemoryFolder):
        def read(self, file: CaptureFile, *, bytes_max: int) -> bytes:
            if file.path.endswith("/3.png"):
                raise KeyboardInterrupt
            return super().read(file, bytes_max=bytes_max)

    hangar = IngestEnv()
    with pytest.raises(KeyboardInterrupt):
        hangar.ingest(Interrupted(make_folder(1, 2, 3, 4).contents))
    assert [row.tile_id for row in hangar.metadata.all_tiles()] == [
        capture_tile(1),
        capture_tile(2),
    ]
    assert hangar.budget.released == 2


def test_budget_is_reserved_for_new_tiles_only() -> None:
    hangar = IngestEnv()
    hangar.ingest(make_folder(1, 2))
    hangar.ingest(make_folder(1, 2, 3))
    assert hangar.budget.promised == [2 * SIZE, SIZE]


def test_blobs_are_flushed_before_rows_in_each_group() -> None:
    hangar = IngestEnv()
    steps: list[str] = []

    class Store(MemoryTileStore):
        def flush(self) -> None:
            steps.append("bytes")

    class Metadata(MemoryTileMetadataStore):
        def detach(self) -> Callable[[], None]:
            write = super().detach()

            def noted() -> None:
                steps.append("rows")
                write()

            return noted

    hangar.store = Store(MemoryBlobIndex())
    hangar.metadata = Metadata(clock=hangar.clock)
    group = GroupLimits(tiles_max=2)
    assert hangar.ingest(make_folder(*range(5)), group=group).tiles_ingested == 5
    assert steps == ["bytes", "rows"] * 3


def test_nothing_is_ingested_without_budget_or_lock() -> None:
    hangar = IngestEnv(budget=FakeBudget(available_bytes=3))
    with pytest.raises(CacheBudgetExceededError) as failure:
        hangar.ingest(make_folder(1))
    assert (failure.value.requested_bytes, failure.value.available_bytes) == (SIZE, 3)
    hangar.lock.release()
    with pytest.raises(CacheLockError):
        hangar.ingest(make_folder(1))
    assert hangar.metadata.all_tiles() == []


@pytest.mark.parametrize(
    "failure",
    [
        MisuseError(what="insert_metadata", problem="too many tiles are waiting"),
        InvalidValueError(field="row", value=1, problem="is not allowed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_store_error_ends_ingest_and_refuses_no_file(
    failure: TileManagerError, caplog: pytest.LogCaptureFixture
) -> None:
    class Overflowing(MemoryTileMetadataStore):
        def insert_metadata(self, tile: NewTile) -> FreshnessLabel:  # noqa: ARG002  # the port's
            raise failure

    env = IngestEnv()
    env.metadata = Overflowing(clock=env.clock, index=MemoryBlobIndex())
    with pytest.raises(type(failure)) as caught:
        env.ingest(make_folder(1, 2))
    assert caught.value is failure
    assert not find_log_messages(caplog, "c11.ingest.refused")
    assert env.budget.released == 2  # what a dead process held, and our own


def test_tile_that_the_store_finds_too_old_is_refused() -> None:
    class Strict(MemoryTileMetadataStore):
        def insert_metadata(self, tile: NewTile) -> FreshnessLabel:
            raise FreshnessRejectionError(
                tile=str(tile.tile_id),
                sector_class=tile.sector_class,
                produced_at=tile.produced_at,
                max_age_days=1,
            )

    env = IngestEnv()
    env.metadata = Strict(clock=env.clock, index=MemoryBlobIndex())
    report = env.ingest(make_folder(1, 2))
    assert (report.tiles_ingested, report.files_refused) == (0, 2)
    assert "it must be at most 1 days old" in report.refused[0].problem


def test_invalid_folder_metadata_is_rejected_before_reserving() -> None:
    hangar = IngestEnv()
    with pytest.raises(InvalidValueError, match="must be an object"):
        hangar.ingest(make_folder(1, facts=b"[]"))
    assert hangar.budget.promised == []


def test_reservation_is_released_on_read_error() -> None:
    class Broken(MemoryFolder):
        def read(self, file: CaptureFile, *, bytes_max: int) -> bytes:
            raise OSError(f"{file.path}: cannot be read up to {bytes_max}")

    hangar = IngestEnv()
    with pytest.raises(OSError, match="cannot be read"):
        hangar.ingest(Broken(make_folder(1).contents))
    assert hangar.budget.released == 2
