"""An archive in memory: one object is where it is to be, and what is read of it."""

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field

from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.domain.archives import ArchiveDescription, TileOrder
from tileferry.domain.errors import ArchiveError
from tileferry.domain.tiles import TileId


@define(kw_only=True)
class MemoryArchive:
    """Holds what was published last; ``items`` are what a reader finds."""

    items: list[ArchivedTile | RefusedEntry] = field(factory=list)
    about: ArchiveDescription | None = None
    order: TileOrder = TileOrder.COLUMNS
    replace: bool = False
    place: str = "memory"
    _at_work: bool = field(default=False, init=False)

    def iter_sizes(self, source: str) -> Iterator[tuple[TileId, int]]:
        """Yield what is a tile."""
        for item in self.tiles(source):
            if isinstance(item, ArchivedTile):
                yield item.tile_id, len(item.content)

    def tiles(self, source: str) -> Iterator[ArchivedTile | RefusedEntry]:
        """Yield everything, with tiles called the source's."""
        for item in self.items:
            if isinstance(item, ArchivedTile):
                old = item.tile_id
                tile_id = TileId(source=source, zoom=old.zoom, x=old.x, y=old.y)
                yield ArchivedTile(tile_id=tile_id, content=item.content, facts=item.facts)
            else:
                yield item

    @contextmanager
    def open_draft(self) -> "Iterator[MemoryArchiveDraft]":
        """Begin another one."""
        self._check(taken=self._at_work, problem="another export writes there")
        self._check(taken=self.about is not None and not self.replace, problem="already exists")
        self._at_work = True
        try:
            yield MemoryArchiveDraft(self)
        finally:
            self._at_work = False

    def _check(self, *, taken: bool, problem: str) -> None:
        if taken:
            raise ArchiveError(path=self.place, problem=problem, remedy="choose another name")


@define
class MemoryArchiveDraft:
    """What is to take the archive's place."""

    target: MemoryArchive
    sealed: MemoryArchive = field(factory=MemoryArchive)

    def add(self, tile: ArchivedTile) -> None:
        """Keep a tile."""
        self.sealed.items.append(tile)

    def seal(self, about: ArchiveDescription) -> MemoryArchive:
        """Describe it."""
        self.sealed.about = about
        return self.sealed

    def publish(self) -> None:
        """Put it in its place."""
        self.target.items, self.target.about = self.sealed.items, self.sealed.about
