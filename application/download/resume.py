"""The resume point of a download: the journal of an earlier run, checked against the cache.

A journaled tile may be missing: evicted for another area, or lost with a replaced database. A
resumed run must fetch it again, so the journal alone is not enough.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from logging import Logger

from attrs import define

from tileferry.application.ports.journal import Journal, JournalStore
from tileferry.application.ports.tiles import TileCatalogue
from tileferry.domain.tiles import TileCoverage, TileId, TileMetadata, TileSet

_GROUP_TILES = 4_096
_USED_TILES = 1_000


@define(kw_only=True)
class ResumePoint:
    """The journal of one request and the cached tiles of its area."""

    journals: JournalStore
    name: str
    coverage: TileCoverage
    tile_metadata_store: TileCatalogue
    source: str

    def is_confirmed_by_cache(self, journal: Journal) -> bool:
        """Return whether the cache confirms a complete journal.

        Eviction discards complete journals, so checking the first tile is enough: it detects a
        cache or a database other than the one that the journal was written for.
        """
        return journal.count == 0 or any(True for _ in islice(self._query_cached(), 1))

    def find_stored(self, journal: Journal, *, to_be_used: bool = False) -> TileSet:
        """Return the journaled tiles that the cache has; ``to_be_used`` marks them as used."""
        journaled, found = TileSet(self.coverage), TileSet(self.coverage)
        journal.read_into(journaled)
        if len(journaled):  # most downloads are new and need no query
            rows = (row for row in self._query_cached() if row.tile_id in journaled)
            for row in _mark_used(rows, self.tile_metadata_store) if to_be_used else rows:
                found.add(row.tile_id)
        return found

    def resume(self, logger: Logger) -> tuple[Journal, TileSet]:
        """Open the journal and return it with the tiles that are already stored.

        A journal that lists tiles missing from the cache is rewritten, so that its count is
        correct.
        """
        journal = self.journals.open(self.name)
        try:
            if journal.complete and self.is_confirmed_by_cache(journal):
                return journal, TileSet(self.coverage)
            found = self.find_stored(journal, to_be_used=True)
            gone = journal.count - len(found)
        except BaseException:
            journal.close()
            raise
        if not gone:
            return journal, found
        journal.close()
        logger.warning(
            "journal %s: %d of its tiles are not in the cache any more; they are fetched again",
            self.name,
            gone,
            extra={"kind": "c11.journal.tiles_gone", "journal": self.name, "tiles": gone},
        )
        return self._rewrite(found), found

    def _rewrite(self, found: TileSet) -> Journal:
        self.journals.discard(self.name)
        journal = self.journals.open(self.name)
        tiles = (tile for tile in self.coverage.tiles(self.source) if tile in found)
        while group := list(islice(tiles, _GROUP_TILES)):
            journal.append(group)
        journal.flush()
        return journal

    def _query_cached(self) -> Iterator[TileMetadata]:
        coverage = self.coverage
        return self.tile_metadata_store.query_by_bbox(
            coverage.bbox, coverage.zoom_levels, source=self.source
        )


def _mark_used(tiles: Iterable[TileMetadata], store: TileCatalogue) -> Iterator[TileMetadata]:
    """Yield the tiles, and mark them as used in groups."""
    group: list[TileId] = []
    for tile in tiles:
        group.append(tile.tile_id)
        yield tile
        if len(group) >= _USED_TILES:
            store.mark_used(group)
            group = []
    if group:
        store.mark_used(group)
