"""Store tiles in groups: the bytes first, then the rows, then the journal.

This order is safe against crashes. A journaled tile has its row, and a row has its bytes. Anything
incomplete after a crash (bytes without a row, a row that is not journaled) is fetched again.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self

from attrs import define, field, frozen

from tileferry.application.ports.clock import Background, Clock, Task
from tileferry.application.ports.journal import TileLog
from tileferry.application.ports.tiles import TileCatalogue, TileStore
from tileferry.domain.tiles import (
    BlobLocation,
    FreshnessVerdict,
    NewTiles,
    SectorClass,
    TileId,
    TileValidators,
    VotingStatus,
)
from tileferry.domain.validation import integer, number

GROUP_TILES_MAX = 2_048
"""Stores track a limited number of written tiles without rows; the limit is two groups."""


@frozen(kw_only=True)
class GroupLimits:
    """The limits of a group: the tile that reaches any of them commits the group.

    There is no timer: a caller flushes before it waits for a provider or a human.
    """

    tiles_max: int = field(default=1_024, validator=integer(1, GROUP_TILES_MAX))
    bytes_max: int = field(default=16 * 1024 * 1024, validator=integer(1))
    age_ms_max: float = field(default=500.0, validator=number(0))


@define(kw_only=True)
class TileBatch:
    """Tiles to store, with their bytes: a list for each field, because areas have many tiles."""

    flight_id: str
    sector_class: SectorClass
    voting_status: VotingStatus = VotingStatus.TRUSTED
    tile_ids: list[TileId] = field(factory=list, init=False)
    contents: list[bytes] = field(factory=list, init=False)
    digests: list[bytes] = field(factory=list, init=False)
    produced_at: list[datetime] = field(factory=list, init=False)
    resolutions_m_per_px: list[float] = field(factory=list, init=False)
    validators: list[TileValidators | None] = field(factory=list, init=False)

    def append(  # the fields of a tile
        self,
        tile_id: TileId,
        content: bytes,
        *,
        digest: bytes,
        produced_at: datetime,
        resolution_m_per_px: float,
        validators: TileValidators | None = None,
    ) -> Self:
        """Add a tile; ``digest`` is the sha256 of ``content``, which the caller has computed."""
        self.tile_ids.append(tile_id)
        self.contents.append(content)
        self.digests.append(digest)
        self.produced_at.append(produced_at)
        self.resolutions_m_per_px.append(resolution_m_per_px)
        self.validators.append(validators)
        return self

    def describe(self, locations: Sequence[BlobLocation]) -> NewTiles:
        """Return the metadata of the tiles, whose bytes are stored at these locations."""
        return NewTiles(
            flight_id=self.flight_id,
            sector_class=self.sector_class,
            voting_status=self.voting_status,
            tile_ids=self.tile_ids,
            produced_at=self.produced_at,
            resolutions_m_per_px=self.resolutions_m_per_px,
            validators=self.validators,
            locations=locations,
            lengths=list(map(len, self.contents)),
            digests=self.digests,
        )


@define
class _Group:
    """Tiles that become durable together."""

    tiles: dict[TileId, None] = field(factory=dict)
    """In order of arrival, without duplicates, because the journal counts its entries."""
    detached_rows: list[Callable[[], None]] = field(factory=list)
    """Write the rows that were detached from the store."""
    confirmed: list[TileId] = field(factory=list)
    """Tiles that are stored already, and that the provider confirmed."""
    size_bytes: int = 0
    begun_s: float = 0.0


@define(kw_only=True)
class GroupCommit:
    """Collects tiles and makes them durable one group at a time. Not thread-safe.

    With a ``background``, one group is made durable while the next is collected, so a crash can
    lose two. The error of a group is raised by the next call; its tiles join the next group, so
    that a caller can continue. Only this object may flush its metadata store meanwhile: a row must
    not be written before its bytes.
    """

    tile_store: TileStore
    metadata_store: TileCatalogue
    journal: TileLog
    clock: Clock
    limits: GroupLimits = field(factory=GroupLimits)
    background: Background | None = None
    durable: int = field(default=0, init=False)
    """The number of tiles known to be durable."""
    _group: _Group = field(factory=_Group, init=False)
    _committing: tuple[_Group, Task] | None = field(default=None, init=False)

    def add(self, batch: TileBatch) -> Sequence[FreshnessVerdict]:
        """Add tiles; return the label of each. A tile that is too old has its error instead.

        Such a tile is not added.
        """
        if self._committing is not None and self._committing[1].done():
            self._await_commit()
        locations = self.tile_store.write_tiles(
            batch.tile_ids, batch.contents, digests=batch.digests
        )
        new = batch.describe(locations)
        verdicts = self.metadata_store.insert_all(new)
        stored = [
            tile_id
            for tile_id, verdict in zip(batch.tile_ids, verdicts, strict=True)
            if not isinstance(verdict, Exception)
        ]
        if stored:
            self._extend_group(stored, sum(new.lengths))
        return verdicts

    def confirm(self, tile_id: TileId) -> None:
        """Add a stored tile that the provider confirmed: it is journaled like a new one."""
        self._group.confirmed.append(tile_id)
        self._extend_group([tile_id], 0)

    def _extend_group(self, tile_ids: Sequence[TileId], size_bytes: int) -> None:
        group = self._group
        if not group.tiles:
            group.begun_s = self.clock.monotonic()
        group.tiles |= dict.fromkeys(tile_ids)
        group.size_bytes += size_bytes
        if self._is_due(group):
            self._begin_commit()

    def flush(self) -> None:
        """Return when all added tiles are durable and journaled."""
        self._await_commit()
        if self._group.tiles:
            self._group.detached_rows.append(self.metadata_store.detach())
            self._commit(self._group)
            self.durable += len(self._group.tiles)
            self._group = _Group()

    def _begin_commit(self) -> None:
        """Commit the group, in the background if there is one, and begin the next."""
        if self.background is None:
            self.flush()
            return
        self._await_commit()
        group, self._group = self._group, _Group()
        # Detach the rows now: rows of the next group do not have durable bytes yet.
        group.detached_rows.append(self.metadata_store.detach())
        self._committing = group, self.background.submit(partial(self._commit, group))

    def _await_commit(self) -> None:
        """Wait for the group in the background; merge it into the current group if it failed."""
        if self._committing is None:
            return
        group, task = self._committing
        error = task.exception()
        self._committing = None
        if error is not None:
            group.tiles |= self._group.tiles
            group.confirmed += self._group.confirmed
            group.size_bytes += self._group.size_bytes
            self._group = group
            raise error
        self.durable += len(group.tiles)

    def _commit(self, group: _Group) -> None:
        """Make a group durable, in the order that is safe against crashes."""
        self.tile_store.flush()
        while group.detached_rows:
            # Run each once: rows that fail return to the store and are detached again.
            group.detached_rows.pop(0)()
        if group.confirmed:
            self.metadata_store.mark_used(group.confirmed, confirmed=True)
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
        """Flush on a normal exit; after an error, flush nothing.

        Either way nothing runs in the background afterwards, so the stores can be closed.
        """
        if error is None:
            self.flush()
        elif self._committing is not None:
            self._committing[1].exception()
