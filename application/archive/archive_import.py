"""Import tiles from an archive, with the same checks as a download."""

from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256

from attrs import define, field, frozen, validators

from tileferry.application.cache.bulk_store import BoundedList, BulkStore
from tileferry.application.cache.group_commit import GroupCommit, TileBatch
from tileferry.application.cache.tile_lookup import RecentDigests, is_readable, lookup_metadata
from tileferry.application.ports.archives import ArchivedTile, ArchiveSource, RefusedEntry
from tileferry.application.ports.progress import ItemsProcessed, Task
from tileferry.domain.errors import FreshnessRejectionError, InvalidValueError, Remedy
from tileferry.domain.tiles import (
    FreshnessLabel,
    ResolutionGate,
    ResolutionVerdict,
    SectorClass,
    TileMetadata,
    VotingStatus,
    compute_ground_resolution,
    inspect_picture,
)
from tileferry.domain.tiles.tile_id import check_source
from tileferry.domain.validation import aware, instance, name, positive

_TILE_IMPORTED = ItemsProcessed(task=Task.IMPORT)


@frozen(kw_only=True)
class ImportRequest:
    """How to import the tiles of an archive."""

    source: str
    flight_id: str = field(validator=name)
    sector_class: SectorClass = field(validator=instance(SectorClass))
    produced_at: datetime | None = field(default=None, validator=validators.optional(aware))
    """The production date of tiles for which the archive has none."""
    resolution_m_per_px: float | None = field(default=None, validator=validators.optional(positive))
    """The same for the resolution; ``None``: the ground size of a pixel at the tile's zoom."""
    replaces_tiles: bool = False
    """Whether a tile may replace a cached tile with different bytes."""

    def __attrs_post_init__(self) -> None:
        check_source(self.source, field="ImportRequest.source")


@frozen(kw_only=True)
class ImportReport:
    """The result of an import."""

    tiles_imported: int
    tiles_downgraded: int
    """The imported tiles that are stale, which the rear sector allows."""
    tiles_unchanged: int
    """Already in the cache with the same bytes."""
    bytes_imported: int
    entries_refused: int
    refused: tuple[RefusedEntry, ...]


@define(kw_only=True)
class ArchiveImport(BulkStore):
    """The use case. Requires the cache's lock; a repeated import adds the missing tiles."""

    gate: ResolutionGate = field(factory=ResolutionGate)

    def import_archive(self, archive: ArchiveSource, request: ImportRequest) -> ImportReport:
        """Import the tiles that pass the gates, and report the others."""
        self.lock.check_held()
        run = _ImportRun(self, request)
        sizes = archive.iter_sizes(request.source)
        with self.open_commit(request.source, sizes, flight_id=request.flight_id) as commit:
            run.import_all(archive, commit)
        return run.build_report()


