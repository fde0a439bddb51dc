"""Taking a flight's captures in, with everything in memory."""

import logging
from collections.abc import Callable, Container, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import define, evolve, field
from support.managers import logged

from tileferry.adapters.memory import (
    ManualClock,
    MemoryBlobIndex,
    MemoryCacheLock,
    MemoryTileMetadataStore,
    MemoryTileStore,
)
from tileferry.application import CaptureIngest, GroupLimits, IngestReport
from tileferry.application.cache.first_few import NAMED_MAX
from tileferry.application.ports.captures import CaptureFile
from tileferry.domain.errors import CacheBudgetExceededError, CacheLockError, InvalidValueError
from tileferry.domain.tiles import (
    EvictionResult,
    TileId,
    TileMetadata,
    VotingStatus,
    capture_source,
    ground_resolution,
)

CHANGED = datetime(2025, 5, 1, 12, tzinfo=UTC)
PICTURE = b"\x89PNG\r\n\x1a\n"


def tile(y: int) -> TileId:
    return TileId(source=capture_source("F1"), zoom=15, x=19_000, y=y)


@define
class Folder:
    """A folder that is a dictionary."""

    contents: dict[str, bytes]
    metadata: bytes | None = None

    def facts(self) -> bytes | None:
        return self.metadata

    def files(self) -> Iterator[CaptureFile]:
        for path, content in self.contents.items():
            parts = tuple(path.split("/"))
            yield CaptureFile(parts=parts, size_bytes=len(content), changed_at=CHANGED)

    def read(self, file: CaptureFile, *, bytes_max: int) -> bytes:
        return self.contents[file.path][: bytes_max + 1]


def folder(*ys: int, version: bytes = b"", facts: bytes | None = None) -> Folder:
    return Folder({f"15/19000/{y}.png": PICTURE + b"%d" % y + version for y in ys}, facts)


@define
class Budget:
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
class Hangar:
    """Where the aircraft's card is read."""

    clock: ManualClock = field(factory=ManualClock)
    budget: Budget = field(factory=Budget)
    lock: MemoryCacheLock = field(factory=MemoryCacheLock)
    store: MemoryTileStore = field(init=False)
    metadata: MemoryTileMetadataStore = field(init=False)

    def __attrs_post_init__(self) -> None:
        index = MemoryBlobIndex()
        self.store = MemoryTileStore(index)
        self.metadata = MemoryTileMetadataStore(clock=self.clock, index=index)
        self.lock.acquire()

    def takes(self, card: Folder, **options: Any) -> IngestReport:
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
        found = self.metadata.get_metadata(tile(y))
        assert found is not None
        return found


def test_good_tiles_wait_for_their_upload() -> None:
    hangar = Hangar()
    card = folder(1, 2, 3)
    report = hangar.takes(card)
    assert (report.tiles_ingested, report.tiles_unchanged, report.refused) == (3, 0, ())
    assert [row.tile_id for row in hangar.metadata.pending_uploads("F1")] == [*map(tile, (1, 2, 3))]
    assert hangar.store.read_tile(tile(2)) == card.contents["15/19000/2.png"]
    row = hangar.row(1)
    assert (row.produced_at, row.resolution_m_per_px) == (CHANGED, ground_resolution(tile(1)))
    assert hangar.budget.promised == [sum(map(len, card.contents.values()))]
    assert hangar.budget.released == 2  # what a dead process held, and our own


def test_what_the_folder_says_of_its_tiles_counts() -> None:
    hangar = Hangar()
    facts = b'{"captured_at": "2025-05-02T00:00:00+02:00", "resolution_m_per_px": 0.25}'
    hangar.takes(folder(1, facts=facts))
    row = hangar.row(1)
    assert row.produced_at == datetime(2025, 5, 1, 22, tzinfo=UTC)
    assert row.resolution_m_per_px == 0.25


def test_a_date_ahead_of_us_is_refused_by_its_file() -> None:
    hangar = Hangar()
    now = datetime.fromtimestamp(hangar.clock.now(), UTC)

    def dated(moment: datetime) -> IngestReport:
        return hangar.takes(folder(1, facts=b'{"captured_at": "%s"}' % moment.isoformat().encode()))

    (refused,) = dated(now + timedelta(days=1, seconds=1)).refused
    assert refused.path == "15/19000/1.png"
    assert "captured_at: is in the future" in refused.problem
    assert dated(now + timedelta(days=1)).tiles_ingested == 1  # clocks and zones differ


def test_a_date_that_lay_ahead_does_not_outlive_the_bytes_that_are_mended() -> None:
    hangar = Hangar()
    hangar.takes(folder(1))
    hangar.store._contents.clear()
    row = hangar.row(1)
    hangar.metadata._tiles[row.tile_id] = evolve(row, produced_at=row.stored_at + timedelta(days=2))
    assert hangar.takes(folder(1)).tiles_ingested == 1
    assert hangar.row(1).produced_at == CHANGED


def test_taken_in_again_nothing_changes() -> None:
    hangar = Hangar()
    hangar.takes(folder(1, 2))
    before = hangar.metadata.all_tiles()
    report = hangar.takes(folder(1, 2, 3))
    assert (report.tiles_ingested, report.tiles_unchanged) == (1, 2)
    assert hangar.metadata.all_tiles()[:2] == before


def test_a_waiting_tile_whose_bytes_are_lost_is_taken_in_again() -> None:
    hangar = Hangar()
    hangar.takes(folder(1))
    hangar.store._contents.clear()
    assert hangar.takes(folder(1)).tiles_ingested == 1
    assert hangar.store.read_tile(tile(1)) == PICTURE + b"1"


