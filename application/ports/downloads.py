"""The downloader of an area, and the worker threads and spools that it needs."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol, TypeVar, runtime_checkable

from tileferry.domain.tiles import BBox, DownloadBatchReport, DownloadRequest, TileSummary

Item = TypeVar("Item")
Result = TypeVar("Result")


@runtime_checkable
class TileDownloader(Protocol):
    """Downloads the tiles of an area into the cache."""

    def download_tiles_for_area(self, request: DownloadRequest) -> DownloadBatchReport:
        """Download the tiles of the area that the cache does not have, and report the outcome."""
        ...

    def enumerate_remote_coverage(
        self, bbox: BBox, zoom_levels: Sequence[int]
    ) -> list[TileSummary]:
        """Return the tiles that the provider lists for an area, without fetching them."""
        ...


class TileFate(StrEnum):
    """The outcome of one tile."""

    STORED = "stored"
    DOWNGRADED = "downgraded"
    UNCHANGED = "unchanged"
    REJECTED_RESOLUTION = "rejected_resolution"
    REJECTED_FRESHNESS = "rejected_freshness"
    MISSING = "missing"
    FAILED = "failed"


class WorkCancelled(BaseException):
    """Raised in a worker thread whose result is no longer needed; never reported.

    Not an ``Exception``, so that it is not retried.
    """


class Workers(Protocol):
    """Applies a function to many items, several at a time."""

    def run(
        self, work: Callable[[Item], Result], items: Iterator[Item], *, idle_s: float
    ) -> Generator[Result | None, None, None]:
        """Yield the result of ``work`` for each item as it completes, and ``None`` when idle.

        Items are read on demand, in the caller's thread. Closing the iterator ends the work:
        threads that wait on the clock are interrupted by ``WorkCancelled``.
        """
        ...


class ListingSpool(Protocol):
    """A listing too long for memory: written once, then read."""

    def append(self, tile: TileSummary) -> None: ...

    def __iter__(self) -> Iterator[TileSummary]:
        """Yield the tiles in the order in which they were appended."""
        ...


class SpoolStore(Protocol):
    """Creates spools."""

    def create(self, source: str) -> AbstractContextManager[ListingSpool]:
        """Create a spool for the tiles of a source; it is deleted at the end of the block."""
        ...
