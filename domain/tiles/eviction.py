"""The cache budget and eviction. The plan is complete before any tile is evicted."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from attrs import field, frozen, validators

from tileferry.domain.errors import CacheBudgetExceededError, InvalidValueError, MisuseError
from tileferry.domain.tiles.metadata import TileMetadata
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.tiles.voting import VotingStatus
from tileferry.domain.validation import aware, instance, integer

KEPT_STATUSES = frozenset({VotingStatus.PENDING, VotingStatus.UPLOAD_GIVEUP})
"""Tiles that exist only in this cache. Evicting one would lose it."""
_GIB = 2**30


def compute_default_budget_bytes(disk_bytes: int) -> int:
    """Return the default cache budget: half of the disk."""
    return disk_bytes // 2


def compute_default_reserve_bytes(disk_bytes: int) -> int:
    """Return the default free-space reserve: a twentieth of the disk, 1 to 20 GiB."""
    return min(max(disk_bytes // 20, _GIB), 20 * _GIB)


@frozen(kw_only=True)
class CachedTile:
    """A candidate for eviction."""

    tile_id: TileId = field(validator=instance(TileId))
    size_bytes: int = field(validator=integer(0))
    last_used_at: datetime = field(validator=aware)
    pinned: bool = field(default=False, validator=instance(bool))
    """Belongs to a pinned flight, or is not uploaded yet."""


@frozen(kw_only=True)
class DiskRoom:
    """The free space of a disk, independent of the cache budget."""

    free_bytes: int = field(validator=integer(0))
    reserve_bytes: int = field(validator=integer(0))
    """Bytes that must stay free."""

    @property
    def available_bytes(self) -> int:
        """Bytes that can be written; negative if less than the reserve is free."""
        return self.free_bytes - self.reserve_bytes


@frozen(kw_only=True)
class CacheSpace:
    """The current limits of the cache."""

    budget_bytes: int = field(validator=integer(0))
    used_bytes: int = field(validator=integer(0))
    reserved_bytes: int = field(default=0, validator=integer(0))
    """Reserved by other operations and not written yet. Both limits are reduced by it."""
    free_disk_bytes: int = field(validator=integer(0))
    free_space_reserve_bytes: int = field(default=0, validator=integer(0))
    """Bytes that must stay free on the disk, independent of the budget."""

    @property
    def available_bytes(self) -> int:
        """Bytes that can be written within both limits; negative if a limit is exceeded."""
        return min(self._in_budget, self.disk.available_bytes) - self.reserved_bytes

    @property
    def disk(self) -> DiskRoom:
        return DiskRoom(
            free_bytes=self.free_disk_bytes, reserve_bytes=self.free_space_reserve_bytes
        )

    @property
    def tight_disk(self) -> DiskRoom | None:
        """The disk, if it is the tighter limit; ``None`` if the budget is."""
        return self.disk if self.disk.available_bytes < self._in_budget else None

    @property
    def _in_budget(self) -> int:
        return self.budget_bytes - self.used_bytes


def _ids(tiles: Iterable[TileId]) -> tuple[TileId, ...]:
    return tuple(tiles)


@frozen(kw_only=True)
class EvictionResult:
    """The tiles to evict for a request, and whether the request then fits."""

    requested_bytes: int = field(validator=integer(0))
    available_bytes: int = field(validator=instance(int))
    """Bytes available after the eviction. If insufficient: after evicting every candidate."""
    evicted: tuple[TileId, ...] = field(default=(), converter=_ids)
    freed_bytes: int = field(default=0, validator=integer(0))
    tight_disk: DiskRoom | None = None
    """The disk, if it was the tighter limit; ``None`` if the budget was."""

    def __attrs_post_init__(self) -> None:
        if self.insufficient and (self.evicted or self.freed_bytes):
            raise InvalidValueError(
                field="EvictionResult.evicted",
                value=len(self.evicted),
                problem=f"must be empty: {self.shortfall_bytes} bytes are still missing",
            )

    @property
    def insufficient(self) -> bool:
        """Whether the request does not fit. A request for 0 bytes always fits."""
        return self.requested_bytes > 0 and self.available_bytes < self.requested_bytes

    @property
    def shortfall_bytes(self) -> int:
        """Bytes missing; 0 if the request fits."""
        return self.requested_bytes - self.available_bytes if self.insufficient else 0

    def build_error(self) -> CacheBudgetExceededError:
        """Build the error with the shortfall and the limit that causes it."""
        disk = self.tight_disk
        return CacheBudgetExceededError(
            requested_bytes=self.requested_bytes,
            available_bytes=self.available_bytes,
            disk_free_bytes=None if disk is None else disk.free_bytes,
            disk_reserve_bytes=0 if disk is None else disk.reserve_bytes,
        )

    @property
    def evicted_count(self) -> int:
        return len(self.evicted)


@frozen(kw_only=True)
class PruneRule:
    """Which tiles to remove; a tile must match every criterion that is set.

    Captured tiles that are not uploaded, giveups and tiles of pinned flights never match.
    """

    unowned: bool = field(default=False, validator=instance(bool))
    """Only tiles that belong to no flight."""
    unused_since: datetime | None = field(default=None, validator=validators.optional(aware))
    """Only tiles that were last downloaded or reused before this time."""
    source: str | None = None

    def __attrs_post_init__(self) -> None:
        if not (self.unowned or self.unused_since or self.source):
            raise InvalidValueError(
                field="PruneRule",
                value="no criterion",
                problem="would remove every tile",
                remedy="specify which tiles to remove",
            )

    def matches(self, tile: TileMetadata, *, is_owned: bool) -> bool:
        """Return whether the rule removes a tile that is not protected."""
        return (
            not (self.unowned and is_owned)
            and (self.unused_since is None or tile.last_used_at < self.unused_since)
            and self.source in {None, tile.tile_id.source}
        )


@frozen(kw_only=True)
class PrunedTiles:
    """How many tiles were, or would be, removed."""

    tiles: int = field(default=0, validator=integer(0))
    size_bytes: int = field(default=0, validator=integer(0))


def plan_eviction(
    needed_bytes: int, space: CacheSpace, candidates: Iterable[CachedTile]
) -> EvictionResult:
    """Plan which tiles to evict, least recently used first. Pinned tiles are never evicted.

    ``candidates`` must be in that order; they are read only as far as needed. If all of them are
    not enough, none is evicted, so a batch that cannot start does not cost any tiles. The plan
    counts evicted bytes as free, so the caller must release them on disk before the batch starts.
    """
    as_it_is = EvictionResult(requested_bytes=needed_bytes, available_bytes=space.available_bytes)
    if not as_it_is.insufficient:
        return as_it_is
    evicted: list[TileId] = []
    freed_bytes = 0
    for tile in _check_order(candidates):
        if tile.pinned:
            continue
        evicted.append(tile.tile_id)
        freed_bytes += tile.size_bytes
        if freed_bytes >= as_it_is.shortfall_bytes:
            return EvictionResult(
                requested_bytes=needed_bytes,
                available_bytes=space.available_bytes + freed_bytes,
                evicted=evicted,
                freed_bytes=freed_bytes,
            )
    return EvictionResult(
        requested_bytes=needed_bytes,
        available_bytes=space.available_bytes + freed_bytes,
        tight_disk=space.tight_disk,
    )


def _check_order(candidates: Iterable[CachedTile]) -> Iterator[CachedTile]:
    """Yield the candidates; raise if one is repeated or out of order."""
    previous: datetime | None = None
    seen: set[TileId] = set()
    for tile in candidates:
        if tile.tile_id in seen:
            raise MisuseError(
                what="eviction candidates", problem=f"tile {tile.tile_id} is listed twice"
            )
        seen.add(tile.tile_id)
        if previous is not None and tile.last_used_at < previous:
            raise MisuseError(
                what="eviction candidates",
                problem=f"tile {tile.tile_id} was used before the tile that precedes it",
                remedy="list the least recently used tile first",
            )
        previous = tile.last_used_at
        yield tile
