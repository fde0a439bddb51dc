"""The count of rejected uploads: exact under contention and when connections break, and no less."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import chain
from random import Random
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from sqlalchemy import text
from support.proxies import Cut, create_postgres_proxy
from support.tile_rows import NOW, TILE, create_metadata_store, create_tile, get_tile, store_tiles

from tileferry.adapters.postgres import Database, PostgresBlobIndex
from tileferry.domain.errors import DatabaseError
from tileferry.domain.tiles import VotingStatus

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS = 8
TILES = [evolve(TILE, x=x) for x in range(THREADS)]


def _read_count(database: Database) -> int:
    with database.read_connection() as connection:
        return int(connection.execute(text("SELECT upload_attempts FROM tiles")).scalar_one())


def test_spec1_ac7_different_tiles_do_not_block_each_other(database: Database) -> None:
    store = create_metadata_store(database)
    store_tiles(store, *(create_tile(tile.x) for tile in TILES))

    def count_ten(number: int) -> list[int]:
        return [store.increment_upload_attempts(TILES[number]) for _ in range(10)]

    with ThreadPoolExecutor(THREADS) as threads:
        with database.transaction() as holding:
            holding.execute(text("SELECT 1 FROM tiles WHERE x = 0 FOR UPDATE"))
            first, *others = [threads.submit(count_ten, number) for number in range(THREADS)]
            assert wait(others, timeout=20).not_done == set()
            assert not first.done()
        assert [done.result(timeout=20) for done in (first, *others)] == [
            list(range(1, 11))
        ] * THREADS
    assert [get_tile(store, tile).upload_attempts for tile in TILES] == [10] * THREADS


def test_spec1_ac7_concurrent_increments_of_one_tile_are_exact(database: Database) -> None:
    store = create_metadata_store(database)
    store_tiles(store, create_tile())
    ready = threading.Barrier(THREADS)

    def count_fifty() -> list[int]:
        ready.wait()
        return [store.increment_upload_attempts(TILE) for _ in range(50)]

    with ThreadPoolExecutor(THREADS) as threads:
        done = [threads.submit(count_fifty) for _ in range(THREADS)]
        results = [each.result() for each in done]
    assert sorted(chain(*results)) == list(range(1, 401))
    assert all(result == sorted(result) for result in results)
    assert _read_count(database) == 400


def test_spec1_ac7_increments_of_another_process_are_included(
    database: Database, database_url: str
) -> None:
    # A second pool stands for a second process: nothing of the first one's memory is in it.
    stores = [
        create_metadata_store(database),
        create_metadata_store(Database.from_url(database_url)),
    ]
    store_tiles(stores[0], create_tile())
    with ThreadPoolExecutor(2) as threads:
        done = [
            threads.submit(lambda s: [s.increment_upload_attempts(TILE) for _ in range(25)], store)
            for store in stores
        ]
        results = [each.result() for each in done]
    assert sorted(chain(*results)) == list(range(1, 51))
    stores[1].database.close()


def test_giveup_is_a_stored_status(database: Database) -> None:
    assert {"PENDING", "TRUSTED", "REJECTED", "UPLOAD_GIVEUP"} <= set(VotingStatus.__members__)
    store = create_metadata_store(database)
    store_tiles(store, create_tile())
    store.update_voting_status(TILE, VotingStatus.UPLOAD_GIVEUP)
    assert get_tile(store).voting_status is VotingStatus.UPLOAD_GIVEUP
    # The table takes every status of the enum, and none besides.
    force = text("UPDATE tiles SET voting_status = :status, uploaded_at = :uploaded_at")
    for status in VotingStatus:
        uploaded_at = NOW if status in {VotingStatus.UPLOADED, VotingStatus.REJECTED} else None
        with database.transaction() as connection:
            connection.execute(force, {"status": status.value, "uploaded_at": uploaded_at})
        assert get_tile(store).voting_status is status
    with (
        pytest.raises(DatabaseError, match="tiles_voting_status"),
        database.transaction() as connection,
    ):
        connection.execute(force, {"status": "lost", "uploaded_at": None})


def test_invariant_9_only_increment_changes_the_count(database: Database) -> None:
    store, index = create_metadata_store(database), PostgresBlobIndex(database)
    first = create_tile()
    store_tiles(store, first)
    for _ in range(3):
        store.increment_upload_attempts(TILE)
    moved = evolve(first.blob, location=(9, first.blob.location[1]))
    uses: list[Callable[[], object]] = [
        lambda: store_tiles(store, first),
        lambda: store_tiles(store, create_tile(produced_at=NOW)),
        lambda: store_tiles(store, create_tile(), create_tile(produced_at=NOW)),
        lambda: store_tiles(store, create_tile(voting_status=VotingStatus.TRUSTED)),
        lambda: index.move([(TILE, get_tile(store).blob, moved)]),
        lambda: store.mark_used([TILE]),
        lambda: store.mark_uploaded(TILE),
        lambda: store.mark_uploaded(TILE),
        lambda: store_tiles(store, create_tile(produced_at=NOW)),
        lambda: store.update_voting_status(TILE, VotingStatus.UPLOAD_GIVEUP),
        lambda: store_tiles(store, create_tile(produced_at=NOW)),
        lambda: list(store.pending_uploads("F1")),
    ]
    for use in uses:
        use()
        assert get_tile(store).upload_attempts == 3
    assert store.increment_upload_attempts(TILE) == 4


def test_invariant_9_attempt_is_counted_once_wherever_the_connection_breaks(
    database: Database, database_url: str
) -> None:
    store_tiles(create_metadata_store(database), create_tile())
    outcomes = set()
    with create_postgres_proxy(database_url) as proxy:
        through = Database.from_url(proxy.get_proxied_url(database_url))
        store = create_metadata_store(through)
        # A call is some six chunks, either way. It breaks after each one of them, and then where
        # chance will have it: also while a connection is made, or the server asked.
        chance = Random(7)  # noqa: S311  # a test
        for chunks in [*range(8), *(chance.randrange(24) for _ in range(40))]:
            if chunks < 8:
                get_tile(store)  # so that there is a connection
            before = _read_count(database)
            proxy.cut_after(chunks)
            try:
                counted = store.increment_upload_attempts(TILE)
            except DatabaseError:
                assert _read_count(database) == before
                outcomes.add("refused")
            else:
                assert counted == before + 1 == _read_count(database)
                outcomes.add("counted")
            proxy.cut_after(None)
        assert proxy.cuts > 20
        through.close()
    assert outcomes == {"refused", "counted"}


def test_invariant_9_concurrent_increments_with_lost_commits_are_exact(
    database: Database, database_url: str
) -> None:
    store_tiles(create_metadata_store(database), create_tile())
    with create_postgres_proxy(database_url) as proxy:
        through = Database.from_url(proxy.get_proxied_url(database_url))
        store = create_metadata_store(through)

        def count_some(seed: int) -> list[int]:
            chance, counted = Random(seed), []  # noqa: S311  # a test
            for _ in range(12):
                if chance.random() < 0.5:
                    proxy.cut_at_commit(chance.choice([Cut.BEFORE_COMMIT, Cut.AFTER_COMMIT]))
                with contextlib.suppress(DatabaseError):
                    counted.append(store.increment_upload_attempts(TILE))
            return counted

        with ThreadPoolExecutor(THREADS) as threads:
            results = list(threads.map(count_some, range(THREADS)))
        assert proxy.cuts > 10
        through.close()
    # Every number was told to one caller: none twice, and none that nobody was told of.
    assert sorted(chain(*results)) == list(range(1, _read_count(database) + 1))
