"""Downloading an area: what operators' tooling calls, and what it gets to see meanwhile."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol, TypeVar, runtime_checkable

from tileferry.domain.tiles import BBox, DownloadBatchReport, DownloadRequest, TileSummary

Item = TypeVar("Item")
Result = TypeVar("Result")


@runtime_checkable
class TileDownloader(Protocol):
    """Brings the tiles of an area into the cache."""

    def download_tiles_for_area(self, request: DownloadRequest) -> DownloadBatchReport:
        """Fetch what of the area is not in the cache yet, and say what became of it."""
        ...

    def enumerate_remote_coverage(
        self, bbox: BBox, zoom_levels: Sequence[int]
    ) -> list[TileSummary]:
        """Return what the provider has in an area, without fetching any of it."""
        ...


class TileFate(StrEnum):
    """What became of one tile."""

    STORED = "stored"
    DOWNGRADED = "downgraded"
    REJECTED_RESOLUTION = "rejected_resolution"
    REJECTED_FRESHNESS = "rejected_freshness"
    MISSING = "missing"
    FAILED = "failed"


class DownloadObserver(Protocol):
    """Sees a download go on. It is told from one thread, and must not take long.

    It may end the download by raising ``KeyboardInterrupt``, wherever it is told something: what
    was taken in until then becomes safe. While tiles are fetched it is told something at least
    every half second.
    """

    def on_listing(self, tiles: int) -> None:
        """Note how many tiles are listed so far."""
        ...

    def on_begin(self, *, tiles: int, already_stored: int, estimated_bytes: int) -> None:
        """Note what there is to do."""
        ...

    def on_tile(self, fate: TileFate, size_bytes: int) -> None:
        """Note what became of a tile."""
        ...

    def on_durable(self, tiles: int) -> None:
        """Note how many tiles of this run are safe by now."""
        ...

    def on_end(self, report: DownloadBatchReport) -> None:
        """Note the end, good or bad."""
        ...


class WorkCancelled(BaseException):
    """What a worker works for is over: nobody waits for its result.

    Raised in the worker, and heard of by nobody. No ``Exception``, so that it is not tried again.
    """


class Workers(Protocol):
    """Does the same to many things, several at a time."""

    def run(
        self, work: Callable[[Item], Result], items: Iterator[Item], *, idle_s: float
    ) -> Generator[Result | None, None, None]:
        """Yield what ``work`` makes of each item, as it is done, and ``None`` when idle.

        Items are taken as they are needed, in the caller's thread. Closing it ends the work: who
        waits by the clock stops waiting, by ``WorkEnded``.
        """
        ...


class ListingSpool(Protocol):
    """A listing that is too long for the memory, to be written and then read."""

    def append(self, tile: TileSummary) -> None:
        """Add a line."""
        ...

    def __iter__(self) -> Iterator[TileSummary]:
        """Go through the lines, in their order."""
        ...


class SpoolStore(Protocol):
    """Makes spools."""

    def create(self, source: str) -> AbstractContextManager[ListingSpool]:
        """Make one for the tiles of a source; it is gone when the block ends."""
        ...
