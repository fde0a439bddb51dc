"""The bytes of tiles, and their metadata."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from tileferry.domain.errors import FreshnessRejectionError
from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # for annotations
    from tileferry.domain.tiles import (
        BBox,
        BlobLocation,
        BlobRef,
        FreshnessLabel,
        FreshnessRule,
        FreshnessVerdict,
        NewTile,
        NewTiles,
        SectorClass,
        TileCoverage,
        TileId,
        TileMetadata,
        VotingStatus,
    )
    from tileferry.domain.tiles.origin import TileOrigin
    from tileferry.domain.tiles.refusal import Refusal


@runtime_checkable
class TileStore(Protocol):
    """Stores the bytes of tiles. A tile is visible once its metadata references its blob."""

    def write_tile(
        self, tile_id: TileId, content: bytes | Iterable[bytes], *, digest: bytes | None = None
    ) -> BlobRef:
        """Store bytes and return their location; they are durable after the next ``flush``.

        ``digest`` is the sha256 of these bytes, if the caller has just computed it. It is trusted,
        so never pass a digest from elsewhere.
        """
        ...

    def write_tiles(
        self, tile_ids: Sequence[TileId], contents: Sequence[bytes], *, digests: Sequence[bytes]
    ) -> Sequence[BlobLocation]:
        """Store several tiles as ``write_tile`` does, and return their locations.

        A store that predates this method inherits it.
        """
        return [
            self.write_tile(tile_id, content, digest=digest).location
            for tile_id, content, digest in zip(tile_ids, contents, digests, strict=True)
        ]

    def tile_exists(self, tile_id: TileId) -> bool:
        """Return whether the tile is visible."""
        ...

    def read_tile(self, tile_id: TileId, *, blob: BlobRef | None = None) -> bytes:
        """Return the bytes of a visible tile, verified by their digest.

        ``blob`` is their location, if the caller has just read the tile's row. The index is
        consulted only if they are no longer there.
        """
        ...

    def has_bytes(self, tile_id: TileId, blob: BlobRef) -> bool:
        """Return whether the bytes of a blob exist, without reading them.

        It detects bytes that were lost with their file, but not changed ones.
        """
        ...

    def delete_tile(self, tile_id: TileId) -> bool:
        """Make a tile invisible; its space is freed later. Return whether it was visible."""
        ...

    def flush(self) -> None:
        """Return when all written bytes are durable."""
        ...


class BlobIndex(Protocol):
    """The locations of visible blobs; it changes together with the metadata."""

    def locate(self, tile_id: TileId) -> BlobRef | None:
        """Return the location of a visible tile's bytes."""
        ...

    def forget(self, tile_ids: Sequence[TileId]) -> Sequence[BlobRef]:
        """Make tiles invisible, durably, and return their blobs."""
        ...


class SegmentIndex(BlobIndex, Protocol):
    """The index of a store whose locations are a segment number and an offset."""

    def list_blobs(
        self, segment: int, *, after_offset: int, limit: int
    ) -> Sequence[tuple[TileId, BlobRef]]:
        """Return the visible blobs of a segment after an offset, ordered by offset."""
        ...

    def get_last_segment(self) -> int:
        """Return the highest number of a segment with visible blobs; 0 if there is none."""
        ...

    def sum_live_bytes(self) -> Sequence[tuple[int, int]]:
        """Return each segment with visible blobs, and their total size."""
        ...

    def list_envelope_segments(self) -> Sequence[int]:
        """Return the segments with bytes of open upload envelopes, which may not be visible."""
        ...

    def move(self, moves: Sequence[tuple[TileId, BlobRef, BlobRef]]) -> int:
        """Move tiles from one blob to another, durably, if they still have the first.

        Return how many were moved.
        """
        ...


class TileInserts(Protocol):
    """Makes tiles visible, a group at a time. Applies the freshness rule to each of them."""

    @property
    def freshness(self) -> FreshnessRule:
        """The freshness rule that ``insert_metadata`` applies."""
        ...

    def insert_metadata(self, tile: NewTile) -> FreshnessLabel:
        """Insert a tile whose bytes are stored, and return its label; visible after ``flush``.

        A tile that is stale for its sector raises ``FreshnessRejectionError``.
        ``tileferry.domain.tiles.replaces`` decides which of two versions stays.
        """
        ...

    def insert_all(self, tiles: NewTiles) -> Sequence[FreshnessVerdict]:
        """Insert several tiles as ``insert_metadata`` does; return the label of each.

        A stale tile has its error instead. A store that predates this method inherits it.
        """
        verdicts: list[FreshnessVerdict] = []
        for tile in tiles:
            try:
                verdicts.append(self.insert_metadata(tile))
            except FreshnessRejectionError as error:
                verdicts.append(error)
        return verdicts

    def flush(self) -> None:
        """Return when all inserted tiles are durable and visible."""
        ...

    def detach(self) -> Callable[[], None]:
        """Detach the inserted tiles as a group, and return a function that flushes them.

        Tiles inserted later are not part of the group. The function is called once, in any thread;
        if it fails, its tiles wait for the next ``flush``.
        """
        ...


