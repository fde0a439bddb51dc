"""Operators' queries about the tiles of a cache: counts, giveups, damage, images."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import PurePath
from typing import Protocol, TypeAlias

from attrs import frozen

from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):
    from tileferry.application.ports.progress import NULL_LISTENER, ProgressListener
    from tileferry.domain.errors import DamagedTileError
    from tileferry.domain.tiles import BlobRef, TileId, TileMetadata, VotingStatus


class TileKey(StrEnum):
    """What tiles are counted by."""

    SOURCE = "source"
    ZOOM = "zoom"


@frozen(kw_only=True)
class TileGroup:
    """The tiles of one source, one zoom level or one flight."""

    name: str
    tiles: int
    size_bytes: int


@frozen(kw_only=True)
class CacheUsage:
    """The tiles of a cache, and the space that they and the reservations of downloads take."""

    tiles: int
    used_bytes: int
    reserved_bytes: int


class CacheUsageReader(Protocol):
    """Measures the space that a cache uses."""

    def measure_usage(self) -> CacheUsage:
        """Return the visible tiles and the reservations that have not expired, of one moment."""
        ...


class TileCounts(Protocol):
    """Counts visible tiles."""

    def count(self) -> int:
        """Return how many tiles there are."""
        ...

    def count_by(self, key: TileKey) -> Sequence[TileGroup]:
        """Return the number and size of the tiles, by source or by zoom level, sorted."""
        ...

    def count_pending(self, flight_id: str) -> int:
        """Return how many tiles of a flight are pending."""
        ...

    def count_captured(self, flight_id: str) -> Mapping[VotingStatus, int]:
        """Return how many tiles a flight captured, by voting status."""
        ...


class TileInventory(TileCounts, Protocol):
    """Counts and lists visible tiles."""

    def get_metadata(self, tile_id: TileId) -> TileMetadata | None:
        """Return the metadata of a visible tile."""
        ...

    def find_given_up(
        self, flight_id: str | None = None, *, after: tuple[str, TileId] | None = None
    ) -> Iterator[TileMetadata]:
        """Yield the giveups of one flight or of all, ordered by flight and tile.

        ``after`` is the flight and the tile at which an earlier list ended.
        """
        ...


class TileImages(Protocol):
    """Writes copies of tiles that a human can open."""

    def extract(self, tile_id: TileId, content: bytes) -> PurePath:
        """Write a tile to a file, and return its path."""
        ...


@frozen(kw_only=True)
class DamagedBlob:
    """A visible tile whose bytes have changed since they were stored."""

    tile_id: TileId
    segment: int
    problem: str


@frozen(kw_only=True)
class DamagedSegment:
    """A segment whose file is damaged; its tiles are checked one by one."""

    segment: int
    problem: str


@frozen(kw_only=True)
class SegmentTally:
    """The size of a segment; dead bytes belong to deleted, replaced or unconfirmed tiles."""

    segment: int
    size_bytes: int
    live_tiles: int
    live_bytes: int
    dead_bytes: int


VerificationFinding: TypeAlias = DamagedBlob | DamagedSegment | SegmentTally


class CompactedFile(Protocol):
    """The result of compacting one file."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def removed(self) -> bool: ...
    @property
    def moved_tiles(self) -> int: ...
    @property
    def moved_bytes(self) -> int: ...
    @property
    def damaged(self) -> Sequence[DamagedTileError]: ...


class CompactableStore(Protocol):
    """Frees the space of tiles that are not visible any more; the caller holds the cache's lock."""

    def forget_locations(self) -> None:
        """Call this after rows were removed."""
        ...

    def compact(self, *, live_share_min: float = ...) -> Sequence[CompactedFile]:
        """Rewrite files with less than this share in use."""
        ...


class VerifiableStore(Protocol):
    """Checks stored bytes against their checksums, also while tiles are written and moved."""

    def verify(self, progress: ProgressListener = NULL_LISTENER) -> Iterator[VerificationFinding]:
        """Check every visible tile: yield the damage, and a tally of each segment."""
        ...

    def find_problem(self, tile_id: TileId, blob: BlobRef) -> str | None:
        """Return why a tile cannot be read as stored; ``None`` if it can."""
        ...
