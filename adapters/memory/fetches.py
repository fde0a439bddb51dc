"""Fetches of many tiles without threads: everything happens in order, in the calling thread."""

from collections import deque
from collections.abc import Generator, Sequence
from typing import Protocol, TypeVar

from attrs import define, field, frozen

from tileferry.application.ports.downloads import FetchSteps
from tileferry.application.ports.provider import (
    FetchedTile,
    FetchOutcome,
    FetchResult,
    TileRequest,
    UnchangedTile,
)
from tileferry.domain.tiles import TileId, TileValidators

Result = TypeVar("Result")


class _FetchTile(Protocol):
    def __call__(
        self, tile_id: TileId, *, unless: TileValidators | None
    ) -> FetchedTile | UnchangedTile: ...


@define(eq=False)
class SequentialFetches:
    """Fetches tiles one after the other with the function for a single one.

    A tile is fetched when it is started. Each ``wait`` returns one result, in the order of the
    starts.
    """

    fetch_tile: _FetchTile
    _ready: deque[FetchOutcome] = field(factory=deque, init=False)

    def start(self, request: TileRequest) -> None:
        """Fetch a tile."""
        result: FetchResult
        try:
            result = self.fetch_tile(request.tile_id, unless=request.unless)
        except Exception as error:  # noqa: BLE001  # returned as the result
            result = error
        self._ready.append((request, result))

    def wait(self, timeout_s: float) -> Sequence[FetchOutcome]:  # noqa: ARG002  # nothing is late
        """Return the next result."""
        return [self._ready.popleft()] if self._ready else []

    def close(self) -> None:
        """Discard all results."""
        self._ready.clear()


@frozen
class InlineFetchRunner:
    """Runs the steps in the calling thread. By default one item is in progress at a time."""

    items_max: int = 1
    idles: bool = True
    """Whether to yield ``None`` after each result, as if nothing else had arrived."""

    def run(
        self,
        work: FetchSteps[Result],
        *,
        idle_s: float,  # noqa: ARG002  # nothing is waited for
    ) -> Generator[Sequence[Result] | None, None, None]:
        """Yield results as they arrive."""
        try:
            while (found := work.step(self.items_max)) is not None:
                assert not isinstance(found, float)  # noqa: S101  # the room is always the same
                if found:
                    yield found
                    if self.idles:
                        yield None
        finally:
            work.cancel()
            work.close()
