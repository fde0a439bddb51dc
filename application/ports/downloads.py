"""Downloading an area: the downloader, and what it needs."""

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
