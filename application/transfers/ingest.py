"""Taking in what a flight captured: each good tile becomes pending, once; the rest is named."""

from datetime import UTC
from hashlib import sha256
from logging import Logger

from attrs import define, evolve, frozen

from tileferry.application.ports.budget import CacheBudgetEnforcer
from tileferry.application.ports.captures import CaptureFile, CaptureFolder
from tileferry.application.ports.lock import CacheLock
from tileferry.application.ports.tile_metadata import TileMetadataStore
from tileferry.application.ports.tile_store import TileStore
from tileferry.domain.errors import (
    CacheBudgetExceededError,
    DamagedTileError,
    FreshnessRejectionError,
    InvalidValueError,
    TileNotFoundError,
)
from tileferry.domain.tiles import (
    TILE_BYTES_MAX,
    BlobRef,
    CaptureFacts,
    NewTile,
    SectorClass,
    TileMetadata,
    VotingStatus,
    captured_tile,
    ground_resolution,
    image_kind,
    replaces,
)

GROUP_TILES = 256


@frozen(kw_only=True)
class RefusedFile:
    """A file that was not taken in."""

    path: str
    problem: str


@frozen(kw_only=True)
class IngestReport:
    """What became of a folder."""

    flight_id: str
    tiles_ingested: int
    tiles_unchanged: int
    """In the cache already, to the byte."""
    refused: tuple[RefusedFile, ...]


@define(kw_only=True)
class CaptureIngest:
    """The use case. Needs the cache's lock."""

    tile_store: TileStore
    tile_metadata_store: TileMetadataStore
    budget_enforcer: CacheBudgetEnforcer
    lock: CacheLock
    logger: Logger

    def ingest(self, flight_id: str, folder: CaptureFolder) -> IngestReport:
        """Take a folder in; run again, it takes in what is new and changes nothing else."""
        self.lock.check_held()
        facts = CaptureFacts.parse(folder.facts() or b"{}")
        self._reserve(sum(file.size_bytes for file in folder.files()))
        try:
            return self._taken_in(flight_id, folder, facts)
        finally:
            self.budget_enforcer.release_headroom()

    def _reserve(self, size_bytes: int) -> None:
        self.budget_enforcer.release_headroom()  # what a process promised itself that died
        result = self.budget_enforcer.reserve_headroom(size_bytes)
        if result.insufficient:
            raise CacheBudgetExceededError(
                requested_bytes=size_bytes, available_bytes=result.available_bytes
            )

    def _taken_in(self, flight_id: str, folder: CaptureFolder, facts: CaptureFacts) -> IngestReport:
        ingested = unchanged = 0
        refused: list[RefusedFile] = []
        for file in folder.files():
            try:
                is_new = self._take(flight_id, file, folder, facts)
            except (InvalidValueError, FreshnessRejectionError) as error:
                refused.append(self._refused(flight_id, file, error))
                continue
            ingested += is_new
            unchanged += not is_new
            if is_new and ingested % GROUP_TILES == 0:
                self._flush()
        self._flush()
        return IngestReport(
            flight_id=flight_id,
            tiles_ingested=ingested,
            tiles_unchanged=unchanged,
            refused=tuple(refused),
        )

    def _take(
        self, flight_id: str, file: CaptureFile, folder: CaptureFolder, facts: CaptureFacts
    ) -> bool:
        """Store a tile and make it pending; tell whether it is new."""
        tile_id = captured_tile(file.parts, flight_id)
        content = folder.read(file, bytes_max=TILE_BYTES_MAX)
        image_kind(content)
        digest = sha256(content).digest()
        known = self.tile_metadata_store.get_metadata(tile_id)
        if known is not None and known.blob.sha256 == digest.hex() and self._is_sound(known):
            return False
        tile = NewTile(
            tile_id=tile_id,
            flight_id=flight_id,
            produced_at=(facts.captured_at or file.changed_at).astimezone(UTC),
            resolution_m_per_px=facts.resolution_m_per_px or ground_resolution(tile_id),
            sector_class=SectorClass.STABLE_REAR,
            blob=BlobRef(segment=1, offset=0, length=len(content), sha256=digest.hex()),
            voting_status=VotingStatus.PENDING,
        )
        if known is not None and not replaces(tile, known):
            raise InvalidValueError(
                field=str(tile_id),
                value=known.voting_status.value,
                problem="is in the cache with other bytes, which stay: they are newer, or given up",
            )
        blob = self.tile_store.write_tile(tile_id, content, digest=digest)
        self.tile_metadata_store.insert_metadata(evolve(tile, blob=blob))
        return True

    def _is_sound(self, known: TileMetadata) -> bool:
        """Look whether a tile that waits can be sent; what was delivered is not needed any more."""
        if known.voting_status is not VotingStatus.PENDING:
            return True
        return can_be_read(self.tile_store, known)

    def _flush(self) -> None:
        """Bytes first: a row must not come before them."""
        self.tile_store.flush()
        self.tile_metadata_store.flush()

    def _refused(self, flight_id: str, file: CaptureFile, error: Exception) -> RefusedFile:
        self.logger.warning(
            "%s is not taken in: %s",
            file.path,
            error,
            extra={"kind": "c11.ingest.refused", "flight_id": flight_id, "path": file.path},
        )
        return RefusedFile(path=file.path, problem=str(error))


def can_be_read(store: TileStore, known: TileMetadata) -> bool:
    """Tell whether the cache has a tile's bytes, and not only its row."""
    try:
        store.read_tile(known.tile_id, blob=known.blob)
    except (TileNotFoundError, DamagedTileError):
        return False
    return True