@define
class _ImportRun:
    """The import of one archive."""

    deps: ArchiveImport
    request: ImportRequest
    imported: int = field(default=0, init=False)
    downgraded: int = field(default=0, init=False)
    unchanged: int = field(default=0, init=False)
    size_bytes: int = field(default=0, init=False)
    refused: BoundedList[RefusedEntry] = field(factory=BoundedList, init=False)
    _taken: RecentDigests = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._taken = RecentDigests(self.deps.group.tiles_max)

    def build_report(self) -> ImportReport:
        return ImportReport(
            tiles_imported=self.imported,
            tiles_downgraded=self.downgraded,
            tiles_unchanged=self.unchanged,
            bytes_imported=self.size_bytes,
            entries_refused=self.refused.count,
            refused=self.refused.named,
        )

    def import_all(self, archive: ArchiveSource, commit: GroupCommit) -> None:
        for tile, known in lookup_metadata(
            self._iter_tiles(archive),
            self.deps.tile_metadata_store,
            get_tile=lambda tile: tile.tile_id,
            get_size=lambda tile: len(tile.content),
        ):
            self._try_import(tile, known, commit)
            self.deps.progress(_TILE_IMPORTED)

    def _try_import(
        self, tile: ArchivedTile, known: TileMetadata | None, commit: GroupCommit
    ) -> None:
        """Import a tile. A problem with the tile refuses it; an error of the store is raised."""
        digest = sha256(tile.content).hexdigest()
        try:
            batch = self._check_tile(tile, digest, known)
        except InvalidValueError as error:
            self._refuse(
                RefusedEntry(place=str(tile.tile_id), problem=error.summary, remedy=error.remedy)
            )
            return
        if batch is None:
            self.unchanged += 1
            return
        (verdict,) = commit.add(batch)
        if isinstance(verdict, FreshnessRejectionError):
            self._refuse(RefusedEntry(place=str(tile.tile_id), problem=str(verdict)))
            return
        self._taken.add(tile.tile_id, digest)
        self.imported += 1
        self.size_bytes += len(tile.content)
        self.downgraded += verdict is FreshnessLabel.DOWNGRADED

    def _iter_tiles(self, archive: ArchiveSource) -> Iterator[ArchivedTile]:
        for item in archive.tiles(self.request.source):
            if isinstance(item, RefusedEntry):
                self._refuse(item)
            else:
                yield item

    def _check_tile(
        self, tile: ArchivedTile, digest: str, known: TileMetadata | None
    ) -> TileBatch | None:
        """Return what to store; ``None`` if the tile is in the cache."""
        inspect_picture(tile.content)
        if tile.facts.sha256 not in {None, digest}:
            raise InvalidValueError(
                field="content",
                value=digest,
                problem=f"sha256 mismatch: the archive records {tile.facts.sha256}",
            )
        produced_at, resolution = self._get_date(tile), self._get_resolution(tile)
        taken = self._taken.get_digest(tile.tile_id)
        if taken is not None:
            self._check_same(digest, taken)
            return None
        if known is not None:
            is_same = known.blob.sha256 == digest
            is_later = self.request.replaces_tiles and produced_at > known.produced_at
            if (
                is_same
                and not (is_later and self._yields(known, produced_at, digest))
                and is_readable(self.deps.tile_store, known)
            ):
                return None
            if is_same:  # a repair: the later of the two dates is kept
                produced_at = max(produced_at, known.produced_at)
            self._check_replacement(known, produced_at, digest)
        request = self.request
        return TileBatch(flight_id=request.flight_id, sector_class=request.sector_class).append(
            tile.tile_id,
            tile.content,
            digest=bytes.fromhex(digest),
            produced_at=produced_at,
            resolution_m_per_px=resolution,
        )

    def _get_date(self, tile: ArchivedTile) -> datetime:
        """Return the production date from the archive or the request."""
        produced_at = tile.facts.produced_at or self.request.produced_at
        if produced_at is None:
            raise InvalidValueError(
                field="produced_at",
                value=None,
                problem="is unknown: the archive does not contain it",
                remedy=Remedy.SET_PRODUCED_AT,
            )
        return produced_at

    def _get_resolution(self, tile: ArchivedTile) -> float:
        """Return the checked resolution from the archive, the request or the zoom level."""
        resolution = (
            tile.facts.resolution_m_per_px
            or self.request.resolution_m_per_px
            or compute_ground_resolution(tile.tile_id)
        )
        verdict = self.deps.gate.judge(resolution)
        if verdict is not ResolutionVerdict.ACCEPTED:
            raise InvalidValueError(
                field="resolution_m_per_px",
                value=resolution,
                problem=f"is {verdict.value.replace('_', ' ')}",
            )
        return resolution

    @staticmethod
    def _check_same(digest: str, taken: str) -> None:
        if digest != taken:
            raise InvalidValueError(
                field="content",
                value=digest,
                problem="differs from an earlier entry of this tile, which is kept",
                remedy="import an archive that contains only the right one",
            )

    def _check_replacement(self, known: TileMetadata, produced_at: datetime, digest: str) -> None:
        if digest != known.blob.sha256 and not self.request.replaces_tiles:
            raise InvalidValueError(
                field="content",
                value=digest,
                problem="differs from the tile in the cache, which is kept",
                remedy=Remedy.ALLOW_REPLACING_TILES,
            )
        if not self._yields(known, produced_at, digest):
            raise InvalidValueError(
                field="produced_at",
                value=produced_at.isoformat(),
                problem="is older than the tile in the cache, or that tile waits for its upload",
            )

    def _yields(self, known: TileMetadata, produced_at: datetime, digest: str) -> bool:
        return known.yields_to(
            flight_id=self.request.flight_id,
            produced_at=produced_at,
            voting_status=VotingStatus.TRUSTED,
            sha256=digest,
        )

    def _refuse(self, entry: RefusedEntry) -> None:
        if self.refused.add(entry):
            self.deps.logger.warning(
                "%s is not imported: %s",
                entry.place,
                entry.problem,
                extra={"kind": "c6.import.refused", "place": entry.place},
            )
