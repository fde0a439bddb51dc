"""Upload a flight in signed batches, each stored until its answer is recorded.

The write order is safe against crashes. An envelope is durable before its first byte is sent, and
each answer is recorded before the envelope is closed. An envelope left open by a crash is sent
again with the same key, bytes and signature, and the provider returns the same answer.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from logging import Logger

from attrs import define, evolve, field, frozen

from tileferry.application.download.provider_calls import unwrap_retry_error
from tileferry.application.ports.cache import CacheLock
from tileferry.application.ports.clock import Background, Clock
from tileferry.application.ports.progress import NULL_LISTENER, BatchAnswered, ProgressListener
from tileferry.application.ports.tiles import TileMetadataStore, TileStore
from tileferry.application.ports.uploads import (
    EnvelopeStore,
    FlightRecords,
    SigningKeys,
    UploadProvider,
)
from tileferry.application.retries.manager import RetryManager
from tileferry.application.upload.batch_signing import (
    BatchSigner,
    SignedBatch,
    UploadSettings,
    build_not_sent,
    hash_pieces,
)
from tileferry.application.upload.side_task import SideTask
from tileferry.domain.errors import DamagedTileError, RetryError, TileNotFoundError
from tileferry.domain.retry import RetryCategory
from tileferry.domain.tiles import (
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
    classify_provider_error,
)


@frozen
class AnsweredBatch:
    """A batch, the answers for its tiles, and how long it took."""

    envelope: SignedEnvelope
    answers: tuple[PerTileStatus, ...]
    took_s: float


SLOW_S = 1.0
"""The answers of a batch that took this long are recorded before the next one is sent.

