"""A connection that is lost while committing: the server is asked, nothing is assumed."""

import threading
from collections.abc import Callable

import pytest
from attrs import evolve
from sqlalchemy import text
from support.envelopes import make_envelope
from support.proxies import Cut, PostgresProxy
from support.tile_rows import TILE, create_metadata_store, create_tile, get_tile, store_tiles

from tileferry.adapters.postgres import (
    Database,
    PostgresBlobIndex,
    PostgresEnvelopeStore,
    PostgresTileMetadataStore,
)
from tileferry.domain.errors import DatabaseError
from tileferry.domain.tiles import VotingStatus


def _flush(store: PostgresTileMetadataStore) -> None:
    store_tiles(store, create_tile(1))


def _mark_uploaded(store: PostgresTileMetadataStore) -> None:
    store.mark_uploaded(TILE)


def _exchange(store: PostgresTileMetadataStore) -> None:
    envelope = make_envelope("k")
    PostgresEnvelopeStore(store.database).exchange(envelope, [TILE], None, uncounted=())


def _give_up(store: PostgresTileMetadataStore) -> None:
    store.update_voting_status(TILE, VotingStatus.UPLOAD_GIVEUP)


def _increment(store: PostgresTileMetadataStore) -> None:
    assert store.increment_upload_attempts(TILE) == 1


def _forget(store: PostgresTileMetadataStore) -> None:
    assert len(PostgresBlobIndex(store.database).forget([TILE])) == 1


CHANGES = [_flush, _mark_uploaded, _exchange, _give_up, _increment, _forget]
Change = Callable[[PostgresTileMetadataStore], None]


def _read_rows(database: Database) -> list[tuple[object, ...]]:
    columns = "x, voting_status, uploaded_at IS NULL, upload_attempts"
    with database.read_connection() as connection:
        rows = connection.execute(text(f"SELECT {columns} FROM tiles ORDER BY x"))  # noqa: S608
        return [tuple(row) for row in rows]


def test_invariant_10_lost_commit_raises_and_changes_nothing(
    database: Database, proxied_database: Database, proxy: PostgresProxy
) -> None:
    for change in CHANGES:
        store = create_metadata_store(proxied_database)
        PostgresBlobIndex(database).forget([TILE])
        store_tiles(create_metadata_store(database), create_tile())
        before = _read_rows(database)
        proxy.cut_at_commit(Cut.BEFORE_COMMIT)
        with pytest.raises(DatabaseError, match="the connection was lost"):
            change(store)
        assert _read_rows(database) == before
    assert proxy.cuts == len(CHANGES)


def test_invariant_10_commit_with_a_lost_response_applies_exactly_once(
    database: Database, proxied_database: Database, proxy: PostgresProxy
) -> None:
    store, direct = create_metadata_store(proxied_database), create_metadata_store(database)
    for change in CHANGES:
        seen = []
        for through in (direct, store):
            PostgresBlobIndex(database).forget([TILE, create_tile(1).tile_id])
            store_tiles(direct, create_tile())
            if through is store:
                proxy.cut_at_commit(Cut.AFTER_COMMIT)
            change(through)
            seen.append(_read_rows(database))
        assert seen[0] == seen[1]
    assert proxy.cuts == len(CHANGES)


def test_invariant_10_session_still_open_on_the_server_is_terminated(
    database: Database, proxied_database: Database, proxy: PostgresProxy
) -> None:
    store_tiles(create_metadata_store(database), create_tile())
    proxy.cut_at_commit(Cut.UNNOTICED)
    with pytest.raises(DatabaseError, match="the connection was lost"):
        create_metadata_store(proxied_database).increment_upload_attempts(TILE)
    # The row would still be locked, had the other session been left alone.
    assert create_metadata_store(database).increment_upload_attempts(TILE) == 1


def test_invariant_10_unresolvable_commit_raises_an_unknown_outcome(
    database: Database, proxy: PostgresProxy, database_url: str
) -> None:
    store_tiles(create_metadata_store(database), create_tile())
    cut_off = evolve(Database.from_url(proxy.get_proxied_url(database_url)), resolve_s=0.3)
    store = create_metadata_store(cut_off)
    cut_off.engine.connect().close()  # the pool has a connection now
    proxy.cut_at_commit(Cut.AFTER_COMMIT)
    proxy.refuse()
    with pytest.raises(DatabaseError, match="it is unknown whether it took effect") as caught:
        store.increment_upload_attempts(TILE)
    assert "once the server is back" in str(caught.value)
    proxy.refuse(refusing=False)
    assert get_tile(store).upload_attempts == 1
    cut_off.close()


def test_invariant_10_commit_is_resolved_once_the_server_is_back(
    database: Database, proxied_database: Database, proxy: PostgresProxy
) -> None:
    store_tiles(create_metadata_store(database), create_tile())
    store = create_metadata_store(proxied_database)
    proxied_database.engine.connect().close()  # the pool has a connection now
    proxy.cut_at_commit(Cut.AFTER_COMMIT)
    proxy.refuse()
    back = threading.Timer(0.7, lambda: proxy.refuse(refusing=False))
    back.start()
    assert store.increment_upload_attempts(TILE) == 1
    back.join()


def test_invariant_10_flush_with_a_lost_response_is_not_repeated(
    database: Database, proxied_database: Database, proxy: PostgresProxy
) -> None:
    store = create_metadata_store(proxied_database)
    proxy.cut_at_commit(Cut.AFTER_COMMIT)
    store_tiles(store, create_tile())
    get_tile(store)
    PostgresBlobIndex(database).forget([TILE])
    store.flush()
    assert store.get_metadata(TILE) is None


def test_invariant_10_interrupted_flush_succeeds_when_repeated(
    proxied_database: Database, proxy: PostgresProxy
) -> None:
    store, tile = create_metadata_store(proxied_database), create_tile()
    proxy.cut_at_commit(Cut.BEFORE_COMMIT)
    with pytest.raises(DatabaseError):
        store_tiles(store, tile)
    assert store.get_metadata(TILE) is None
    store.flush()
    assert get_tile(store).blob == tile.blob
