"""A connection that is lost while committing: the server is asked, nothing is assumed."""

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import text
from support.postgres_proxy import Cut, PostgresProxy
from support.tile_rows import TILE, known, new_tile, store_in, store_tiles

from tileferry.adapters.postgres import Database, PostgresBlobIndex, PostgresTileMetadataStore
from tileferry.domain.errors import DatabaseError
from tileferry.domain.tiles import VotingStatus


def _flush(store: PostgresTileMetadataStore) -> None:
    store_tiles(store, new_tile(1))


def _mark_uploaded(store: PostgresTileMetadataStore) -> None:
    store.mark_uploaded(TILE)


def _give_up(store: PostgresTileMetadataStore) -> None:
    store.update_voting_status(TILE, VotingStatus.UPLOAD_GIVEUP)


def _increment(store: PostgresTileMetadataStore) -> None:
    assert store.increment_upload_attempts(TILE) == 1


def _forget(store: PostgresTileMetadataStore) -> None:
    assert len(PostgresBlobIndex(store.database).forget([TILE])) == 1


CHANGES = [_flush, _mark_uploaded, _give_up, _increment, _forget]
Change = Callable[[PostgresTileMetadataStore], None]


def _rows(database: Database) -> list[tuple[object, ...]]:
    columns = "x, voting_status, uploaded_at IS NULL, upload_attempts"
    with database.reading() as connection:
        rows = connection.execute(text(f"SELECT {columns} FROM tiles ORDER BY x"))  # noqa: S608
        return [tuple(row) for row in rows]


def test_invariant_10_a_commit_that_did_not_arrive_is_an_error_and_changes_nothing(
    database: Database, cut_off: Database, proxy: PostgresProxy
) -> None:
    for change in CHANGES:
        store = store_in(cut_off)
        PostgresBlobIndex(database).forget([TILE])
        store_tiles(store_in(database), new_tile())
        before = _rows(database)
        proxy.cut_at_commit(Cut.BEFORE_COMMIT)
        with pytest.raises(DatabaseError, match="the connection was lost"):
            change(store)
        assert _rows(database) == before
    assert proxy.cuts == len(CHANGES)


def test_invariant_10_a_commit_whose_answer_is_lost_counts_exactly_once(
    database: Database, cut_off: Database, proxy: PostgresProxy
) -> None:
    store, direct = store_in(cut_off), store_in(database)
    for change in CHANGES:
        seen = []
        for through in (direct, store):
            PostgresBlobIndex(database).forget([TILE, new_tile(1).tile_id])
            store_tiles(direct, new_tile())
            if through is store:
                proxy.cut_at_commit(Cut.AFTER_COMMIT)
            change(through)
            seen.append(_rows(database))
        assert seen[0] == seen[1]
    assert proxy.cuts == len(CHANGES)


def test_invariant_10_a_server_that_has_not_noticed_is_made_to_decide(
    database: Database, cut_off: Database, proxy: PostgresProxy
) -> None:
    store_tiles(store_in(database), new_tile())
    proxy.cut_at_commit(Cut.UNNOTICED)
    with pytest.raises(DatabaseError, match="the connection was lost"):
        store_in(cut_off).increment_upload_attempts(TILE)
    # The row would still be locked, had the other session been left alone.
    assert store_in(database).increment_upload_attempts(TILE) == 1


def test_invariant_10_a_commit_that_nobody_can_tell_of_is_neither_success_nor_failure(
    database: Database, proxy: PostgresProxy, database_url: str
) -> None:
    store_tiles(store_in(database), new_tile())
    cut_off = Database(Database.at(proxy.address_of(database_url)).engine, resolve_s=0.3)
    store = store_in(cut_off)
    assert store.get_metadata(TILE) is not None
    proxy.cut_at_commit(Cut.AFTER_COMMIT)
    proxy.refuse()
    with pytest.raises(DatabaseError, match="does not say whether it counted") as caught:
        store.increment_upload_attempts(TILE)
    assert "once the server is back" in str(caught.value)
    proxy.refuse(refusing=False)
    assert known(store).upload_attempts == 1
    cut_off.close()


def test_invariant_10_a_server_may_take_its_time_to_come_back(
    database: Database, cut_off: Database, proxy: PostgresProxy
) -> None:
    store_tiles(store_in(database), new_tile())
    store = store_in(cut_off)
    assert store.get_metadata(TILE) is not None
    proxy.cut_at_commit(Cut.AFTER_COMMIT)
    proxy.refuse()
    back = threading.Timer(0.7, lambda: proxy.refuse(refusing=False))
    back.start()
    assert store.increment_upload_attempts(TILE) == 1
    back.join()


def test_invariant_10_a_flush_whose_answer_is_lost_is_not_repeated(
    database: Database, cut_off: Database, proxy: PostgresProxy
) -> None:
    store = store_in(cut_off)
    proxy.cut_at_commit(Cut.AFTER_COMMIT)
    store_tiles(store, new_tile())
    known(store)
    PostgresBlobIndex(database).forget([TILE])
    store.flush()
    assert store.get_metadata(TILE) is None


def test_invariant_10_a_flush_that_was_cut_succeeds_when_it_is_repeated(
    cut_off: Database, proxy: PostgresProxy
) -> None:
    store, tile = store_in(cut_off), new_tile()
    proxy.cut_at_commit(Cut.BEFORE_COMMIT)
    with pytest.raises(DatabaseError):
        store_tiles(store, tile)
    assert store.get_metadata(TILE) is None
    store.flush()
    assert known(store).blob == tile.blob
