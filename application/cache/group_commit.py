"""Storing tiles in groups: the bytes first, then the rows, then the journal.

The order is what makes a crash harmless. A journaled tile has its row, and a row has its bytes;
what a crash leaves half done (bytes without a row, a row that is not journaled) is fetched again.
"""

from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Self

from attrs import define, field, frozen

from tileferry.application.ports.background import Background, Task
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.journal import TileLog
from tileferry.application.ports.tiles import TileCatalogue, TileStore
from tileferry.domain.tiles import BlobRef, FreshnessLabel, NewTile, TileId
from tileferry.domain.validation import integer, number

GROUP_TILES_MAX = 2_048
"""Stores keep track of what was written and has no row yet, within bounds; that is two groups."""


@frozen(kw_only=True)
class GroupLimits:
    """How much may be at risk: a group is committed by the tile that reaches any of these.

    Time alone commits nothing: who is about to wait, for a provider or for a human, flushes first.
    """

    tiles_max: int = field(default=1_024, validator=integer(1, GROUP_TILES_MAX))
    bytes_max: int = field(default=16 * 1024 * 1024, validator=integer(1))
    age_ms_max: float = field(default=500.0, validator=number(0))


@define
class _Group:
    """Tiles that become durable together."""

    tiles: dict[TileId, None] = field(factory=dict)
    """In the order of their arrival, each once: the journal counts what it is given."""
    detached_rows: list[Callable[[], None]] = field(factory=list)
    """Rows that were set aside and are still to be written."""
    size_bytes: int = 0
    begun_s: float = 0.0


@define(kw_only=True)
class GroupCommit:
    """Takes tiles in and makes them durable a group at a time. For one thread.

    With a ``background`` one group is made durable while the next one is taken in: two may be at
    risk then. What goes wrong with a group is raised by the next call, and its tiles are part of
    the next group again, for whoever wants to go on. While it works, nobody else flushes its
    metadata store: a row must not overtake its bytes.
    """

    tile_store: TileStore
    metadata_store: TileCatalogue
    journal: TileLog
    clock: Clock
    limits: GroupLimits = field(factory=GroupLimits)
    background: Background | None = None
    durable: int = field(default=0, init=False)
    """How many tiles it has made durable so far, as far as this thread knows."""
    _group: _Group = field(factory=_Group, init=False)
    _committing: tuple[_Group, Task] | None = field(default=None, init=False)

    def add(
        self,
        tile_id: TileId,
        content: bytes | Iterable[bytes],
        describe: Callable[[BlobRef], NewTile],
        *,
        digest: bytes | None = None,
    ) -> FreshnessLabel:
        """Take a tile in; ``describe`` makes its metadata once it is known where its bytes are.

        Who has just computed the sha256 of ``content`` says so by ``digest``.
        A tile that the freshness rule refuses is no part of the group: the error passes through.
        """
        if self._committing is not None and self._committing[1].done():
            self._await_commit()
        blob = self.tile_store.write_tile(tile_id, content, digest=digest)
        label = self.metadata_store.insert_metadata(describe(blob))
        group = self._group
        if not group.tiles:
            group.begun_s = self.clock.monotonic()
        group.tiles[tile_id] = None
        group.size_bytes += blob.length
        if self._is_due(group):
            self._begin_commit()
        return label

    def flush(self) -> None:
        """Return once all that was taken in is durable and journaled."""
        self._await_commit()
        if self._group.tiles:
            self._group.detached_rows.append(self.metadata_store.detach())
            self._commit(self._group)
            self.durable += len(self._group.tiles)
            self._group = _Group()

    def _begin_commit(self) -> None:
        """Make the group durable, in the background if there is one, and begin the next."""
        if self.background is None:
            self.flush()
            return
        self._await_commit()
        group, self._group = self._group, _Group()
        # The rows are set aside now: those of the next group have no durable bytes yet.
        group.detached_rows.append(self.metadata_store.detach())
        self._committing = group, self.background.submit(partial(self._commit, group))

    def _await_commit(self) -> None:
        """Wait for the group that is being made durable; take it back if that failed."""
        if self._committing is None:
            return
        group, task = self._committing
        error = task.exception()
        self._committing = None
        if error is not None:
            group.tiles |= self._group.tiles
            group.size_bytes += self._group.size_bytes
            self._group = group
            raise error
        self.durable += len(group.tiles)

    def _commit(self, group: _Group) -> None:
        """Make a group durable, in the one order that a crash cannot spoil."""
        self.tile_store.flush()
        while group.detached_rows:
            # Each once: those that fail go back to the store, and are set aside again.
            group.detached_rows.pop(0)()
        self.journal.append(list(group.tiles))
        self.journal.flush()

    def _is_due(self, group: _Group) -> bool:
        limits = self.limits
        return (
            len(group.tiles) >= limits.tiles_max
            or group.size_bytes >= limits.bytes_max
            or (self.clock.monotonic() - group.begun_s) * 1_000 >= limits.age_ms_max
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Flush at the end of orderly work; after an error nothing more is promised.

        Either way nothing goes on in the background: the stores may be closed then.
        """
        if error is None:
            self.flush()
        elif self._committing is not None:
            self._committing[1].exception()
