"""In-memory archive: the same object is the export target and the import source."""

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field

from tileferry.application.ports.archives import ArchivedTile, RefusedEntry
from tileferry.domain.archives import ArchiveDescription, TileOrder
from tileferry.domain.errors import ArchiveError
from tileferry.domain.tiles import TileId


@define(kw_only=True)
class MemoryArchive:
    """The content that was published last."""

    items: list[ArchivedTile | RefusedEntry] = field(factory=list)
    about: ArchiveDescription | None = None
    order: TileOrder = TileOrder.COLUMNS
    replace: bool = False
    place: str = "memory"
    _at_work: bool = field(default=False, init=False)

    def iter_sizes(self, source: str) -> Iterator[tuple[TileId, int]]:
        """Yield the id and size of each tile; skip refused entries."""
        for item in self.tiles(source):
            if isinstance(item, ArchivedTile):
                yield item.tile_id, len(item.content)

    def tiles(self, source: str) -> Iterator[ArchivedTile | RefusedEntry]:
        """Yield all items, with the tiles assigned to ``source``."""
        for item in self.items:
            if isinstance(item, ArchivedTile):
                old = item.tile_id
                tile_id = TileId(source=source, zoom=old.zoom, x=old.x, y=old.y)
                yield ArchivedTile(tile_id=tile_id, content=item.content, facts=item.facts)
            else:
                yield item

    @contextmanager
    def open_draft(self) -> "Iterator[MemoryArchiveDraft]":
        """Start a new version; raise if another is open, or one exists and ``replace`` is off."""
        self._check(taken=self._at_work, problem="another export is in progress")
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
    """A new version of an archive, not published yet."""

    target: MemoryArchive
    sealed: MemoryArchive = field(factory=MemoryArchive)

    def add(self, tile: ArchivedTile) -> None:
        self.sealed.items.append(tile)

    def seal(self, about: ArchiveDescription) -> MemoryArchive:
        """Set the description; return the draft's content for reading."""
        self.sealed.about = about
        return self.sealed

    def publish(self) -> None:
        """Replace the archive's content with the draft."""
        self.target.items, self.target.about = self.sealed.items, self.sealed.about
