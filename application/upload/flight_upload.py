"""Upload a flight in signed batches, each stored until its answer is recorded.

The write order is safe against crashes. An envelope is durable before its first byte is sent, and
each answer is recorded before the envelope is closed. An envelope left open by a crash is sent
again with the same key, bytes and signature, and the provider returns the same answer.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from hashlib import sha256
from logging import Logger
from typing import TypeVar

from attrs import define, evolve, field, frozen, validators

from tileferry.application.download.provider_calls import unwrap_retry_error
from tileferry.application.ports.cache import CacheLock
from tileferry.application.ports.clock import Background, Clock, Task
from tileferry.application.ports.progress import NULL_LISTENER, BatchAnswered, ProgressListener
from tileferry.application.ports.tiles import TileMetadataStore, TileStore
from tileferry.application.ports.uploads import (
    EnvelopeStore,
    FlightRecords,
    SigningKeys,
    SigningSession,
    UploadProvider,
)
from tileferry.application.retries.manager import RetryManager
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
    TileStatuses,
    TileUploadStatus,
    UploadBatchReport,
    UploadRequest,
    VotingStatus,
    build_damaged_attempt,
    build_signing_input,
    classify_provider_error,
)
from tileferry.domain.validation import integer

Item = TypeVar("Item")


def prefetch_one(
    items: Iterator[Item], background: Background | None
) -> Generator[Item, None, None]:
    """Yield items; with a ``background``, each is made there while the previous one is used.

    At most one item is ahead. An item's error is raised when its turn comes. A caller that stops
    early must close the generator; once closed, nothing runs in the background.
    """
    if background is None:
        yield from items
        return
    made, task = _begin_next(items, background)
    try:
        while True:
            error = task.exception()
            if error is not None:
                raise error
            if not made:
                return
            item = made.pop()
            made, task = _begin_next(items, background)
            yield item
    finally:
        task.exception()


def _begin_next(items: Iterator[Item], background: Background) -> tuple[list[Item], Task]:
    made: list[Item] = []

    def make() -> None:
        for item in items:
            made.append(item)
            return

    return made, background.submit(make)


KEPT_BYTES_MAX = 16 * 1024 * 1024
"""Batches up to this size stay in memory from signing until the answer."""
NOT_SENT = "not sent, the cache cannot read it"
NOT_COUNTED = "rejected before a crash, which took the reason with it"


@frozen(kw_only=True)
class UploadSettings:
    """The limits of a batch and of a tile's attempts."""

    batch_tiles_max: int = field(default=100, validator=integer(1, BATCH_TILES_MAX))
    batch_bytes_max: int = field(default=16 * 1024 * 1024, validator=integer(1))
    attempts_max: int | None = field(default=None, validator=validators.optional(integer(1)))
    """Maximum number of rejections of a tile; requires a caller that counts them."""