def test_a_copy_with_an_older_date_mends_a_waiting_tile_which_keeps_its_date() -> None:
    hangar = Hangar()
    hangar.takes(folder(1, facts=b'{"captured_at": "2025-05-02T00:00:00Z"}'))
    hangar.store._contents.clear()
    report = hangar.takes(folder(1))
    assert (report.tiles_ingested, report.files_refused) == (1, 0)
    assert hangar.store.read_tile(tile(1)) == PICTURE + b"1"
    assert hangar.row(1).produced_at == datetime(2025, 5, 2, tzinfo=UTC)


def test_a_delivered_tile_is_not_asked_for_its_bytes() -> None:
    hangar = Hangar()
    hangar.takes(folder(1))
    hangar.metadata.mark_uploaded(tile(1))
    hangar.store._contents.clear()
    assert hangar.takes(folder(1)).tiles_unchanged == 1
    assert hangar.row(1).voting_status is VotingStatus.UPLOADED


def test_what_is_no_tile_is_named_and_keeps_the_rest_from_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hangar = Hangar()
    card = folder(1)
    card.contents |= {"readme.txt": b"hello", "15/19000/9.png": b"no picture"}
    told: list[None] = []
    report = hangar.takes(card, on_tile=lambda: told.append(None))
    assert len(told) == 3  # for who waits: each file counts
    assert report.tiles_ingested == 1
    assert [(file.path, file.problem) for file in report.refused] == [
        (
            "readme.txt",
            "path: is not z/x/y.<ext>, such as 16/39000/22000.png (got 'readme.txt')",
        ),
        ("15/19000/9.png", "content: is no PNG, JPEG or WebP picture (got '10 bytes')"),
    ]
    assert len(logged(caplog, "c11.ingest.refused")) == 2


def test_a_tile_that_was_given_up_stays_as_it_is() -> None:
    hangar = Hangar()
    hangar.takes(folder(1))
    hangar.metadata.update_voting_status(tile(1), VotingStatus.UPLOAD_GIVEUP)
    report = hangar.takes(folder(1, version=b" anew"))
    (refused,) = report.refused
    assert "is in the cache with other bytes, which stay" in refused.problem
    assert hangar.store.read_tile(tile(1)) == PICTURE + b"1"


@pytest.mark.parametrize("again", [False, True])
def test_of_two_files_of_one_tile_the_first_is_taken_and_the_second_named(*, again: bool) -> None:
    hangar = Hangar()
    card = folder(4, 5, 6)
    first, second = PICTURE + b"the first", PICTURE + b"the second"
    card.contents |= {"15/19000/5.jpg": first, "15/19000/5.png": second, "15/19000/5.webp": first}
    card.contents = dict(sorted(card.contents.items()))
    report = hangar.takes(card)
    assert (report.tiles_ingested, report.tiles_unchanged, report.files_refused) == (3, 1, 1)
    if again:
        report = hangar.takes(card)
        assert (report.tiles_ingested, report.tiles_unchanged, report.files_refused) == (0, 4, 1)
    (refused,) = report.refused
    assert refused.path == "15/19000/5.png"
    assert "is in the folder twice, with other bytes: the first file stays" in refused.problem
    assert hangar.store.read_tile(tile(5)) == first


def test_of_very_many_refusals_all_are_counted_and_the_first_named() -> None:
    card = Folder({f"junk-{number}": b"" for number in range(NAMED_MAX + 1)})
    report = Hangar().takes(card)
    assert (report.files_refused, len(report.refused)) == (NAMED_MAX + 1, NAMED_MAX)


def test_who_interrupts_it_finds_what_was_taken_in_made_safe() -> None:
    class Interrupted(Folder):
        def read(self, file: CaptureFile, *, bytes_max: int) -> bytes:
            if file.path.endswith("/3.png"):
                raise KeyboardInterrupt
            return super().read(file, bytes_max=bytes_max)

    hangar = Hangar()
    with pytest.raises(KeyboardInterrupt):
        hangar.takes(Interrupted(folder(1, 2, 3, 4).contents))
    assert [row.tile_id for row in hangar.metadata.all_tiles()] == [tile(1), tile(2)]
    assert hangar.budget.released == 2


def test_room_is_made_for_what_is_new_only() -> None:
    hangar = Hangar()
    hangar.takes(folder(1, 2))
    hangar.takes(folder(1, 2, 3))
    assert hangar.budget.promised == [18, 9]


def test_bytes_are_durable_before_rows_in_groups() -> None:
    hangar = Hangar()
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
    assert hangar.takes(folder(*range(5)), group=group).tiles_ingested == 5
    assert steps == ["bytes", "rows"] * 3


def test_without_room_or_lock_nothing_is_taken_in() -> None:
    hangar = Hangar(budget=Budget(available_bytes=3))
    with pytest.raises(CacheBudgetExceededError) as failure:
        hangar.takes(folder(1))
    assert (failure.value.requested_bytes, failure.value.available_bytes) == (9, 3)
    hangar.lock.release()
    with pytest.raises(CacheLockError):
        hangar.takes(folder(1))
    assert hangar.metadata.all_tiles() == []


def test_a_folder_that_says_nonsense_is_refused_before_anything_is_promised() -> None:
    hangar = Hangar()
    with pytest.raises(InvalidValueError, match="must be an object"):
        hangar.takes(folder(1, facts=b"[]"))
    assert hangar.budget.promised == []


def test_a_promise_is_given_back_when_the_card_breaks() -> None:
    class Broken(Folder):
        def read(self, file: CaptureFile, *, bytes_max: int) -> bytes:
            raise OSError(f"{file.path}: cannot be read up to {bytes_max}")

    hangar = Hangar()
    with pytest.raises(OSError, match="cannot be read"):
        hangar.takes(Broken(folder(1).contents))
    assert hangar.budget.released == 2