class TileCatalogue(TileInserts, Protocol):
    """The visible tiles."""

    def get_metadata(self, tile_id: TileId) -> TileMetadata | None:
        """Return the metadata of a visible tile."""
        ...

    def query_by_bbox(
        self, bbox: BBox, zoom_levels: Sequence[int], *, source: str | None = None
    ) -> Iterator[TileMetadata]:
        """Yield the visible tiles of an area, column by column."""
        ...

    def find_stored(self, tile_ids: Sequence[TileId]) -> Mapping[TileId, TileMetadata]:
        """Return the visible ones of these tiles, in one query; pass a few thousand at most."""
        ...

    def mark_used(self, tile_ids: Sequence[TileId], *, confirmed: bool = False) -> None:
        """Mark tiles as used now; the least recently used tiles are evicted first.

        ``confirmed`` also records that the provider still has the stored versions.
        """
        ...


class AbsentTiles(Protocol):
    """Remembers which tiles the provider did not have, and when."""

    def find_absent(self, tile_ids: Sequence[TileId]) -> Mapping[TileId, datetime]:
        """Return when each of these tiles was last absent, if it was, in one query."""
        ...

    def query_absent(
        self, coverage: TileCoverage, *, source: str
    ) -> Iterator[tuple[TileId, datetime]]:
        """Yield the absent tiles of an area, and when each was last absent."""
        ...

    def record_absent(self, tile_ids: Sequence[TileId], *, at: datetime) -> None:
        """Record durably that the provider did not have these tiles at a time."""
        ...

    def forget_absent(self, tile_ids: Sequence[TileId]) -> None:
        """Forget durably that these tiles were absent."""
        ...


class TileOrigins(Protocol):
    """Remembers which source delivered a tile, if not the one in its id."""

    def find_origins(self, tile_ids: Sequence[TileId]) -> Mapping[TileId, TileOrigin]:
        """Return the recorded origins of these tiles, in one query.

        An origin belongs to the version with its digest; another version is the source's own.
        """
        ...

    def record_origins(self, origins: Sequence[TileOrigin]) -> None:
        """Record origins durably; the last one of a tile replaces earlier ones."""
        ...


class RefusedTiles(Protocol):
    """Remembers which tiles a gate refused, and when. It decides nothing; operators look at it."""

    def find_refused(self, tile_ids: Sequence[TileId]) -> Sequence[Refusal]:
        """Return the refusals of these tiles, in one query, sorted by tile and sector."""
        ...

    def query_refused(
        self, coverage: TileCoverage, *, source: str, sector: SectorClass
    ) -> Iterator[Refusal]:
        """Yield the refusals of an area that concern a sector.

        These are the refusals by the resolution, and those by the age for the same sector.
        """
        ...

    def record_refused(self, refusals: Sequence[Refusal]) -> None:
        """Record refusals durably; the last one of a tile and a sector replaces earlier ones."""
        ...


class UploadStatusStore(Protocol):
    """The upload status of captured tiles."""

    def pending_uploads(self, flight_id: str) -> Iterator[TileMetadata]:
        """Yield a flight's pending tiles, ordered by id."""
        ...

    def mark_uploaded(self, *tile_ids: TileId) -> None:
        """Record durably that the provider has these tiles: all or none."""
        ...

    def update_voting_status(self, tile_id: TileId, status: VotingStatus) -> None:
        """Change a tile's status durably, if the transition is allowed."""
        ...

    def increment_upload_attempts(self, tile_id: TileId, attempt: str | None = None) -> int:
        """Count a rejected upload durably, and return the new count.

        The same ``attempt`` is not counted twice in a row, so it can be repeated after a crash.
        Nothing else writes the count. A store that predates it inherits this error, as spec 1 asks:
        it fails when an upload is rejected, instead of retrying without a bound.
        """
        raise NotImplementedError(f"{type(self).__name__} does not count upload attempts")


@runtime_checkable
class TileMetadataStore(TileCatalogue, UploadStatusStore, Protocol):
    """The metadata of all tiles: the catalogue and the upload status."""