That costs little then, and the operator sees the progress at once.
"""
NOT_COUNTED = "rejected before a crash, which took the reason with it"


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
    """Signs the next batch and records the last answers while a batch is sent."""
    _recorded: list[AnsweredBatch] = field(factory=list, init=False)
    """Batches whose answers are recorded, but not reported yet."""
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
        self._recorded.clear()
        repeated: dict[TileId, PerTileStatus] = {}
        for envelope in self.envelopes.list_open_envelopes(flight_id):
            repeated |= {answer.tile_id: answer for answer in self._repeat(envelope)}
        refused = {tile for tile, answer in repeated.items() if not answer.status.acknowledged}
        # Repeated tiles are either rejected or no longer pending, so no tile is reported twice.
        statuses = TileStatuses(repeated.values())
        signer = BatchSigner(
            flight_id=flight_id,
            refused=refused,
            provider=self.provider,
            tile_store=self.tile_store,
            tile_metadata_store=self.tile_metadata_store,
            settings=self.settings,
            clock=self.clock,
            new_id=self.retry.new_id,
        )
        with self.keys.open_session() as key:
            self._send_batches(signer.iter_signed(key), statuses)
        statuses.extend(signer.unreadable)
        return UploadBatchReport.from_statuses(flight_id, statuses)

    def close_counted(self) -> None:
        """Close the envelopes whose rejections have been counted."""
        while self._uncounted:
            self.envelopes.close(self._uncounted.pop())

    # Steps

    def _send_batches(self, signed: Iterator[SignedBatch], statuses: TileStatuses) -> None:
        """Send batches one after the other.

        While one is sent, the background signs the next one and records the answers before.
        """
        answered: AnsweredBatch | None = None
        batch = self._advance(signed, None)
        try:
            while batch is not None:
                unrecorded, answered = answered, None
                step = SideTask.start(partial(self._advance, signed, unrecorded), self.background)
                try:
                    if unrecorded is not None and unrecorded.took_s >= SLOW_S:
                        step.get_result()
                        statuses.extend(self._report_recorded())
                    answered = self._post(batch)
                finally:
                    batch = None  # its tiles need not be in memory any more
                    batch = step.get_result()
                statuses.extend(self._report_recorded())
        finally:
            if answered is not None:
                self._record(answered, None)
            statuses.extend(self._report_recorded())

    def _advance(
        self, signed: Iterator[SignedBatch], answered: AnsweredBatch | None
    ) -> SignedBatch | None:
        """Record the last answers, and return the next batch, signed and stored."""
        try:
            batch = next(signed, None)
        except BaseException:
            self._record(answered, None)
            raise
        self._record(answered, batch)
        return batch

    def _post(self, batch: SignedBatch) -> AnsweredBatch:
        """Send a stored batch."""
        envelope, began_s = batch.envelope, self.clock.monotonic()
        try:
            answers = self.retry.execute_with_retry_sync(
                RetryCategory.API_REQUEST,
                f"POST {len(envelope.batch.tiles)} tiles of flight {envelope.batch.flight_id}",
                lambda: self.provider.post_batch(
                    envelope, batch.contents or self._read_contents(envelope.batch)
                ),
                correlation_id=envelope.batch.flight_id,
                classifier=classify_provider_error,
            )
        except RetryError as error:
            raise unwrap_retry_error(error) from error
        return AnsweredBatch(envelope, answers, self.clock.monotonic() - began_s)

    def _record(self, answered: AnsweredBatch | None, following: SignedBatch | None) -> None:
        """Record all answers of a batch, close its envelope, and store the following one.

        If a crash left only some answers recorded, the envelope could neither be sent again (some
        tiles are acknowledged) nor be closed (other answers are unknown).
        """
        stored = None if following is None else following.envelope
        if answered is None:
            if stored is not None:
                self.envelopes.save(stored)
            return
        acknowledged = [one.tile_id for one in answered.answers if one.status.acknowledged]
        rejected = {one.tile_id for one in answered.answers if not one.status.acknowledged}
        uncounted = rejected if self._is_uncounted(is_clean=not rejected) else set()
        self.envelopes.exchange(answered.envelope, acknowledged, stored, uncounted=uncounted)
        if uncounted:
            self._uncounted.append(answered.envelope)
        self._recorded.append(answered)

    def _report_recorded(self) -> list[PerTileStatus]:
        """Tell the listener which answers were recorded, and return them."""
        statuses: list[PerTileStatus] = []
        while self._recorded:
            answered = self._recorded.pop(0)
            batch, answers = answered.envelope.batch, answered.answers
            size_bytes = sum(tile.size for tile in batch.tiles)
            self.progress(BatchAnswered(answers=answers, size_bytes=size_bytes))
            statuses += [
                answer if answer.status.acknowledged else evolve(answer, attempt=batch.key)
                for answer in answers
            ]
        return statuses

    def _is_uncounted(self, *, is_clean: bool) -> bool:
        """Return whether an answered envelope stays open until its rejections are counted."""
        return not is_clean and self.settings.attempts_max is not None

    def _repeat(self, envelope: SignedEnvelope) -> Sequence[PerTileStatus]:
        """Send an envelope that an earlier run left open, if its bytes still match the signature.

        If an acknowledgement is recorded, the answer had arrived: tiles still pending were
        rejected, possibly without being counted. If a tile was replaced or removed, the bytes
        differ and must not be sent under this key, unless the older ones are still in the cache.
        Otherwise the envelope is closed, and the pending tiles are signed again.
        """
        rows = [
            self.tile_metadata_store.get_metadata(tile.tile_id) for tile in envelope.batch.tiles
        ]
        is_answered = any(tile.is_rejected is not None for tile in envelope.batch.tiles)
        if is_answered or any(
            row is not None and row.voting_status is not VotingStatus.PENDING for row in rows
        ):
            return self._report_earlier_rejections(envelope, rows)
        try:
            body = self.provider.iter_body(envelope.batch, self._read_contents(envelope.batch))
            is_same = hash_pieces(body) == envelope.body_sha256
        except (TileNotFoundError, DamagedTileError) as fault:
            if isinstance(fault, DamagedTileError) and fault.is_store_lost:
                return self._report_unreadable(envelope, fault)
            is_same = False
        if is_same and None not in rows:
            self._record(self._drop_replaced(self._post(SignedBatch(envelope, None)), rows), None)
            return self._report_recorded()
        self.logger.warning(
            "an upload of flight %s that was left open cannot be repeated: its tiles have changed",
            envelope.batch.flight_id,
            extra={"kind": "c11.upload.envelope_dropped", "flight_id": envelope.batch.flight_id},
        )
        # A tile whose last attempt was counted, but not its giveup, must not be charged again.
        spent = [row for row in rows if row is not None and self._is_spent(row)]
        return self._report_earlier_rejections(envelope, spent)

    @staticmethod
    def _drop_replaced(
        answered: AnsweredBatch, rows: Sequence[TileMetadata | None]
    ) -> AnsweredBatch:
        """Leave out acknowledgements of tiles that were captured again: they are sent as well."""
        current = {row.tile_id: row.blob.sha256 for row in rows if row is not None}
        sent = {tile.tile_id: tile.sha256 for tile in answered.envelope.batch.tiles}
        answers = tuple(
            answer
            for answer in answered.answers
            if not answer.status.acknowledged or current[answer.tile_id] == sent[answer.tile_id]
        )
        return AnsweredBatch(answered.envelope, answers, answered.took_s)

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
        return tuple(build_not_sent(tile.tile_id, fault.problem) for tile in envelope.batch.tiles)

    def _report_earlier_rejections(
        self, envelope: SignedEnvelope, rows: Sequence[TileMetadata | None]
    ) -> tuple[PerTileStatus, ...]:
        """Return the tiles that the earlier answer rejected; nothing is sent."""
        sent = {tile.tile_id: tile for tile in envelope.batch.tiles}
        rejected = tuple(
            _build_rejected(row.tile_id, NOT_COUNTED, envelope.batch.key)
            for row in rows
            if row is not None
            and row.voting_status is VotingStatus.PENDING
            and self._was_rejected(row, sent[row.tile_id])
        )
        if self._is_uncounted(is_clean=not rejected):
            self._uncounted.append(envelope)
        else:
            self.envelopes.close(envelope)
        return rejected if self.settings.attempts_max is not None else ()

    def _was_rejected(self, row: TileMetadata, sent: EnvelopeTile) -> bool:
        """Return whether an answer that arrived rejected a tile that is pending."""
        if sent.is_rejected is not None:
            return sent.is_rejected
        return row.blob.sha256 == sent.sha256 or self._is_spent(row)

    def _read_contents(self, batch: Batch) -> Iterator[bytes]:
        return (self.tile_store.read_tile(tile.tile_id, blob=tile.blob) for tile in batch.tiles)


def _build_rejected(tile_id: TileId, reason: str, attempt: str) -> PerTileStatus:
    return PerTileStatus(
        tile_id=tile_id, status=TileUploadStatus.REJECTED, reason=reason, attempt=attempt
    )
