"""The downloader of an area, and the threads and spools that it needs."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol, TypeVar, runtime_checkable

from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # for annotations
    from tileferry.domain.tiles import (
        BBox,
        DownloadBatchReport,
        DownloadRequest,
        TileSummary,
    )

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


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
    """Raised in a thread whose results are no longer needed, when it sleeps; never reported.

    Not an ``Exception``, so that it is not retried.
    """


class FetchSteps(Protocol[Result_co]):
    """Work that is done step by step, in one thread."""

    def step(self, room: int) -> Sequence[Result_co] | float | None:
        """Work on at most ``room`` items at a time, and return new results, after a wait.

        ``None`` is the end. If ``room`` is less than it was, there may be nothing to do until there
        is more; then it returns the seconds for which this holds.
        """
        ...

    def cancel(self) -> None:
        """Discard later results. May be called in another thread."""
        ...

    def close(self) -> None:
        """Abort what is in progress."""
        ...


class FetchRunner(Protocol):
    """Runs the steps of some work, in its own thread if it has one."""

    def run(
        self, work: FetchSteps[Result], *, idle_s: float
    ) -> Generator[Sequence[Result] | None, None, None]:
        """Yield results as they arrive, and ``None`` when there were none for ``idle_s``.

        The number of items that are in progress, or wait for the caller, is limited. Closing the
        iterator ends the work: a wait on the clock is interrupted by ``WorkCancelled``.
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
