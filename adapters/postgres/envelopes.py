"""Signed upload batches, stored in Postgres until their results are recorded."""

from collections.abc import Collection, Sequence

from attrs import frozen
from sqlalchemy import RowMapping, select

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.engine import begin_in_pipeline
from tileferry.adapters.postgres.patience import repeat_when_lost
from tileferry.adapters.postgres.schema import upload_envelopes
from tileferry.adapters.postgres.tile_index import LOCK_TILES, MARK_HELD, id_columns
from tileferry.adapters.postgres.tile_metadata import check_uploaded
from tileferry.domain.errors import IdempotencyConflictError
from tileferry.domain.tiles import Batch, BlobLocation, SignedEnvelope, TileId


@frozen
class PostgresEnvelopeStore:
    """Stores an envelope as a row; the tiles' bytes stay in the cache."""

    database: Database

    @repeat_when_lost
    def save(self, envelope: SignedEnvelope) -> None:
        """Store an envelope; raise if its key already exists with different content."""
        if self.database.change(_SAVE, _to_row(envelope)) is None:
            self._check_known(envelope)

    @repeat_when_lost
    def exchange(
        self,
        answered: SignedEnvelope,
        acknowledged: Sequence[TileId],
        following: SignedEnvelope | None,
        *,
        uncounted: Collection[TileId],
    ) -> None:
        """Mark the tiles as uploaded, delete or keep the answered envelope, store the next one.

        It is one transaction of two round trips.
        """
        values = {
            **id_columns(acknowledged),
            "answered": None if uncounted else answered.batch.key,
            "kept": answered.batch.key if uncounted else None,
            "rejected": [tile.tile_id in uncounted for tile in answered.batch.tiles],
        }
        if following is not None:
            values |= _to_row(following)
        with self.database.transaction(begins_itself=True) as connection:
            with begin_in_pipeline(connection) as driver:
                done = driver.execute(_RECORD_LAST if following is None else _EXCHANGE, values)
            ((marked, saved),) = done.fetchall()
            if marked < len(acknowledged):
                check_uploaded(connection, acknowledged)
            if following is not None and not saved:
                self._check_known(following)

    def _check_known(self, envelope: SignedEnvelope) -> None:
        """Raise unless the envelope is stored."""
        key = envelope.batch.key
        known = select(upload_envelopes).where(upload_envelopes.c.key == key)
        with self.database.read_connection() as connection:
            kept = _envelope_from_row(connection.execute(known).mappings().one())
        if kept != envelope:
            raise IdempotencyConflictError(
                key=key,
                recorded_fingerprint=kept.body_sha256,
                offered_fingerprint=envelope.body_sha256,
            )

    @repeat_when_lost
    def list_open_envelopes(self, flight_id: str) -> Sequence[SignedEnvelope]:
        """Return the open envelopes of a flight, oldest first."""
        query = (
            select(upload_envelopes)
            .where(upload_envelopes.c.flight_id == flight_id)
            .order_by(upload_envelopes.c.number)
        )
        with self.database.read_connection() as connection:
            return [_envelope_from_row(row) for row in connection.execute(query).mappings()]

    def close(self, envelope: SignedEnvelope) -> None:
        """Delete an envelope."""
        self.database.change(_CLOSE, {"key": envelope.batch.key})


_COLUMNS = "key, flight_id, manifest, body_sha256, signed_at, public_key, signature, locations"
_VALUES = ", ".join(f"%({name})s" for name in _COLUMNS.split(", "))
_SAVE = (
    f"INSERT INTO upload_envelopes ({_COLUMNS}) VALUES ({_VALUES})"  # noqa: S608  # interpolates constants only, here and below
    " ON CONFLICT (key) DO NOTHING RETURNING key"
)
_CLOSE = "DELETE FROM upload_envelopes WHERE key = %(key)s RETURNING key"
_RECORD = (
    f"{LOCK_TILES}, marked AS ({MARK_HELD} RETURNING 1),"  # noqa: S608
    " closed AS (DELETE FROM upload_envelopes WHERE key = %(answered)s),"
    " kept AS (UPDATE upload_envelopes SET rejected = %(rejected)s WHERE key = %(kept)s)"
)
_RECORD_LAST = f"{_RECORD} SELECT count(*), 0 FROM marked"  # noqa: S608
_EXCHANGE = (
    f"{_RECORD}, saved AS ({_SAVE})"  # noqa: S608
    " SELECT (SELECT count(*) FROM marked), (SELECT count(*) FROM saved)"
)


def _to_row(envelope: SignedEnvelope) -> dict[str, object]:
    return {
        "key": envelope.batch.key,
        "flight_id": envelope.batch.flight_id,
        "manifest": envelope.batch.manifest,
        "body_sha256": bytes.fromhex(envelope.body_sha256),
        "signed_at": envelope.timestamp,
        "public_key": envelope.public_key,
        "signature": envelope.signature,
        "locations": _to_numbers(envelope.batch),
    }


def _to_numbers(batch: Batch) -> list[int] | None:
    """Return the locations of the tiles as pairs of numbers, one after the other."""
    places = [tile.location for tile in batch.tiles if tile.location is not None]
    if len(places) < len(batch.tiles):
        return None
    return [number for place in places for number in place]


def _to_locations(numbers: Sequence[int] | None) -> Sequence[BlobLocation] | None:
    return None if numbers is None else list(zip(numbers[::2], numbers[1::2], strict=True))


def _envelope_from_row(row: RowMapping) -> SignedEnvelope:
    return SignedEnvelope(
        batch=Batch.parse(
            row["key"], bytes(row["manifest"]), _to_locations(row["locations"]), row["rejected"]
        ),
        body_sha256=bytes(row["body_sha256"]).hex(),
        timestamp=row["signed_at"],
        public_key=bytes(row["public_key"]),
        signature=bytes(row["signature"]),
    )
