"""What every EnvelopeStore must do."""

from datetime import UTC, datetime
from hashlib import sha256

import pytest
from attrs import evolve
from sqlalchemy import text

from tileferry.adapters.memory import MemoryEnvelopeStore
from tileferry.adapters.postgres import Database, PostgresEnvelopeStore
from tileferry.application.ports.uploads import EnvelopeStore
from tileferry.domain.errors import DatabaseError, IdempotencyConflictError
from tileferry.domain.tiles import Batch, EnvelopeTile, SignedEnvelope, TileId


@pytest.fixture(params=["memory", "postgres"])
def store(request: pytest.FixtureRequest) -> EnvelopeStore:
    if request.param == "memory":
        return MemoryEnvelopeStore()
    database: Database = request.getfixturevalue("database")
    return PostgresEnvelopeStore(database)


def make_envelope(key: str, *, flight_id: str = "F1", tiles: int = 3) -> SignedEnvelope:
    lines = [
        EnvelopeTile(
            tile_id=TileId(source="cam", zoom=15, x=number, y=7),
            captured_at=datetime(2026, 10, 20, 8, 30, 1, 5, tzinfo=UTC),
            resolution_m_per_px=0.1 + 0.2,
            sha256=sha256(bytes([number])).hexdigest(),
            size=number,
        )
        for number in range(tiles)
    ]
    return SignedEnvelope(
        batch=Batch(key=key, flight_id=flight_id, tiles=lines),
        body_sha256=sha256(key.encode()).hexdigest(),
        timestamp="2026-10-20T10:00:00.000001+00:00",
        public_key=bytes(range(32)),
        signature=bytes(range(64)),
    )


def test_saved_envelopes_stay_open_in_order_until_closed(
    store: EnvelopeStore,
) -> None:
    made = [make_envelope(key) for key in ("k3", "k1", "k2")]
    for each in made:
        store.save(each)
    store.save(make_envelope("other", flight_id="F2"))
    assert list(store.list_open_envelopes("F1")) == made
    store.close(made[1])
    store.close(made[1])
    assert list(store.list_open_envelopes("F1")) == [made[0], made[2]]
    assert list(store.list_open_envelopes("F3")) == []


def test_signed_bytes_are_preserved(store: EnvelopeStore) -> None:
    made = make_envelope("k")
    store.save(made)
    (found,) = store.list_open_envelopes("F1")
    assert found.batch.manifest == made.batch.manifest
    assert found.batch == made.batch


def test_invariant_8_same_key_with_different_body_is_rejected(store: EnvelopeStore) -> None:
    made = make_envelope("k")
    store.save(made)
    store.save(made)
    for other in (
        evolve(made, body_sha256="0" * 64),
        evolve(made, signature=bytes(64)),
        make_envelope("k", tiles=2),
        make_envelope("k", flight_id="F2"),
    ):
        with pytest.raises(IdempotencyConflictError, match="k"):
            store.save(other)
    assert list(store.list_open_envelopes("F1")) == [made]


@pytest.mark.parametrize("column", ["body_sha256", "public_key", "signature"])
def test_database_rejects_truncated_envelope_columns(database: Database, column: str) -> None:
    PostgresEnvelopeStore(database).save(make_envelope("k"))
    cut = text(f"UPDATE upload_envelopes SET {column} = substr({column}, 2)")  # noqa: S608  # ours
    with pytest.raises(DatabaseError, match="upload_envelopes_"), database.transaction() as tx:
        tx.execute(cut)
