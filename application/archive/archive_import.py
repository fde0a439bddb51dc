"""Importing tiles from somebody's archive: through the gates of a download, once each."""

from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256

from attrs import define, field, frozen, validators

from tileferry.application.cache.bulk_store import BoundedList, BulkStore
from tileferry.application.cache.group_commit import GroupCommit
from tileferry.application.cache.tile_lookup import RecentDigests, is_readable, lookup_metadata
from tileferry.application.ports.archives import ArchivedTile, ArchiveSource, RefusedEntry
from tileferry.application.ports.progress import ItemsProcessed, Task
from tileferry.domain.errors import (
    FreshnessRejectionError,
    InvalidValueError,
)
from tileferry.domain.tiles import (
    FreshnessLabel,
    NewTile,
    ResolutionGate,
    ResolutionVerdict,
    SectorClass,
    TileMetadata,
    VotingStatus,
    compute_ground_resolution,
    detect_image_kind,
)
from tileferry.domain.tiles.tile_id import check_source
from tileferry.domain.validation import aware, instance, name, positive

_TILE_IMPORTED = ItemsProcessed(task=Task.IMPORT)


@frozen(kw_only=True)
class ImportRequest:
    """As what the tiles of an archive are taken in."""

    source: str
    flight_id: str = field(validator=name)
    sector_class: SectorClass = field(validator=instance(SectorClass))
    produced_at: datetime | None = field(default=None, validator=validators.optional(aware))
    """Of tiles of which the archive does not say it."""
    resolution_m_per_px: float | None = field(default=None, validator=validators.optional(positive))
    """As above; without it, what a pixel of the tile covers on the ground."""
    replaces_tiles: bool = False
    """Whether a tile may take the place of one with other bytes."""

    def __attrs_post_init__(self) -> None:
        check_source(self.source, field="ImportRequest.source")


@frozen(kw_only=True)
class ImportReport:
    """What became of an archive."""

    tiles_imported: int
    tiles_downgraded: int
    """Of these, so many are stale, which the rear allows."""
    tiles_unchanged: int
    """In the cache already, to the byte."""
    bytes_imported: int
    entries_refused: int
    refused: tuple[RefusedEntry, ...]


@define(kw_only=True)
class ArchiveImport(BulkStore):
    """The use case. Needs the cache's lock; run again, it takes in what is still missing."""

    gate: ResolutionGate = field(factory=ResolutionGate)

    def import_archive(self, archive: ArchiveSource, request: ImportRequest) -> ImportReport:
        """Take in what passes the gates, and name the rest."""
        self.lock.check_held()
        run = _ImportRun(self, request)
        with self.open_commit(request.source, archive.iter_sizes(request.source)) as commit:
            run.import_all(archive, commit)
        return run.build_report()


@define
class _ImportRun:
    """One archive being taken in."""

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
        """Say what became of it."""
        return ImportReport(
            tiles_imported=self.imported,
            tiles_downgraded=self.downgraded,
            tiles_unchanged=self.unchanged,
            bytes_imported=self.size_bytes,
            entries_refused=self.refused.count,
            refused=self.refused.named,
        )

    def import_all(self, archive: ArchiveSource, commit: GroupCommit) -> None:
        """Take the tiles one by one."""
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
        try:
            self._import_tile(tile, known, commit)
        except (InvalidValueError, FreshnessRejectionError) as error:
            self._refuse(RefusedEntry(place=str(tile.tile_id), problem=str(error)))

    def _iter_tiles(self, archive: ArchiveSource) -> Iterator[ArchivedTile]:
        for item in archive.tiles(self.request.source):
            if isinstance(item, RefusedEntry):
                self._refuse(item)
            else:
                yield item

    def _import_tile(
        self, tile: ArchivedTile, known: TileMetadata | None, commit: GroupCommit
    ) -> None:
        detect_image_kind(tile.content)
        digest = sha256(tile.content).digest()
        content_sha256 = digest.hex()
        if tile.facts.sha256 not in {None, content_sha256}:
            raise InvalidValueError(
                field="sha256",
                value=content_sha256,
                problem="is not what the archive says of this tile",
            )
        produced_at, resolution = self._get_date(tile), self._get_resolution(tile)
        taken = self._taken.get_digest(tile.tile_id)
        if taken is not None:
            self._check_same(content_sha256, taken)
            self.unchanged += 1
            return
        if known is not None:
            is_same = known.blob.sha256 == content_sha256
            if is_same and is_readable(self.deps.tile_store, known):
                self.unchanged += 1
                return
            if not (is_same or self.request.replaces_tiles):
                raise InvalidValueError(
                    field="content",
                    value=content_sha256,
                    problem="is not what the cache has of this tile, which stays",
                    remedy="give --replace-tiles to have the later one",
                )
            if is_same:  # a repair: the same bytes keep the later date
                produced_at = max(produced_at, known.produced_at)
            self._check_replacement(known, produced_at, content_sha256)
        label = commit.add(
            tile.tile_id,
            tile.content,
            lambda blob: NewTile(
                tile_id=tile.tile_id,
                flight_id=self.request.flight_id,
                produced_at=produced_at,
                resolution_m_per_px=resolution,
                sector_class=self.request.sector_class,
                blob=blob,
            ),
            digest=digest,
        )
        self._taken.add(tile.tile_id, content_sha256)
        self.imported += 1
        self.size_bytes += len(tile.content)
        self.downgraded += label is FreshnessLabel.DOWNGRADED

    def _get_date(self, tile: ArchivedTile) -> datetime:
        """Return the date that the archive gives, or else the operator."""
        produced_at = tile.facts.produced_at or self.request.produced_at
        if produced_at is None:
            raise InvalidValueError(
                field="produced_at",
                value=None,
                problem="is not known: the archive does not say it",
                remedy="give --produced-at",
            )
        return produced_at

    def _get_resolution(self, tile: ArchivedTile) -> float:
        """Return the resolution, from the archive, the operator or the zoom; raise if refused."""
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
                problem="is the second of this tile in the archive, and another: the first stays",
                remedy="find out which is right, and import an archive that has only that one",
            )

    def _check_replacement(self, known: TileMetadata, produced_at: datetime, digest: str) -> None:
        if not known.yields_to(
            flight_id=self.request.flight_id,
            produced_at=produced_at,
            voting_status=VotingStatus.TRUSTED,
            sha256=digest,
        ):
            raise InvalidValueError(
                field="produced_at",
                value=produced_at.isoformat(),
                problem="is before that of the cache's, or the cache's waits for its upload: "
                "that one stays",
            )

    def _refuse(self, entry: RefusedEntry) -> None:
        if self.refused.add(entry):
            self.deps.logger.warning(
                "%s is not imported: %s",
                entry.place,
                entry.problem,
                extra={"kind": "c6.import.refused", "place": entry.place},
            )
