"""A flight to upload, with everything in memory and a provider that answers as it is told."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from attrs import define, field, frozen

from support.managers import RetryBench
from tileferry.adapters.memory import (
    MemoryBlobIndex,
    MemoryCacheLock,
    MemoryEnvelopeStore,
    MemoryTileMetadataStore,
    MemoryTileStore,
)
from tileferry.application import FlightUpload, UploadSettings
from tileferry.domain.errors import DamagedTileError
from tileferry.domain.tiles import (
    Batch,
    BlobRef,
    FlightRecord,
    FlightState,
    NewTile,
    PerTileStatus,
    SectorClass,
    SignedEnvelope,
    TileId,
    TileUploadStatus,
    UploadRequest,
    VotingStatus,
)

REQUEST = UploadRequest(flight_id="F1")
CAPTURED = datetime(2026, 10, 20, tzinfo=UTC)
ACCEPTED, REJECTED = TileUploadStatus.ACCEPTED, TileUploadStatus.REJECTED
PENDING, UPLOADED = VotingStatus.PENDING, VotingStatus.UPLOADED


def create_tile(number: int) -> TileId:
    return TileId(source="cam", zoom=15, x=19_000 + number, y=11_000)


def tile_content(number: int, version: int = 0) -> bytes:
    return f"tile {number} version {version}".encode()


@define
class FakeUploadProvider:
    """Notes what arrives, after it has failed as often as it is told."""

    path: str = "/api/satellite/tiles"
    faults: list[Exception] = field(factory=list)
    poison: set[TileId] = field(factory=set)
    posts: list[tuple[SignedEnvelope, bytes]] = field(factory=list)

    def iter_body(self, batch: Batch, contents: Iterable[bytes]) -> Iterator[bytes]:
        yield batch.manifest
        yield from contents

    def post_batch(
        self, envelope: SignedEnvelope, contents: Iterable[bytes]
    ) -> tuple[PerTileStatus, ...]:
        self.posts.append((envelope, b"".join(self.iter_body(envelope.batch, contents))))
        if self.faults:
            raise self.faults.pop(0)
        return tuple(self._create_status(each.tile_id) for each in envelope.batch.tiles)

    def _create_status(self, tile_id: TileId) -> PerTileStatus:
        refused = tile_id in self.poison
        reason = "blurred" if refused else None
        return PerTileStatus(
            tile_id=tile_id, status=REJECTED if refused else ACCEPTED, reason=reason
        )


@frozen
class FakeSigningSession:
    """Signs with what its seed and the message come to."""

    public_key: bytes

    def sign(self, message: bytes) -> bytes:
        return sha256(self.public_key + message).digest() * 2


class FakeKeys:
    """Makes another key for each session."""

    sessions = 0

    @contextmanager
    def open_session(self) -> Iterator[FakeSigningSession]:
        self.sessions += 1
        yield FakeSigningSession(sha256(bytes(self.sessions)).digest())


@frozen
class FakeFlightRecords:
    """Says where the aircraft is."""

    state: FlightState = FlightState.ON_GROUND

    def get_current(self) -> FlightRecord:
        return FlightRecord(flight_id="F1", state=self.state, recorded_at=CAPTURED)


class LostStore(MemoryTileStore):
    """A store that can read no tile; by default, because its disk is not mounted."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(MemoryBlobIndex())
        self.error = error or DamagedTileError(
            tile="cam/1/0/0", problem="its segment 1 is missing", is_store_lost=True
        )

    def read_tile(self, tile_id: TileId, *, blob: BlobRef | None = None) -> bytes:  # noqa: ARG002  # signature of the base class
        raise self.error


@define
class MemoryUploadEnv:
    """A flight's captured tiles, and the provider they go to."""

    count: int = 5
    provider: FakeUploadProvider = field(factory=FakeUploadProvider)
    bench: RetryBench = field(factory=RetryBench)
    envelopes: MemoryEnvelopeStore = field(init=False)
    store: MemoryTileStore = field(init=False)
    metadata: MemoryTileMetadataStore = field(init=False)

    def __attrs_post_init__(self) -> None:
        index = MemoryBlobIndex()
        self.store = MemoryTileStore(index)
        self.metadata = MemoryTileMetadataStore(clock=self.bench.clock, index=index)
        self.envelopes = MemoryEnvelopeStore(self.metadata)
        for number in range(self.count):
            self.capture(number)

    def capture(self, number: int, version: int = 0, *, blob: BlobRef | None = None) -> None:
        """Have a tile wait; with a blob that is nowhere, its bytes are lost."""
        there = blob or self.store.write_tile(create_tile(number), tile_content(number, version))
        self.metadata.insert_metadata(
            NewTile(
                tile_id=create_tile(number),
                flight_id="F1",
                produced_at=CAPTURED,
                resolution_m_per_px=0.6,
                sector_class=SectorClass.STABLE_REAR,
                blob=there,
                voting_status=PENDING,
            )
        )
        self.metadata.flush()

    def lose_tile_bytes(self, number: int) -> None:
        """Have a tile's row point to bytes that are gone."""
        self.capture(number, blob=BlobRef(location=(9, number), length=3, sha256="ab" * 32))

    def create_upload(self, *, batch_tiles_max: int = 2, **options: Any) -> FlightUpload:
        lock = MemoryCacheLock()
        lock.acquire()
        limit = options.pop("attempts_max", None)
        given: dict[str, Any] = {
            "provider": self.provider,
            "tile_store": self.store,
            "tile_metadata_store": self.metadata,
            "envelopes": self.envelopes,
            "flight_records": FakeFlightRecords(),
            "keys": FakeKeys(),
            "lock": lock,
            "retry": self.bench.create_manager(),
            "clock": self.bench.clock,
            "logger": logging.getLogger("tests.upload"),
            "settings": UploadSettings(batch_tiles_max=batch_tiles_max, attempts_max=limit),
        }
        return FlightUpload(**(given | options))

    def list_statuses(self) -> list[VotingStatus]:
        return [row.voting_status for row in self.metadata.all_tiles()]

    def list_open_envelopes(self) -> Sequence[SignedEnvelope]:
        return self.envelopes.list_open_envelopes("F1")

    def list_sent(self) -> list[list[TileId]]:
        return [[each.tile_id for each in post.batch.tiles] for post, _ in self.provider.posts]
