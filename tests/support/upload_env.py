"""A flight's tiles, and an uploader that a function answers for."""

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from attrs import define, field

from tileferry.adapters.memory import (
    ManualClock,
    MemoryFdrClient,
    MemoryTileMetadataStore,
)
from tileferry.application import C11RetryConfig, IdempotentRetryTileUploader
from tileferry.domain.tiles import (
    BlobRef,
    NewTile,
    PerTileStatus,
    SectorClass,
    TileId,
    TileMetadata,
    TileUploadStatus,
    UploadBatchReport,
    UploadRequest,
    VotingStatus,
)

REQUEST = UploadRequest(flight_id="F1")
Rejects = Callable[[int, TileId], str | None]
"""Says of a pass and a tile why it is refused, if it is."""


def create_tile(number: int) -> TileId:
    return TileId(source="cam", zoom=15, x=100 + number, y=200)


@define
class FakeUploader:
    """Sends what waits to a provider that is a function; acknowledgements are recorded at once."""

    store: MemoryTileMetadataStore
    rejects: Rejects = lambda _pass, _tile: None
    unreadable: set[TileId] = field(factory=set)
    damaged: set[TileId] = field(factory=set)
    """Unreadable as well, and charged for it."""
    sent: list[list[TileId]] = field(factory=list)
    confirmed: int = 0

    def upload_pending_tiles(self, request: UploadRequest) -> UploadBatchReport:
        statuses = []
        number = len(self.sent) + 1
        pending = [row.tile_id for row in self.store.pending_uploads(request.flight_id)]
        self.sent.append(pending)
        for tile_id in pending:
            if tile_id in self.unreadable | self.damaged:
                lost = PerTileStatus(
                    tile_id=tile_id,
                    status=TileUploadStatus.UNREADABLE,
                    reason="checksum mismatch",
                    attempt=f"damaged/{number}" if tile_id in self.damaged else None,
                )
                statuses.append(lost)
                continue
            reason = self.rejects(number, tile_id)
            if reason is None:
                self.store.mark_uploaded(tile_id)
            status = TileUploadStatus.ACCEPTED if reason is None else TileUploadStatus.REJECTED
            statuses.append(PerTileStatus(tile_id=tile_id, status=status, reason=reason))
        return UploadBatchReport.from_statuses(request.flight_id, statuses)

    def enumerate_pending_tiles(self, flight_id: str) -> Iterator[TileMetadata]:
        return self.store.pending_uploads(flight_id)

    def confirm_flight_state(self) -> None:
        self.confirmed += 1


@define
class UploadEnv:
    """A flight with captured tiles, and what its upload needs."""

    count: int = 10
    clock: ManualClock = field(factory=ManualClock)
    store: MemoryTileMetadataStore = field(init=False)
    inner: FakeUploader = field(init=False)
    fdr: MemoryFdrClient = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.store = MemoryTileMetadataStore(clock=self.clock)
        self.inner = FakeUploader(self.store)
        self.fdr = MemoryFdrClient(clock=self.clock, records_max=1_000)
        for number in range(self.count):
            self.store.insert_metadata(
                NewTile(
                    tile_id=create_tile(number),
                    flight_id="F1",
                    produced_at=datetime(2025, 6, 1, tzinfo=UTC),
                    resolution_m_per_px=0.6,
                    sector_class=SectorClass.STABLE_REAR,
                    blob=BlobRef(location=(1, number), length=1, sha256="0" * 64),
                    voting_status=VotingStatus.PENDING,
                )
            )
        self.store.flush()

    def create_uploader(self, inner: Any = None, **config: Any) -> IdempotentRetryTileUploader:
        return IdempotentRetryTileUploader(
            inner=inner or self.inner,
            tile_metadata_store=self.store,
            fdr_client=self.fdr,
            logger=logging.getLogger("tests.upload"),
            clock=self.clock,
            config=C11RetryConfig(**config),
        )

    def list_attempts(self) -> list[int]:
        return [row.upload_attempts for row in self.store.all_tiles()]

    def list_statuses(self) -> list[VotingStatus]:
        return [row.voting_status for row in self.store.all_tiles()]
