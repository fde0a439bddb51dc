"""The cache's budget: what must go so that a batch fits, decided before anything is touched."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from attrs import field, frozen

from tileferry.domain.errors import CacheBudgetExceededError, InvalidValueError, MisuseError
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.tiles.voting import VotingStatus
from tileferry.domain.validation import aware, instance, integer

KEPT_STATUSES = frozenset({VotingStatus.PENDING, VotingStatus.UPLOAD_GIVEUP})
"""Tiles that nobody else has yet: evicting one would lose it."""
_GIB = 2**30


def compute_default_budget_bytes(disk_bytes: int) -> int:
    """Return the cache's budget where the operator set none: half of the disk."""
    return disk_bytes // 2


def compute_default_reserve_bytes(disk_bytes: int) -> int:
    """Return what stays free where the operator set nothing: a twentieth, 1 to 20 GiB."""
    return min(max(disk_bytes // 20, _GIB), 20 * _GIB)


@frozen(kw_only=True)
class CachedTile:
    """A tile in the cache, as eviction sees it."""

    tile_id: TileId = field(validator=instance(TileId))
    size_bytes: int = field(validator=integer(0))
    last_used_at: datetime = field(validator=aware)
    pinned: bool = field(default=False, validator=instance(bool))
    """Part of a flight that must keep its tiles, or not uploaded yet."""


@frozen(kw_only=True)
class DiskRoom:
    """What a disk allows, whatever a budget says."""

    free_bytes: int = field(validator=integer(0))
    reserve_bytes: int = field(validator=integer(0))
    """What must stay free."""

    @property
    def available_bytes(self) -> int:
        """What can be written; negative when the reserve is already touched."""
        return self.free_bytes - self.reserve_bytes


@frozen(kw_only=True)
class CacheSpace:
    """What limits the cache at this moment."""

    budget_bytes: int = field(validator=integer(0))
    used_bytes: int = field(validator=integer(0))
    reserved_bytes: int = field(default=0, validator=integer(0))
    """Promised to others and not written yet: still to come off both limits."""
    free_disk_bytes: int = field(validator=integer(0))
    free_space_reserve_bytes: int = field(default=0, validator=integer(0))
    """What must stay free on the disk, whatever the budget says."""

    @property
    def available_bytes(self) -> int:
        """What can be written under both limits; negative when one is already overdrawn."""
        return min(self._in_budget, self.disk.available_bytes) - self.reserved_bytes

    @property
    def disk(self) -> DiskRoom:
        """What the disk allows."""
        return DiskRoom(
            free_bytes=self.free_disk_bytes, reserve_bytes=self.free_space_reserve_bytes
        )

    @property
    def tight_disk(self) -> DiskRoom | None:
        """The disk, where that is the limit and not the budget."""
        return self.disk if self.disk.available_bytes < self._in_budget else None

    @property
    def _in_budget(self) -> int:
        return self.budget_bytes - self.used_bytes


def _ids(tiles: Iterable[TileId]) -> tuple[TileId, ...]:
    return tuple(tiles)


@frozen(kw_only=True)
class EvictionResult:
    """What is evicted for a request, and whether the request then fits."""

    requested_bytes: int = field(validator=integer(0))
    available_bytes: int = field(validator=instance(int))
    """What there is after evicting; when that is not enough, what evicting all would have given."""
    evicted: tuple[TileId, ...] = field(default=(), converter=_ids)
    freed_bytes: int = field(default=0, validator=integer(0))
    tight_disk: DiskRoom | None = None
    """The disk, where that was the limit and not the budget."""

    def __attrs_post_init__(self) -> None:
        if self.insufficient and (self.evicted or self.freed_bytes):
            raise InvalidValueError(
                field="EvictionResult.evicted",
                value=len(self.evicted),
                problem=f"must be empty: {self.shortfall_bytes} bytes are missing all the same",
            )

    @property
    def insufficient(self) -> bool:
        """Whether the request does not fit. Asking for nothing always fits."""
        return self.requested_bytes > 0 and self.available_bytes < self.requested_bytes

    @property
    def shortfall_bytes(self) -> int:
        """How much is missing."""
        return self.requested_bytes - self.available_bytes if self.insufficient else 0

    def build_error(self) -> CacheBudgetExceededError:
        """Say what is missing, and which limit it is that stands in the way."""
        disk = self.tight_disk
        return CacheBudgetExceededError(
            requested_bytes=self.requested_bytes,
            available_bytes=self.available_bytes,
            disk_free_bytes=None if disk is None else disk.free_bytes,
            disk_reserve_bytes=0 if disk is None else disk.reserve_bytes,
        )

    @property
    def evicted_count(self) -> int:
        """How many tiles go."""
        return len(self.evicted)


def plan_eviction(
    needed_bytes: int, space: CacheSpace, candidates: Iterable[CachedTile]
) -> EvictionResult:
    """Plan which tiles make room, least recently used first, pinned ones never.

    ``candidates`` come in that order and are read only as far as needed. When all of them would
    not do, none is evicted: a batch that cannot start must not cost the cache anything. Evicted
    bytes count as free at once, so whoever carries the plan out gives them back to the disk before
    it lets the batch begin.
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
    """Yield the candidates; refuse one that comes twice, or was used before its predecessor."""
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
