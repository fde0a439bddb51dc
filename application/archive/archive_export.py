"""Export tiles of the cache to an archive, verified when they are read and after the write."""

import heapq
from collections.abc import Iterable, Iterator
from hashlib import sha256
from logging import Logger

from attrs import define, field, frozen

from tileferry.application.cache.bulk_store import BoundedList
from tileferry.application.cache.tile_lookup import query_area, read_verified_tile
from tileferry.application.ports.archives import ArchivedTile, ArchiveReader, ArchiveTarget
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    ItemsProcessed,
    ProgressListener,
    Task,
)
from tileferry.application.ports.tiles import TileCatalogue, TileStore
from tileferry.domain.archives import (
    ArchiveDescription,
    ArchiveDescriptionBuilder,
    ContentDigest,
    TileFacts,
    TileOrder,
    detect_tile_kind,
    find_block_start,
    get_block_tiles,
    zxy_to_number,
)
from tileferry.domain.errors import (
    ArchiveError,
    DamagedTileError,
    Remedy,
    StorageError,
)
from tileferry.domain.tiles import TileCoverage, TileId, TileMetadata, TileRange

_TILE_EXPORTED = ItemsProcessed(task=Task.EXPORT)


@frozen(kw_only=True)
class ExportRequest:
    """The tiles to export: those of one source in some areas, which may overlap."""

    coverages: tuple[TileCoverage, ...]
    source: str
    name: str
    """The name in the archive's metadata."""
    attribution: str | None = None
    licence: str | None = None


@frozen(kw_only=True)
class SkippedTile:
    """A cached tile that was not exported."""

    tile: str
    problem: str


@frozen(kw_only=True)
class ExportReport:
    """The result of an export."""

    about: ArchiveDescription
    tiles_exported: int
    bytes_exported: int
    tiles_damaged: int
    damaged: tuple[SkippedTile, ...]


@define
class _ExportState:
    """The totals of the tiles written so far."""

    content: ContentDigest = field(factory=ContentDigest)
    about: ArchiveDescriptionBuilder = field(factory=ArchiveDescriptionBuilder)
    size_bytes: int = 0
    damaged: BoundedList[SkippedTile] = field(factory=BoundedList)


@define(kw_only=True)
class ArchiveExport:
    """The use case. It only reads the cache and takes no lock: it exports the visible tiles."""

    tile_store: TileStore
    tile_metadata_store: TileCatalogue
    logger: Logger
    progress: ProgressListener = NULL_LISTENER
    """Receives one event when a tile is written, and another when it is read back."""

    def export(self, request: ExportRequest, target: ArchiveTarget) -> ExportReport:
        """Write an archive, compare it with the tiles read, and then publish it under its name."""
        written = _ExportState()
        with target.open_draft() as draft:
            for row in self._iter_rows(request, target.order):
                tile = self._read_tile(row, written)
                if tile is not None:
                    draft.add(tile)
                    self.progress(_TILE_EXPORTED)
            if not written.content.tiles:
                raise _empty_archive_error(request, written, target.place)
            about = written.about.build(
                name=request.name, attribution=request.attribution, licence=request.licence
            )
            self._verify_archive(draft.seal(about), written.content, request.source, target.place)
            draft.publish()
        return ExportReport(
            about=about,
            tiles_exported=written.content.tiles,
            bytes_exported=written.size_bytes,
            tiles_damaged=written.damaged.count,
            damaged=written.damaged.named,
        )

    def _iter_rows(self, request: ExportRequest, order: TileOrder) -> Iterator[TileMetadata]:
        rows = merge_rows(self._query_area(one, request.source) for one in request.coverages)
        return rows if order is TileOrder.COLUMNS else self._sort_along_curve(rows, request)

    def _query_area(self, coverage: TileCoverage, source: str) -> Iterator[TileMetadata]:
        return query_area(self.tile_metadata_store, coverage, source=source)

    def _sort_along_curve(
        self, rows: Iterator[TileMetadata], request: ExportRequest
    ) -> Iterator[TileMetadata]:
        """Yield rows in curve order, holding at most one block in memory.

        The first pass finds the blocks that have tiles; the second reads these blocks.
        """
        starts = {find_block_start(row.tile_id.zoom, row.tile_id.x, row.tile_id.y) for row in rows}
        for start in sorted(starts):
            zoom, columns, lines = get_block_tiles(start)
            block = TileRange(
                zoom=zoom, x_min=columns[0], x_max=columns[-1], y_min=lines[0], y_max=lines[-1]
            )
            area = TileCoverage(bbox=block.bounds, zoom_levels=[zoom])
            found = (
                row
                for row in self._query_area(area, request.source)
                if block.contains(row.tile_id)
                and any(one.contains(row.tile_id) for one in request.coverages)
            )
            yield from sorted(found, key=_curve_position)

    def _read_tile(self, row: TileMetadata, written: _ExportState) -> ArchivedTile | None:
        """Read a tile. A damaged tile is reported as skipped; a removed tile is left out."""
        try:
            found = read_verified_tile(row, self.tile_store, self.tile_metadata_store)
        except DamagedTileError as error:
            self._skip_damaged(row.tile_id, error, written)
            return None
        if found is None:
            return None
        tile_id, content = found.metadata.tile_id, found.content
        written.content.add(tile_id, bytes.fromhex(found.metadata.blob.sha256))
        written.about.add(tile_id, detect_tile_kind(content))
        written.size_bytes += len(content)
        return ArchivedTile(
            tile_id=tile_id, content=content, facts=TileFacts.from_metadata(found.metadata)
        )

    def _skip_damaged(
        self, tile_id: TileId, error: DamagedTileError, written: _ExportState
    ) -> None:
        self.logger.warning(
            "tile %s is not exported: %s",
            tile_id,
            error.problem,
            extra={"kind": "c6.export.damaged", "tile_id": str(tile_id)},
        )
        written.damaged.add(SkippedTile(tile=str(tile_id), problem=error.problem))

    def _verify_archive(
        self, archive: ArchiveReader, expected: ContentDigest, source: str, place: str
    ) -> None:
        """Read the archive back and compare each tile with the exported one."""
        found = ContentDigest()
        for item in archive.tiles(source):
            if isinstance(item, ArchivedTile):
                found.add(item.tile_id, sha256(item.content).digest())
                self.progress(_TILE_EXPORTED)
        if found != expected:
            raise StorageError(
                action="verify the archive",
                path=place,
                problem=f"of {expected.tiles} tiles that were written, {found.tiles} were read "
                "back, not all with the same bytes",
                remedy="check the disk, then run again: the archive was not kept",
            )


def merge_rows(areas: Iterable[Iterator[TileMetadata]]) -> Iterator[TileMetadata]:
    """Yield the rows of several areas in their common order, each once."""
    last: TileId | None = None
    for row in heapq.merge(
        *areas, key=lambda row: (row.tile_id.zoom, row.tile_id.x, row.tile_id.y)
    ):
        if row.tile_id != last:
            yield row
        last = row.tile_id


def _curve_position(row: TileMetadata) -> int:
    return zxy_to_number(row.tile_id.zoom, row.tile_id.x, row.tile_id.y)


def _empty_archive_error(request: ExportRequest, written: _ExportState, place: str) -> ArchiveError:
    if written.damaged.count:
        return ArchiveError(
            path=place,
            problem=f"all {written.damaged.count} tiles that it would have are damaged",
            remedy=Remedy.VERIFY_CACHE,
        )
    return ArchiveError(
        path=place,
        problem=f"the cache has no tile of source {request.source} in this area",
        remedy=Remedy.CHECK_EXPORT_AREA,
    )
