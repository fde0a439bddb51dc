"""Ingest the captures of a flight: store each valid tile once as pending; report the others."""

from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256

from attrs import define, field, frozen

from tileferry.application.cache.bulk_store import BoundedList, BulkStore
from tileferry.application.cache.group_commit import GroupCommit, TileBatch
from tileferry.application.cache.tile_lookup import RecentDigests, is_readable, lookup_metadata
from tileferry.application.ports.captures import CaptureFile, CaptureFolder
from tileferry.application.ports.progress import ItemsProcessed, Task
from tileferry.domain.errors import FreshnessRejectionError, InvalidValueError
from tileferry.domain.tiles import (
    TILE_BYTES_MAX,
    CaptureFacts,
    SectorClass,
    TileId,
    TileMetadata,
    VotingStatus,
    build_capture_source,
    check_captured_at,
    compute_ground_resolution,
    inspect_picture,
    parse_captured_tile,
)

_FILE_READ = ItemsProcessed(task=Task.INGEST)


@frozen(kw_only=True)
class RefusedFile:
    """A file that was not ingested."""

    path: str
    problem: str


@frozen(kw_only=True)
class IngestReport:
    """The result of an ingest."""

    flight_id: str
    tiles_ingested: int
    tiles_unchanged: int
    """Already in the cache with the same bytes."""
    files_refused: int
    refused: tuple[RefusedFile, ...]
    """The first refused files."""


@define(kw_only=True)
class CaptureIngest(BulkStore):
    """The use case. Requires the cache's lock."""

    def ingest(self, flight_id: str, folder: CaptureFolder) -> IngestReport:
        """Ingest a folder; a second call ingests only new files."""
        self.lock.check_held()
        facts = CaptureFacts.parse(folder.read_facts() or b"{}")
        run = _IngestRun(self, flight_id, folder, facts)
        source = build_capture_source(flight_id)
        with self.open_commit(source, run.iter_sizes(), flight_id=flight_id) as commit:
            run.ingest_all(commit)
        return run.build_report()


@define
class _IngestRun:
    """The ingest of one folder."""

    deps: CaptureIngest
    flight_id: str
    folder: CaptureFolder
    facts: CaptureFacts
    ingested: int = field(default=0, init=False)
    unchanged: int = field(default=0, init=False)
    refused: BoundedList[RefusedFile] = field(factory=BoundedList, init=False)
    _seen: RecentDigests = field(init=False)
    """The digests of recent tiles, new or not: two files of one tile are adjacent in the folder."""

    def __attrs_post_init__(self) -> None:
        self._seen = RecentDigests(self.deps.group.tiles_max)

    def build_report(self) -> IngestReport:
        return IngestReport(
            flight_id=self.flight_id,
            tiles_ingested=self.ingested,
            tiles_unchanged=self.unchanged,
            files_refused=self.refused.count,
            refused=self.refused.named,
        )

    def iter_sizes(self) -> Iterator[tuple[TileId, int]]:
        """Yield the size of each file that has the name of a tile."""
        for file in self.folder.iter_files():
            tile_id = self._parse_tile_id(file)
            if isinstance(tile_id, TileId):
                yield tile_id, file.size_bytes

    def ingest_all(self, commit: GroupCommit) -> None:
        for (file, tile_id), known in lookup_metadata(
            self._iter_tiles(), self.deps.tile_metadata_store, get_tile=lambda item: item[1]
        ):
            self._ingest_file(file, tile_id, known, commit)

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
            return parse_captured_tile(file.parts, self.flight_id, file.scheme)
        except InvalidValueError as error:
            return error

    def _ingest_file(
        self, file: CaptureFile, tile_id: TileId, known: TileMetadata | None, commit: GroupCommit
    ) -> None:
        """Store a tile as pending, unless it is already stored.

        A problem with the file refuses it; an error of the store ends the ingest.
        """
        try:
            content = self.folder.read(file, bytes_max=TILE_BYTES_MAX)
            inspect_picture(content)
            digest = sha256(content)
            captured_at = self._get_date(file, digest.hexdigest(), known)
            is_there = self._is_stored(tile_id, captured_at, digest.hexdigest(), known)
        except InvalidValueError as error:
            self._refuse(file, error)
            return
        if not is_there:
            (verdict,) = commit.add(self._describe(tile_id, content, digest.digest(), captured_at))
            if isinstance(verdict, FreshnessRejectionError):
                self._refuse(file, verdict)
                return
        self._seen.add(tile_id, digest.hexdigest())
        self.ingested += not is_there
        self.unchanged += is_there

    def _get_date(self, file: CaptureFile, digest: str, known: TileMetadata | None) -> datetime:
        """Return the capture date; equal bytes keep the later date, so an older copy can repair."""
        captured_at = (self.facts.captured_at or file.changed_at).astimezone(UTC)
        check_captured_at(captured_at, now=datetime.fromtimestamp(self.deps.clock.now(), UTC))
        if known is None or known.blob.sha256 != digest or known.is_dated_ahead:
            return captured_at
        return max(captured_at, known.produced_at)

    def _describe(
        self, tile_id: TileId, content: bytes, digest: bytes, captured_at: datetime
    ) -> TileBatch:
        batch = TileBatch(
            flight_id=self.flight_id,
            sector_class=SectorClass.STABLE_REAR,
            voting_status=VotingStatus.PENDING,
        )
        resolution = self.facts.resolution_m_per_px or compute_ground_resolution(tile_id)
        return batch.append(
            tile_id,
            content,
            digest=digest,
            produced_at=captured_at,
            resolution_m_per_px=resolution,
        )

    def _is_stored(
        self, tile_id: TileId, captured_at: datetime, digest: str, known: TileMetadata | None
    ) -> bool:
        """Return whether the cache has the tile; refuse a tile that may not replace it."""
        first = self._seen.get_digest(tile_id)
        if first is not None and first != digest:
            raise InvalidValueError(
                field=str(tile_id),
                value=digest,
                problem="is in the folder twice with different bytes; the first file is kept",
                remedy="remove the wrong one",
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
                problem="is in the cache with different bytes, which are newer or given up",
            )
        return False

    def _is_intact(self, known: TileMetadata) -> bool:
        """Return whether a pending tile can be read; an uploaded tile needs no bytes."""
        if known.voting_status is not VotingStatus.PENDING:
            return True
        return is_readable(self.deps.tile_store, known)

    def _refuse(self, file: CaptureFile, error: Exception) -> None:
        if self.refused.add(RefusedFile(path=file.path, problem=str(error))):
            self.deps.logger.warning(
                "%s refused: %s",
                file.path,
                error,
                extra={
                    "kind": "c11.ingest.refused",
                    "flight_id": self.flight_id,
                    "path": file.path,
                },
            )
