"""Resume an earlier run: which of its journaled tiles are still in the cache.

A tile can disappear after it was journaled: by eviction, or lost with a replaced database. A
resumed run must fetch it again, so the journal alone is not enough.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from logging import Logger

from attrs import define

from tileferry.application.cache.tile_lookup import UseMarks, query_area
from tileferry.application.ports.journal import Journal, JournalStore
from tileferry.application.ports.tiles import TileCatalogue
from tileferry.domain.tiles import TileCoverage, TileMetadata, TileSet

_GROUP_TILES = 4_096


@define(kw_only=True)
class ResumePoint:
    """The journal of one request and the cached tiles of its area."""

    journals: JournalStore
    name: str
    coverage: TileCoverage
    tile_metadata_store: TileCatalogue
    source: str
    ends_complete: bool = True
    """Whether a complete journal ends the request; otherwise it starts over."""
    is_kept: Callable[[TileMetadata], bool] = lambda _tile: True
    """Whether a journaled tile that the cache has is kept; otherwise it is fetched again."""

    def is_confirmed_by_cache(self, journal: Journal) -> bool:
        """Return whether the cache confirms a complete journal.

        Eviction discards complete journals, so checking the first tile is enough: it detects a
        cache or a database other than the one that the journal was written for.
        """
        return journal.count == 0 or any(
            self.is_kept(tile) for tile in islice(self._query_cached(), 1)
        )

    def find_stored(self, journal: Journal, *, marks: UseMarks | None = None) -> TileSet:
        """Return the journaled tiles that the cache has; ``marks`` records that they are used."""
        journaled, found = TileSet(self.coverage), TileSet(self.coverage)
        journal.read_into(journaled)
        if len(journaled):  # most downloads are new and need no query
            for row in self._query_cached():
                if row.tile_id in journaled and self.is_kept(row):
                    found.add(row.tile_id)
                    if marks is not None:
                        marks.add(row)
        return found

    def resume(self, logger: Logger, marks: UseMarks) -> tuple[Journal, TileSet]:
        """Open the journal and return it with the tiles that are already stored.

        A journal that lists tiles missing from the cache is rewritten, so that its count is
        correct.
        """
        journal = self.journals.open(self.name)
        try:
            if journal.complete and not self.ends_complete:
                journal.close()
                return self._rewrite(TileSet(self.coverage)), TileSet(self.coverage)
            if journal.complete and self.is_confirmed_by_cache(journal):
                return journal, TileSet(self.coverage)
            found = self.find_stored(journal, marks=marks)
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
        return query_area(self.tile_metadata_store, self.coverage, source=self.source)
