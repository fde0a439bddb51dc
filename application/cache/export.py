"""Exporting tiles of the cache to an archive: checked as they are read, and again once written."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from logging import Logger

from attrs import define, field, frozen

from tileferry.application.cache.first_few import FirstFew
from tileferry.application.ports.archives import ArchivedTile, ArchiveReader, ArchiveTarget
from tileferry.application.ports.tile_metadata import TileMetadataStore
from tileferry.application.ports.tile_store import TileStore
from tileferry.domain.archives import (
    AboutTally,
    ArchiveAbout,
    ContentTally,
    TileFacts,
    TileOrder,
    block_start,
    block_tiles,
    kind_of,
    tile_number,
)
from tileferry.domain.errors import (
    ArchiveError,
    DamagedTileError,
    StorageError,
    TileNotFoundError,
)
from tileferry.domain.tiles import TileCoverage, TileId, TileMetadata, TileRange


@frozen(kw_only=True)
class ExportRequest:
    """What is to be exported: the tiles of one source in an area."""

    coverage: TileCoverage
    source: str
    name: str
    """What the archive calls itself."""
    attribution: str | None = None


@frozen(kw_only=True)
class LeftOutTile:
    """A tile that is in the cache and not in the archive."""

    tile: str
    problem: str


@frozen(kw_only=True)
class ExportReport:
    """What became of it."""

    about: ArchiveAbout
    tiles_exported: int
    bytes_exported: int
    tiles_damaged: int
    damaged: tuple[LeftOutTile, ...]


@define
class _Written:
    """What was written so far."""

    content: ContentTally = field(factory=ContentTally)
    about: AboutTally = field(factory=AboutTally)
    size_bytes: int = 0
    damaged: FirstFew[LeftOutTile] = field(factory=FirstFew)


@define(kw_only=True)
class CacheExport:
    """The use case. It changes nothing in the cache and needs no lock: it sees what is visible."""

    tile_store: TileStore
    tile_metadata_store: TileMetadataStore
    logger: Logger
    on_tile: Callable[[], object] = lambda: None
    """Is called for each tile, when it is written and when it is read again."""

    def export(self, request: ExportRequest, target: ArchiveTarget) -> ExportReport:
        """Write an archive, compare it with what was read, and only then give it its name."""
        written = _Written()
        with target.draft() as draft:
            for row in self._rows(request, target.order):
                tile = self._read(row, written)
                if tile is not None:
                    draft.add(tile)
                    self.on_tile()
            if not written.content.tiles:
                raise _nothing(request, written, target.place)
            about = written.about.about(name=request.name, attribution=request.attribution)
            self._compare(draft.seal(about), written.content, request.source, target.place)
            draft.publish()
        return ExportReport(
            about=about,
            tiles_exported=written.content.tiles,
            bytes_exported=written.size_bytes,
            tiles_damaged=written.damaged.count,
            damaged=written.damaged.named,
        )

    def _rows(self, request: ExportRequest, order: TileOrder) -> Iterator[TileMetadata]:
        rows = self._visible(request.coverage, request.source)
        return rows if order is TileOrder.COLUMNS else self._along_curve(rows, request)

    def _visible(self, coverage: TileCoverage, source: str) -> Iterator[TileMetadata]:
        return self.tile_metadata_store.query_by_bbox(
            coverage.bbox, coverage.zoom_levels, source=source
        )

    def _along_curve(
        self, rows: Iterator[TileMetadata], request: ExportRequest
    ) -> Iterator[TileMetadata]:
        """Yield rows in another order, without holding more than one block of them.

        The first pass notes which blocks have any tile, the second goes through these.
        """
        starts = {block_start(row.tile_id.zoom, row.tile_id.x, row.tile_id.y) for row in rows}
        for start in sorted(starts):
            zoom, columns, lines = block_tiles(start)
            block = TileRange(
                zoom=zoom, x_min=columns[0], x_max=columns[-1], y_min=lines[0], y_max=lines[-1]
            )
            area = TileCoverage(bbox=block.bounds, zoom_levels=[zoom])
            found = (
                row
                for row in self._visible(area, request.source)
                if block.contains(row.tile_id) and request.coverage.contains(row.tile_id)
            )
            yield from sorted(found, key=_number)

    def _read(self, row: TileMetadata, written: _Written) -> ArchivedTile | None:
        """Read a tile; one that is damaged is named, and one that is gone by now is no part."""
        try:
            found = self._checked(row)
        except DamagedTileError as error:
            self._leave_out(row.tile_id, error, written)
            return None
        if found is None:
            return None
        row, content, digest = found
        written.content.add(row.tile_id, digest)
        written.about.add(row.tile_id, kind_of(content))
        written.size_bytes += len(content)
        return ArchivedTile(tile_id=row.tile_id, content=content, facts=TileFacts.of(row))

    def _checked(self, row: TileMetadata) -> tuple[TileMetadata, bytes, bytes] | None:
        """Return a tile's row and bytes, and their digest, which are of one version of it."""
        try:
            content = self.tile_store.read_tile(row.tile_id, blob=row.blob)
        except TileNotFoundError:
            return None
        digest = sha256(content).digest()
        current: TileMetadata | None = row
        if digest.hex() != row.blob.sha256:  # a download may have brought another version
            current = self.tile_metadata_store.get_metadata(row.tile_id)
        if current is None:
            return None
        if digest.hex() != current.blob.sha256:
            raise DamagedTileError(tile=str(row.tile_id), problem="its sha256 is another")
        if not content:
            raise DamagedTileError(tile=str(row.tile_id), problem="it has no bytes")
        return current, content, digest

    def _leave_out(self, tile_id: TileId, error: DamagedTileError, written: _Written) -> None:
        self.logger.warning(
            "tile %s is not exported: %s",
            tile_id,
            error.problem,
            extra={"kind": "c6.export.damaged", "tile_id": str(tile_id)},
        )
        written.damaged.add(LeftOutTile(tile=str(tile_id), problem=error.problem))

    def _compare(
        self, archive: ArchiveReader, expected: ContentTally, source: str, place: str
    ) -> None:
        """Read the archive and hold each tile to what the cache gave."""
        found = ContentTally()
        for item in archive.tiles(source):
            if isinstance(item, ArchivedTile):
                found.add(item.tile_id, sha256(item.content).digest())
                self.on_tile()
        if found != expected:
            raise StorageError(
                action="verify the archive",
                path=place,
                problem=f"of {expected.tiles} tiles that were written, {found.tiles} were read "
                "back, not all with the same bytes",
                remedy="check the disk, then run again: the archive was not kept",
            )


def _number(row: TileMetadata) -> int:
    return tile_number(row.tile_id.zoom, row.tile_id.x, row.tile_id.y)


def _nothing(request: ExportRequest, written: _Written, place: str) -> ArchiveError:
    if written.damaged.count:
        return ArchiveError(
            path=place,
            problem=f"all {written.damaged.count} tiles that it would have are damaged",
            remedy="run cache verify, then download the area again",
        )
    return ArchiveError(
        path=place,
        problem=f"the cache has no tile of source {request.source} there",
        remedy="check the area, the zoom levels and --source, or download the area first",
    )
