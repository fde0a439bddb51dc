"""A listing in memory."""

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field

from tileferry.domain.tiles import TileSummary


@define
class MemoryListingSpool:
    """A list of lines."""

    _tiles: list[TileSummary] = field(factory=list, init=False)

    def append(self, tile: TileSummary) -> None:
        """Add a line."""
        self._tiles.append(tile)

    def __iter__(self) -> Iterator[TileSummary]:
        return iter(list(self._tiles))


class MemorySpoolStore:
    """Makes spools."""

    @contextmanager
    def new(self, source: str) -> Iterator[MemoryListingSpool]:  # noqa: ARG002  # the tiles know it
        """Make one."""
        yield MemoryListingSpool()