@define(kw_only=True)
class FlightUpload:
    """The use case. Requires the cache's lock: two uploads at once would send the same tiles."""

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
    progress: ProgressListener = NULL_LISTENER
    background: Background | None = None
    """Signs and stores the next batch while the current one is sent."""
    _uncounted: list[SignedEnvelope] = field(factory=list, init=False)
    """Answered envelopes with uncounted rejections; they stay in the store in case of a crash."""

    def confirm_flight_state(self) -> None:
        """Refuse unless the aircraft is on the ground."""
        self.flight_records.get_current().check_on_ground()

    def enumerate_pending_tiles(self, flight_id: str) -> Iterator[TileMetadata]:
        """Yield the pending tiles without sending them."""
        return self.tile_metadata_store.pending_uploads(flight_id)

    def upload_pending_tiles(self, request: UploadRequest) -> UploadBatchReport:
        """Send the pending tiles; envelopes that an earlier run left open are sent first,
        unchanged.
        """
        self.lock.check_held()
        flight_id = request.flight_id
        self.flight_records.get_current().check_on_ground(flight_id)
        repeated: dict[TileId, PerTileStatus] = {}
        for envelope in self.envelopes.list_open_envelopes(flight_id):
            repeated |= {answer.tile_id: answer for answer in self._repeat(envelope)}
        refused = {tile for tile, answer in repeated.items() if not answer.status.acknowledged}
        # Repeated tiles are either rejected or no longer pending, so no tile is reported twice.
        statuses = TileStatuses(repeated.values())
        unreadable: list[PerTileStatus] = []
        with self.keys.open_session() as key:
            outgoing = self._prepare_batches(flight_id, refused, key, unreadable)
            with closing(prefetch_one(outgoing, self.background)) as batches:
                for envelope, contents in batches:
                    statuses.extend(self._send(envelope, contents))
        statuses.extend(unreadable)
        return UploadBatchReport.from_statuses(flight_id, statuses)

    def close_counted(self) -> None:
        """Close the envelopes whose rejections have been counted."""
        while self._uncounted:
            self.envelopes.close(self._uncounted.pop())

    # Steps

    def _prepare_batches(
        self,
        flight_id: str,
        refused: set[TileId],
        session: SigningSession,
        unreadable: list[PerTileStatus],
    ) -> Iterator[tuple[SignedEnvelope, Sequence[bytes] | None]]:
        """Yield the pending tiles as signed, stored batches, without those just rejected.

        An unreadable tile must not block the others. It stays pending, and a damaged one costs an
        attempt.
        """
        for tiles in self._split_batches(flight_id):
            fresh = [tile for tile in tiles if tile.tile_id not in refused]
            try:
                signed = self._sign(flight_id, fresh, session) if fresh else None
            except (TileNotFoundError, DamagedTileError):
                faults = [(tile, self._find_fault(tile)) for tile in fresh]
                unreadable += [
                    self._build_unreadable(tile, fault) for tile, fault in faults if fault
                ]
                sound = [tile for tile, fault in faults if fault is None]
                signed = self._sign(flight_id, sound, session) if sound else None
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
        return _build_not_sent(tile.tile_id, problem, attempt)

    def _split_batches(self, flight_id: str) -> Iterator[list[TileMetadata]]:
        """Split the pending tiles into batches within the limits; each tile appears once."""
        batch: list[TileMetadata] = []
        size = 0
        for tile in self.tile_metadata_store.pending_uploads(flight_id):
            length = tile.blob.length
            full = len(batch) >= self.settings.batch_tiles_max
            if batch and (full or size + length > self.settings.batch_bytes_max):
                yield batch
                batch, size = [], 0
            batch.append(tile)
            size += length
        if batch:
            yield batch

    def _sign(
        self, flight_id: str, tiles: list[TileMetadata], session: SigningSession
    ) -> tuple[SignedEnvelope, Sequence[bytes] | None]:
        """Sign a batch and store it before it is sent; return its tiles too, if they fit."""
        key = compute_idempotency_key(
            "upload_batch",
            correlation_id=flight_id,
            additional_params={"session": self.retry.new_id()},
        )
        batch = Batch(key=key, flight_id=flight_id, tiles=map(EnvelopeTile.from_metadata, tiles))
        contents: Iterable[bytes] = (
            self.tile_store.read_tile(tile.tile_id, blob=tile.blob) for tile in tiles
        )
        kept = None
        if sum(tile.blob.length for tile in tiles) <= KEPT_BYTES_MAX:
            contents = kept = list(contents)
        timestamp = datetime.fromtimestamp(self.clock.now(), UTC).isoformat()
        body_sha256 = _hash_pieces(self.provider.iter_body(batch, contents))
        message = build_signing_input(
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
        return envelope, kept

    def _send(
        self, envelope: SignedEnvelope, kept: Sequence[bytes] | None = None
    ) -> tuple[PerTileStatus, ...]:
        """Send an envelope, record every answer, and only then close the envelope."""
        try:
            answers = self.retry.execute_with_retry_sync(
                RetryCategory.API_REQUEST,
                f"POST {len(envelope.batch.tiles)} tiles of flight {envelope.batch.flight_id}",
                lambda: self.provider.post_batch(
                    envelope, kept or self._read_contents(envelope.batch)
                ),
                correlation_id=envelope.batch.flight_id,
                classifier=classify_provider_error,
            )
        except RetryError as error:
            raise unwrap_retry_error(error) from error
        # Record all answers together. If a crash left only some recorded, the envelope could
        # neither be sent again (some tiles are acknowledged) nor be closed (other answers are
        # unknown).
        acknowledged = [answer.tile_id for answer in answers if answer.status.acknowledged]
        self.tile_metadata_store.mark_uploaded(*acknowledged)
        self._close_when_counted(envelope, is_clean=len(acknowledged) == len(answers))
        size_bytes = sum(tile.size for tile in envelope.batch.tiles)
        self.progress(BatchAnswered(answers=answers, size_bytes=size_bytes))
        key = envelope.batch.key
        return tuple(
            answer if answer.status.acknowledged else evolve(answer, attempt=key)
            for answer in answers
        )

    def _close_when_counted(self, envelope: SignedEnvelope, *, is_clean: bool) -> None:
        if is_clean or self.settings.attempts_max is None:
            self.envelopes.close(envelope)
        else:
            self._uncounted.append(envelope)

    def _repeat(self, envelope: SignedEnvelope) -> tuple[PerTileStatus, ...]:
        """Send an envelope that an earlier run left open, if its bytes still match the signature.

        If an acknowledgement is recorded, the answer had arrived: tiles still pending were
        rejected, possibly without being counted. If a tile was replaced or removed, the bytes
        differ and must not be sent under this key; the envelope is closed, and the pending tiles
        are signed again.
        """
        rows = [
            self.tile_metadata_store.get_metadata(tile.tile_id) for tile in envelope.batch.tiles
        ]
        if any(row is not None and row.voting_status is not VotingStatus.PENDING for row in rows):
            return self._report_earlier_rejections(envelope, rows)
        try:
            body = self.provider.iter_body(envelope.batch, self._read_contents(envelope.batch))
            is_same = _hash_pieces(body) == envelope.body_sha256
        except (TileNotFoundError, DamagedTileError) as fault:
            if isinstance(fault, DamagedTileError) and fault.is_store_lost:
                return self._report_unreadable(envelope, fault)
            is_same = False
        if is_same:
            return self._send(envelope)
        self.logger.warning(
            "an upload of flight %s that was left open cannot be repeated: its tiles have changed",
            envelope.batch.flight_id,
            extra={"kind": "c11.upload.envelope_dropped", "flight_id": envelope.batch.flight_id},
        )
        # A tile whose last attempt was counted, but not its giveup, must not be charged again.
        spent = [row for row in rows if row is not None and self._is_spent(row)]
        return self._report_earlier_rejections(envelope, spent)

    def _is_spent(self, row: TileMetadata) -> bool:
        """Return whether all attempts of a tile are counted; a later capture gets no others."""
        limit = self.settings.attempts_max
        return limit is not None and row.upload_attempts >= limit

    def _report_unreadable(
        self, envelope: SignedEnvelope, fault: DamagedTileError
    ) -> tuple[PerTileStatus, ...]:
        """Return the tiles of an envelope that stays open: its bytes may come back with the disk.

        Signed again under another key, tiles that the provider may have would not be repeats.
        """
        return tuple(_build_not_sent(tile.tile_id, fault.problem) for tile in envelope.batch.tiles)

    def _report_earlier_rejections(
        self, envelope: SignedEnvelope, rows: Sequence[TileMetadata | None]
    ) -> tuple[PerTileStatus, ...]:
        """Return the tiles that the earlier answer rejected; nothing is sent."""
        sent = {tile.tile_id: tile.sha256 for tile in envelope.batch.tiles}
        rejected = tuple(
            _build_rejected(row.tile_id, NOT_COUNTED, envelope.batch.key)
            for row in rows
            if row is not None
            and row.voting_status is VotingStatus.PENDING
            and (row.blob.sha256 == sent[row.tile_id] or self._is_spent(row))
        )
        self._close_when_counted(envelope, is_clean=not rejected)
        return rejected if self.settings.attempts_max is not None else ()

    def _read_contents(self, batch: Batch) -> Iterator[bytes]:
        return (self.tile_store.read_tile(tile.tile_id) for tile in batch.tiles)


def _build_not_sent(tile_id: TileId, problem: str, attempt: str | None = None) -> PerTileStatus:
    return PerTileStatus(
        tile_id=tile_id,
        status=TileUploadStatus.UNREADABLE,
        reason=f"{NOT_SENT}: {problem}",
        attempt=attempt,
    )


def _build_rejected(tile_id: TileId, reason: str, attempt: str) -> PerTileStatus:
    return PerTileStatus(
        tile_id=tile_id, status=TileUploadStatus.REJECTED, reason=reason, attempt=attempt
    )


def _hash_pieces(pieces: Iterable[bytes]) -> str:
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
