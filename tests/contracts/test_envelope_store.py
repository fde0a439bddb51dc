"""What every EnvelopeStore must do."""

from datetime import UTC, datetime

import pytest
from attrs import evolve, frozen
from sqlalchemy import text
from support.envelopes import create_tile, make_envelope

from tileferry.adapters.memory import MemoryEnvelopeStore, MemoryTileMetadataStore
from tileferry.adapters.postgres import (
    Database,
    PostgresBlobIndex,
    PostgresEnvelopeStore,
    PostgresTileMetadataStore,
)
from tileferry.adapters.system import SystemClock
from tileferry.application.ports.tiles import TileMetadataStore
from tileferry.application.ports.uploads import EnvelopeStore
from tileferry.domain.errors import (
    DatabaseError,
    IdempotencyConflictError,
    TileManagerError,
    TileNotFoundError,
)
from tileferry.domain.tiles import (
    BlobRef,
    NewTile,
    SectorClass,
    TileId,
    VotingStatus,
)


@frozen
class EnvelopeEnv:
    """A store, and the metadata of the tiles that are pending beside it."""

    store: EnvelopeStore
    metadata: TileMetadataStore

    def capture(self, *numbers: int) -> list[TileId]:
        for number in numbers:
            self.metadata.insert_metadata(
                NewTile(
                    tile_id=create_tile(number),
                    flight_id="F1",
                    produced_at=datetime(2026, 10, 20, tzinfo=UTC),
                    resolution_m_per_px=0.6,
                    sector_class=SectorClass.STABLE_REAR,
                    blob=BlobRef(location=(1, number), length=3, sha256="ab" * 32),
                    voting_status=VotingStatus.PENDING,
                )
            )
        self.metadata.flush()
        return [create_tile(number) for number in numbers]

    def list_pending(self) -> list[int]:
        return [tile.tile_id.x for tile in self.metadata.pending_uploads("F1")]

    def list_open(self) -> list[str]:
        return [each.batch.key for each in self.store.list_open_envelopes("F1")]


@pytest.fixture(params=["memory", "postgres"])
def envelope_env(request: pytest.FixtureRequest) -> EnvelopeEnv:
    clock = SystemClock()
    if request.param == "memory":
        metadata = MemoryTileMetadataStore(clock=clock)
        return EnvelopeEnv(MemoryEnvelopeStore(metadata), metadata)
    database: Database = request.getfixturevalue("database")
    return EnvelopeEnv(
        PostgresEnvelopeStore(database), PostgresTileMetadataStore(database=database, clock=clock)
    )


@pytest.fixture
def store(envelope_env: EnvelopeEnv) -> EnvelopeStore:
    return envelope_env.store


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
    assert [tile.blob for tile in found.batch.tiles] == [tile.blob for tile in made.batch.tiles]


def test_location_may_be_unknown(store: EnvelopeStore) -> None:
    made = make_envelope("k")
    tiles = [evolve(tile, location=None) for tile in made.batch.tiles]
    store.save(evolve(made, batch=evolve(made.batch, tiles=tiles)))
    (found,) = store.list_open_envelopes("F1")
    assert [tile.blob for tile in found.batch.tiles] == [None] * 3


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


def test_exchange_records_an_answer_and_stores_the_next_envelope(
    envelope_env: EnvelopeEnv,
) -> None:
    first, second, third = make_envelope("k1"), make_envelope("k2", tiles=6), make_envelope("k3")
    tiles = envelope_env.capture(1, 2, 3, 4, 5)
    store = envelope_env.store
    store.save(first)
    store.exchange(first, tiles[:2], second, uncounted=())
    assert (envelope_env.list_pending(), envelope_env.list_open()) == ([3, 4, 5], ["k2"])
    store.exchange(second, tiles[2:3], third, uncounted=tiles[3:])
    assert (envelope_env.list_pending(), envelope_env.list_open()) == ([4, 5], ["k2", "k3"])
    kept, stored = store.list_open_envelopes("F1")
    assert (kept, stored) == (second, third)
    assert [tile.is_rejected for tile in kept.batch.tiles] == [False] * 4 + [True] * 2
    assert [tile.is_rejected for tile in stored.batch.tiles] == [None] * 3
    store.exchange(third, [], None, uncounted=())
    assert (envelope_env.list_pending(), envelope_env.list_open()) == ([4, 5], ["k2"])


def test_exchange_can_be_repeated(envelope_env: EnvelopeEnv) -> None:
    first, second = make_envelope("k1"), make_envelope("k2")
    tiles = envelope_env.capture(1, 2)
    envelope_env.store.save(first)
    for _ in range(2):
        envelope_env.store.exchange(first, tiles, second, uncounted=())
    assert (envelope_env.list_pending(), envelope_env.list_open()) == ([], ["k2"])


@pytest.mark.parametrize("refusal", ["missing tile", "given up tile", "known key"])
def test_refused_exchange_changes_nothing(envelope_env: EnvelopeEnv, refusal: str) -> None:
    first, second = make_envelope("k1"), make_envelope("k2")
    tiles = envelope_env.capture(1, 2, 3)
    error: type[TileManagerError] = TileManagerError
    envelope_env.store.save(first)
    if refusal == "missing tile":
        tiles.append(create_tile(9))
        error = TileNotFoundError
    elif refusal == "given up tile":
        envelope_env.metadata.update_voting_status(tiles[2], VotingStatus.UPLOAD_GIVEUP)
    else:
        envelope_env.store.save(evolve(second, body_sha256="0" * 64))
        error = IdempotencyConflictError
    before = envelope_env.list_pending(), envelope_env.list_open()
    with pytest.raises(error):
        envelope_env.store.exchange(first, tiles, second, uncounted=())
    assert (envelope_env.list_pending(), envelope_env.list_open()) == before


@pytest.mark.parametrize("column", ["body_sha256", "public_key", "signature"])
def test_database_rejects_truncated_envelope_columns(database: Database, column: str) -> None:
    PostgresEnvelopeStore(database).save(make_envelope("k"))
    cut = text(f"UPDATE upload_envelopes SET {column} = substr({column}, 2)")  # noqa: S608  # ours
    with pytest.raises(DatabaseError, match="upload_envelopes_"), database.transaction() as tx:
        tx.execute(cut)


def test_invariant_8_open_envelopes_keep_their_segments(database: Database) -> None:
    """Compaction asks the index in Postgres; bytes in memory are not compacted."""
    store, index = PostgresEnvelopeStore(database), PostgresBlobIndex(database)
    made = make_envelope("a")
    segments = (4, 9, 4)
    tiles = [
        evolve(tile, location=(segment, 70 + segment))
        for tile, segment in zip(made.batch.tiles, segments, strict=True)
    ]
    store.save(evolve(made, batch=evolve(made.batch, tiles=tiles)))
    unlocated = [evolve(tile, location=None) for tile in made.batch.tiles]
    store.save(evolve(made, batch=evolve(made.batch, key="b", tiles=unlocated)))
    assert sorted(index.list_envelope_segments()) == [4, 9]
    for envelope in store.list_open_envelopes("F1"):
        store.close(envelope)
    assert index.list_envelope_segments() == []
