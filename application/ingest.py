"""Taking in what a flight captured: each good tile becomes pending, once; the rest is named."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256

from attrs import define, field, frozen

from tileferry.application.cache.bulk_store import BoundedList, BulkStore
from tileferry.application.cache.group_commit import GroupCommit
from tileferry.application.cache.tile_lookup import RecentDigests, is_readable, lookup_metadata
from tileferry.application.ports.captures import CaptureFile, CaptureFolder
from tileferry.application.ports.progress import ItemsProcessed, Task
from tileferry.domain.errors import FreshnessRejectionError, InvalidValueError
from tileferry.domain.tiles import (
    TILE_BYTES_MAX,
    BlobRef,
    CaptureFacts,
    NewTile,
    SectorClass,
    TileId,
    TileMetadata,
    VotingStatus,
    build_capture_source,
    check_captured_at,
    compute_ground_resolution,
    detect_image_kind,
    parse_captured_tile,
)

_FILE_READ = ItemsProcessed(task=Task.INGEST)


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
    files_refused: int
    refused: tuple[RefusedFile, ...]
    """The first of them."""


@define(kw_only=True)
class CaptureIngest(BulkStore):
    """The use case. Needs the cache's lock."""

    def ingest(self, flight_id: str, folder: CaptureFolder) -> IngestReport:
        """Take a folder in; run again, it takes in what is new and changes nothing else."""
        self.lock.check_held()
        facts = CaptureFacts.parse(folder.read_facts() or b"{}")
        run = _IngestRun(self, flight_id, folder, facts)
        with self.open_commit(build_capture_source(flight_id), run.iter_sizes()) as commit:
            run.ingest_all(commit)
        return run.build_report()


@define
class _IngestRun:
    """One folder being taken in."""

    deps: CaptureIngest
    flight_id: str
    folder: CaptureFolder
    facts: CaptureFacts
    ingested: int = field(default=0, init=False)
    unchanged: int = field(default=0, init=False)
    refused: BoundedList[RefusedFile] = field(factory=BoundedList, init=False)
    _seen: RecentDigests = field(init=False)
    """What the folder had of a tile, new or not: two files of one tile lie beside each other."""

    def __attrs_post_init__(self) -> None:
        self._seen = RecentDigests(self.deps.group.tiles_max)

    def build_report(self) -> IngestReport:
        """Say what became of it."""
        return IngestReport(
            flight_id=self.flight_id,
            tiles_ingested=self.ingested,
            tiles_unchanged=self.unchanged,
            files_refused=self.refused.count,
            refused=self.refused.named,
        )

    def iter_sizes(self) -> Iterator[tuple[TileId, int]]:
        """Yield what each file would take that may be a tile, by its name."""
        for file in self.folder.iter_files():
            tile_id = self._parse_tile_id(file)
            if isinstance(tile_id, TileId):
                yield tile_id, file.size_bytes

    def ingest_all(self, commit: GroupCommit) -> None:
        """Take the files one by one."""
        for (file, tile_id), known in lookup_metadata(
            self._iter_tiles(), self.deps.tile_metadata_store, get_tile=lambda item: item[1]
        ):
            try:
                self._ingest_file(file, tile_id, known, commit)
            except (InvalidValueError, FreshnessRejectionError) as error:
                self._refuse(file, error)

    def _iter_tiles(self) -> Iterator[tuple[CaptureFile, TileId]]:
        for file in self.folder.iter_files():
            tile_id = self._parse_tile_id(file)
            if isinstance(tile_id, TileId):
                yield file, tile_id
            else:
                self._refuse(file, tile_id)
            self.deps.progress(_FILE_READ)

    def _parse_tile_id(self, file: CaptureFile) -> TileId | InvalidValueError:
        try:
            return parse_captured_tile(file.parts, self.flight_id)
        except InvalidValueError as error:
            return error

    def _ingest_file(
        self, file: CaptureFile, tile_id: TileId, known: TileMetadata | None, commit: GroupCommit
    ) -> None:
        """Store a tile as pending, unless the cache has it."""
        content = self.folder.read(file, bytes_max=TILE_BYTES_MAX)
        detect_image_kind(content)
        digest = sha256(content).digest()
        captured_at = (self.facts.captured_at or file.changed_at).astimezone(UTC)
        check_captured_at(captured_at, now=datetime.fromtimestamp(self.deps.clock.now(), UTC))
        if known is not None and known.blob.sha256 == digest.hex() and not known.is_dated_ahead:
            # A copy of the same bytes with an older date must still be able to repair them.
            captured_at = max(captured_at, known.produced_at)
        is_stored = self._is_stored(tile_id, known, captured_at, digest.hex())
        if not is_stored:
            commit.add(
                tile_id, content, partial(self._describe, tile_id, captured_at), digest=digest
            )
        self._seen.add(tile_id, digest.hex())
        self.ingested += not is_stored
        self.unchanged += is_stored

    def _describe(self, tile_id: TileId, captured_at: datetime, blob: BlobRef) -> NewTile:
        resolution = self.facts.resolution_m_per_px or compute_ground_resolution(tile_id)
        return NewTile(
            tile_id=tile_id,
            flight_id=self.flight_id,
            produced_at=captured_at,
            resolution_m_per_px=resolution,
            sector_class=SectorClass.STABLE_REAR,
            blob=blob,
            voting_status=VotingStatus.PENDING,
        )

    def _is_stored(
        self, tile_id: TileId, known: TileMetadata | None, captured_at: datetime, digest: str
    ) -> bool:
        """Tell whether the cache has these bytes; raise if they must not replace what it has."""
        first = self._seen.get_digest(tile_id)
        if first is not None and first != digest:
            raise InvalidValueError(
                field=str(tile_id),
                value=digest,
                problem="is in the folder twice, with other bytes: the first file stays",
                remedy="find out which is right, and remove the other",
            )
        if first is not None:
            return True
        if known is None:
            return False
        if known.blob.sha256 == digest and self._is_intact(known):
            return True
        if not known.yields_to(
            flight_id=self.flight_id,
            produced_at=captured_at,
            voting_status=VotingStatus.PENDING,
            sha256=digest,
        ):
            raise InvalidValueError(
                field=str(tile_id),
                value=known.voting_status.value,
                problem="is in the cache with other bytes, which stay: they are newer, or given up",
            )
        return False

    def _is_intact(self, known: TileMetadata) -> bool:
        """Look whether a tile that waits can be sent; what was delivered is not needed any more."""
        if known.voting_status is not VotingStatus.PENDING:
            return True
        return is_readable(self.deps.tile_store, known)

    def _refuse(self, file: CaptureFile, error: Exception) -> None:
        if self.refused.add(RefusedFile(path=file.path, problem=str(error))):
            self.deps.logger.warning(
                "%s is not taken in: %s",
                file.path,
                error,
                extra={
                    "kind": "c11.ingest.refused",
                    "flight_id": self.flight_id,
                    "path": file.path,
                },
            )
