"""Archives that other tools read: writing one beside its place, and reading one."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from attrs import frozen

from tileferry.domain.archives import ArchiveDescription, TileFacts, TileOrder
from tileferry.domain.errors import Remedy
from tileferry.domain.tiles import TileId

NO_FACTS = TileFacts()


@frozen(kw_only=True)
class ArchivedTile:
    """A tile in an archive."""

    tile_id: TileId
    content: bytes
    facts: TileFacts = NO_FACTS
    """What is said of it, where the archive has a place for that."""


@frozen(kw_only=True)
class RefusedEntry:
    """Something in an archive that cannot be a tile."""

    place: str
    problem: str
    remedy: Remedy | str = ""


class ArchiveReader(Protocol):
    """An archive to read. Its own problems are raised as ``ArchiveError``."""

    def tiles(self, source: str) -> Iterator[ArchivedTile | RefusedEntry]:
        """Yield everything that is in it, one at a time; what is too large is not read.

        Tiles are called ``source``'s.
        """
        ...


class ArchiveSource(ArchiveReader, Protocol):
    """An archive to import."""

    def iter_sizes(self, source: str) -> Iterator[tuple[TileId, int]]:
        """Yield what may be a tile, with how many bytes it has."""
        ...


class ArchiveDraft(Protocol):
    """An archive that is being written under another name than its own."""

    def add(self, tile: ArchivedTile) -> None:
        """Write a tile; they come in the order that the format asks for, each once."""
        ...

    def seal(self, about: ArchiveDescription) -> ArchiveReader:
        """Return once all of it is durable, with the archive to be read again."""
        ...

    def publish(self) -> None:
        """Give it its name, durably."""
        ...


class ArchiveTarget(Protocol):
    """Where an archive is to be."""

    @property
    def order(self) -> TileOrder:
        """In which order it takes tiles."""
        ...

    @property
    def place(self) -> str:
        """Its name, for people."""
        ...

    def open_draft(self) -> AbstractContextManager[ArchiveDraft]:
        """Begin one. What was not published when the block ends is gone.

        A place that is taken is refused with ``ArchiveError``, unless it may be replaced; so is
        one where another process writes. What a process left that died is removed.
        """
        ...
