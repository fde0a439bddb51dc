"""Archives in formats that other tools read: writing a draft and publishing it, and reading."""

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
    """The tile's metadata, if the format can store it."""


@frozen(kw_only=True)
class RefusedEntry:
    """An entry of an archive that is not a valid tile."""

    place: str
    problem: str
    remedy: Remedy | str = ""


class ArchiveReader(Protocol):
    """Reads an archive. A defect of the archive itself raises ``ArchiveError``."""

    def tiles(self, source: str) -> Iterator[ArchivedTile | RefusedEntry]:
        """Yield all entries, one at a time; an entry that is too large is not read.

        ``source`` becomes the source of the tiles.
        """
        ...


class ArchiveSource(ArchiveReader, Protocol):
    """An archive to import."""

    def iter_sizes(self, source: str) -> Iterator[tuple[TileId, int]]:
        """Yield each entry that may be a tile, with its size in bytes."""
        ...


class ArchiveDraft(Protocol):
    """An archive that is being written under a temporary name."""

    def add(self, tile: ArchivedTile) -> None:
        """Write a tile. Tiles must come in the order of the format, each once."""
        ...

    def seal(self, about: ArchiveDescription) -> ArchiveReader:
        """Make the archive durable, and return a reader of it."""
        ...

    def publish(self) -> None:
        """Move the archive to its final name, durably."""
        ...


class ArchiveTarget(Protocol):
    """The destination of an archive."""

    @property
    def order(self) -> TileOrder:
        """The order in which tiles must be added."""
        ...

    @property
    def place(self) -> str:
        """The destination's name, for people."""
        ...

    def open_draft(self) -> AbstractContextManager[ArchiveDraft]:
        """Open a draft; it is deleted at the end of the block unless it was published.

        Raises ``ArchiveError`` if the destination exists and may not be replaced, or if another
        process is writing to it. Leftovers of a process that died are removed.
        """
        ...
