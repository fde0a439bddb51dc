"""Sign the pending tiles of a flight in batches."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256

from attrs import define, field, frozen, validators

from tileferry.application.ports.clock import Clock
from tileferry.application.ports.tiles import TileStore, UploadStatusStore
from tileferry.application.ports.uploads import SigningSession, UploadProvider
from tileferry.domain.errors import DamagedTileError, TileNotFoundError
from tileferry.domain.idempotency import compute_idempotency_key
from tileferry.domain.tiles import (
    BATCH_TILES_MAX,
    Batch,
    EnvelopeTile,
    PerTileStatus,
    SignedEnvelope,
    TileId,
    TileMetadata,
    TileUploadStatus,
    build_damaged_attempt,
    build_signing_input,
)
from tileferry.domain.validation import integer

KEPT_BYTES_MAX = 16 * 1024 * 1024
"""Batches up to this size stay in memory from signing until the answer."""
NOT_SENT = "not sent, the cache cannot read it"


@frozen(kw_only=True)
class UploadSettings:
    """The limits of a batch and of a tile's attempts."""

    batch_tiles_max: int = field(default=100, validator=integer(1, BATCH_TILES_MAX))
    batch_bytes_max: int = field(default=16 * 1024 * 1024, validator=integer(1))
    attempts_max: int | None = field(default=None, validator=validators.optional(integer(1)))
    """Maximum number of rejections of a tile; requires a caller that counts them."""


@frozen
class SignedBatch:
    """A signed batch, and the bytes of its tiles if they are in memory."""

    envelope: SignedEnvelope
    contents: Sequence[bytes] | None


@define(kw_only=True)
class BatchSigner:
    """Reads, hashes and signs the pending tiles of a flight, for one pass."""

    flight_id: str
    refused: Collection[TileId]
    """Tiles that were just rejected."""
    provider: UploadProvider
    tile_store: TileStore
    tile_metadata_store: UploadStatusStore
    settings: UploadSettings
    clock: Clock
    new_id: Callable[[], str]
    unreadable: list[PerTileStatus] = field(factory=list, init=False)
    """Tiles that the cache could not read."""

    def iter_signed(self, session: SigningSession) -> Iterator[SignedBatch]:
        """Yield the pending tiles as signed batches, without those just rejected.

        An unreadable tile must not block the others. It stays pending, and a damaged one costs an
        attempt.
        """
        for tiles in self._split_batches():
            fresh = [tile for tile in tiles if tile.tile_id not in self.refused]
            try:
                signed = self._sign(fresh, session) if fresh else None
            except (TileNotFoundError, DamagedTileError):
                faults = [(tile, self._find_fault(tile)) for tile in fresh]
                self.unreadable += [
                    self._build_unreadable(tile, fault) for tile, fault in faults if fault
                ]
                sound = [tile for tile, fault in faults if fault is None]
                signed = self._sign(sound, session) if sound else None
            if signed is not None:
                yield signed

    def _find_fault(self, tile: TileMetadata) -> TileNotFoundError | DamagedTileError | None:
        """Return why the cache cannot read a tile; ``None`` if it can."""
        try:
            self.tile_store.read_tile(tile.tile_id, blob=tile.blob)
        except (TileNotFoundError, DamagedTileError) as fault:
            return fault
        return None

    def _build_unreadable(
        self, tile: TileMetadata, fault: TileNotFoundError | DamagedTileError
    ) -> PerTileStatus:
        """Return the status of a tile that was not sent; a damaged one has an attempt to count.

        A tile without a row has no count. If the store has lost all its bytes, the disk may be
        absent, and no tile is charged for that.
        """
        damage = fault if isinstance(fault, DamagedTileError) else None
        limit = self.settings.attempts_max
        attempt = None
        if damage is not None and not damage.is_store_lost and limit is not None:
            attempt = build_damaged_attempt(tile.upload_attempts, limit)
        problem = "it is no longer in the cache" if damage is None else damage.problem
        return build_not_sent(tile.tile_id, problem, attempt)

    def _split_batches(self) -> Iterator[list[TileMetadata]]:
        """Split the pending tiles into batches within the limits; each tile appears once."""
        batch: list[TileMetadata] = []
        size = 0
        for tile in self.tile_metadata_store.pending_uploads(self.flight_id):
            length = tile.blob.length
            full = len(batch) >= self.settings.batch_tiles_max
            if batch and (full or size + length > self.settings.batch_bytes_max):
                yield batch
                batch, size = [], 0
            batch.append(tile)
            size += length
        if batch:
            yield batch

    def _sign(self, tiles: list[TileMetadata], session: SigningSession) -> SignedBatch:
        """Sign a batch; keep its tiles too, if they fit."""
        key = compute_idempotency_key(
            "upload_batch",
            correlation_id=self.flight_id,
            additional_params={"session": self.new_id()},
        )
        batch = Batch(
            key=key, flight_id=self.flight_id, tiles=map(EnvelopeTile.from_metadata, tiles)
        )
        contents: Iterable[bytes] = (
            self.tile_store.read_tile(tile.tile_id, blob=tile.blob) for tile in tiles
        )
        kept = None
        if sum(tile.blob.length for tile in tiles) <= KEPT_BYTES_MAX:
            contents = kept = list(contents)
        timestamp = datetime.fromtimestamp(self.clock.now(), UTC).isoformat()
        body_sha256 = hash_pieces(self.provider.iter_body(batch, contents))
        message = build_signing_input(
            method="POST",
            path=self.provider.path,
            body_sha256=body_sha256,
            key=key,
            timestamp=timestamp,
            flight_id=self.flight_id,
        )
        envelope = SignedEnvelope(
            batch=batch,
            body_sha256=body_sha256,
            timestamp=timestamp,
            public_key=session.public_key,
            signature=session.sign(message),
        )
        return SignedBatch(envelope, kept)


def build_not_sent(tile_id: TileId, problem: str, attempt: str | None = None) -> PerTileStatus:
    """Return the status of a tile that the cache cannot read."""
    return PerTileStatus(
        tile_id=tile_id,
        status=TileUploadStatus.UNREADABLE,
        reason=f"{NOT_SENT}: {problem}",
        attempt=attempt,
    )


def hash_pieces(pieces: Iterable[bytes]) -> str:
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
