"""Uploading a flight: signed batches, each kept until its answer is recorded.

The order makes a crash harmless. An envelope is durable before its first byte is sent; each answer
is recorded before the envelope is forgotten. What a crash leaves open is sent again as it was, with
the same key, bytes and signature, and the provider answers the same.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from logging import Logger

from attrs import define, field, frozen

from tileferry.application.ports.clock import Clock
from tileferry.application.ports.lock import CacheLock
from tileferry.application.ports.tile_metadata import TileMetadataStore
from tileferry.application.ports.tile_store import TileStore
from tileferry.application.ports.uploads import (
    EnvelopeStore,
    FlightRecords,
    SigningKeys,
    SigningSession,
    UploadObserver,
    UploadProvider,
)
from tileferry.application.provider_calls import last_error
from tileferry.application.retry_manager import RetryManager
from tileferry.domain.checks import integer
from tileferry.domain.errors import DamagedTileError, RetryError, TileNotFoundError
from tileferry.domain.idempotency import compute_idempotency_key
from tileferry.domain.retry import RetryCategory
from tileferry.domain.tiles import (
    BATCH_TILES_MAX,
    Batch,
    EnvelopeTile,
    PerTileStatus,
    SignedEnvelope,
    TileId,
    TileMetadata,
    UploadBatchReport,
    UploadRequest,
    VotingStatus,
    class_of_error,
    signed_lines,
)


class _Unseen:
    """An observer for when nobody looks."""

    def answered(self, answers: Sequence[PerTileStatus], size_bytes: int) -> None: ...


UNSEEN: UploadObserver = _Unseen()


@frozen(kw_only=True)
class UploadSettings:
    """How large a batch may be."""

    batch_tiles_max: int = field(default=100, validator=integer(1, BATCH_TILES_MAX))
    batch_bytes_max: int = field(default=16 * 1024 * 1024, validator=integer(1))


@define(kw_only=True)
class FlightUpload:
    """The use case. Needs the cache's lock: two at once would send the same tiles."""

    provider: UploadProvider
    tile_store: TileStore
    tile_metadata_store: TileMetadataStore
    envelopes: EnvelopeStore
    flight_records: FlightRecords
    keys: SigningKeys
    lock: CacheLock
    retry: RetryManager
    clock: Clock
    logger: Logger
    settings: UploadSettings = field(factory=UploadSettings)
    observer: UploadObserver = UNSEEN

    def confirm_flight_state(self) -> None:
        """Refuse unless the aircraft is on the ground."""
        self.flight_records.current().confirm_on_ground()

    def enumerate_pending_tiles(self, flight_id: str) -> Iterator[TileMetadata]:
        """Yield what waits, without sending any of it."""
        return self.tile_metadata_store.pending_uploads(flight_id)

    def upload_pending_tiles(self, request: UploadRequest) -> UploadBatchReport:
        """Send what waits; what an earlier run left open comes first, as it was signed then."""
        self.lock.check_held()
        flight_id = request.flight_id
        self.flight_records.current().confirm_on_ground(flight_id)
        statuses: dict[TileId, PerTileStatus] = {}
        for envelope in self.envelopes.open_envelopes(flight_id):
            self._note(statuses, self._repeated(envelope))
        refused = {tile for tile, status in statuses.items() if not status.status.acknowledged}
        with self.keys.session() as key:
            for tiles in self._batches(flight_id):
                fresh = [tile for tile in tiles if tile.tile_id not in refused]
                if fresh:
                    self._note(statuses, self._sent(self._signed(flight_id, fresh, key)))
        return UploadBatchReport.from_statuses(flight_id, statuses.values())

    # The steps

    def _batches(self, flight_id: str) -> Iterator[list[EnvelopeTile]]:
        """Part what waits into batches, each within its bounds; every tile comes once."""
        batch: list[EnvelopeTile] = []
        size = 0
        for tile in self.tile_metadata_store.pending_uploads(flight_id):
            length = tile.blob.length
            full = len(batch) >= self.settings.batch_tiles_max
            if batch and (full or size + length > self.settings.batch_bytes_max):
                yield batch
                batch, size = [], 0
            batch.append(EnvelopeTile.of(tile))
            size += length
        if batch:
            yield batch

    def _signed(
        self, flight_id: str, tiles: list[EnvelopeTile], session: SigningSession
    ) -> SignedEnvelope:
        """Sign a batch, and keep it before any of it is sent."""
        key = compute_idempotency_key(
            "upload_batch",
            correlation_id=flight_id,
            additional_params={
                "session": self.retry.new_id(),
                "tiles": [[str(tile.tile_id), tile.sha256] for tile in tiles],
            },
        )
        batch = Batch(key=key, flight_id=flight_id, tiles=tiles)
        timestamp = datetime.fromtimestamp(self.clock.now(), UTC).isoformat()
        body_sha256 = self._body_sha256(batch)
        message = signed_lines(
            method="POST",
            path=self.provider.path,
            body_sha256=body_sha256,
            key=key,
            timestamp=timestamp,
            flight_id=flight_id,
        )
        envelope = SignedEnvelope(
            batch=batch,
            body_sha256=body_sha256,
            timestamp=timestamp,
            public_key=session.public_key,
            signature=session.sign(message),
        )
        self.envelopes.save(envelope)
        return envelope

    def _sent(self, envelope: SignedEnvelope) -> tuple[PerTileStatus, ...]:
        """Send an envelope, record every answer, and only then forget the envelope."""
        try:
            answers = self.retry.execute_with_retry_sync(
                RetryCategory.API_REQUEST,
                f"POST {len(envelope.batch.tiles)} tiles of flight {envelope.batch.flight_id}",
                lambda: self.provider.post_batch(envelope, self._contents(envelope.batch)),
                correlation_id=envelope.batch.flight_id,
                classifier=class_of_error,
            )
        except RetryError as error:
            raise last_error(error) from error
        # Together: were only some recorded when we crash, the envelope could neither be sent again
        # (some of its tiles are acknowledged) nor be left (of others nothing is known).
        acknowledged = [answer.tile_id for answer in answers if answer.status.acknowledged]
        self.tile_metadata_store.mark_uploaded(*acknowledged)
        self.envelopes.close(envelope)
        self.observer.answered(answers, sum(tile.size for tile in envelope.batch.tiles))
        return answers

    def _repeated(self, envelope: SignedEnvelope) -> tuple[PerTileStatus, ...]:
        """Send again what an earlier run left open, if its bytes are still what was signed.

        Where an acknowledgement is recorded the answer had come, and only to forget the envelope
        was left. A tile that was replaced or is gone makes other bytes: they must not go out under
        this key. Then the envelope is dropped, and what waits is signed anew.
        """
        if self._is_answered(envelope.batch):
            self.envelopes.close(envelope)
            return ()
        try:
            is_same = self._body_sha256(envelope.batch) == envelope.body_sha256
        except (TileNotFoundError, DamagedTileError):
            is_same = False
        if is_same:
            return self._sent(envelope)
        self.logger.warning(
            "an upload of flight %s that was left open cannot be repeated: its tiles have changed",
            envelope.batch.flight_id,
            extra={"kind": "c11.upload.envelope_dropped", "flight_id": envelope.batch.flight_id},
        )
        self.envelopes.close(envelope)
        return ()

    def _is_answered(self, batch: Batch) -> bool:
        found = (self.tile_metadata_store.get_metadata(tile.tile_id) for tile in batch.tiles)
        return any(
            row is not None and row.voting_status is not VotingStatus.PENDING for row in found
        )

    def _contents(self, batch: Batch) -> Iterator[bytes]:
        return (self.tile_store.read_tile(tile.tile_id) for tile in batch.tiles)

    def _body_sha256(self, batch: Batch) -> str:
        digest = sha256()
        for piece in batch.body(self._contents(batch)):
            digest.update(piece)
        return digest.hexdigest()

    @staticmethod
    def _note(statuses: dict[TileId, PerTileStatus], answers: tuple[PerTileStatus, ...]) -> None:
        for answer in answers:
            statuses[answer.tile_id] = answer
