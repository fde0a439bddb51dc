"""What the database itself refuses, whatever the code may think."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import insert, text
from support.tile_rows import NOW, TILE, create_metadata_store, create_tile, get_tile, store_tiles

from tileferry.adapters.postgres import Database, PostgresBlobIndex
from tileferry.adapters.postgres.schema import (
    absent_tiles,
    bound_cache,
    cache_reservations,
    flight_areas,
    flight_spans,
    flights,
    refused_tiles,
    tile_origins,
    tiles,
)
from tileferry.adapters.postgres.work_schema import runs
from tileferry.domain.errors import DatabaseError
from tileferry.domain.tiles import VotingStatus

ROW: dict[str, Any] = {
    "source": "cam",
    "zoom": 3,
    "x": 7,
    "y": 0,
    "flight_id": "F1",
    "produced_at": NOW,
    "resolution_m_per_px": 0.6,
    "sector_class": "stable_rear",
    "freshness": "fresh",
    "voting_status": "trusted",
    "segment": 1,
    "byte_offset": 0,
    "byte_length": 0,
    "sha256": bytes(32),
    "stored_at": NOW,
    "last_used_at": NOW,
}
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("tiles_zoom", {"zoom": 22}),
    ("tiles_x", {"x": -1}),
    ("tiles_x", {"x": 8}),
    ("tiles_y", {"y": -1}),
    ("tiles_y", {"y": 8}),
    ("tiles_resolution", {"resolution_m_per_px": 0.0}),
    ("tiles_resolution", {"resolution_m_per_px": -1.0}),
    ("tiles_resolution", {"resolution_m_per_px": float("nan")}),
    ("tiles_resolution", {"resolution_m_per_px": float("inf")}),
    ("tiles_sector_class", {"sector_class": "elsewhere"}),
    ("tiles_freshness", {"freshness": "stale"}),
    ("tiles_voting_status", {"voting_status": "lost"}),
    ("tiles_blob", {"segment": 0}),
    ("tiles_blob", {"byte_offset": -1}),
    ("tiles_blob", {"byte_length": -1}),
    ("tiles_sha256", {"sha256": bytes(31)}),
    ("tiles_sha256", {"sha256": bytes(33)}),
    ("tiles_upload_attempts", {"upload_attempts": -1}),
    ("tiles_uploaded_at", {"voting_status": "pending", "uploaded_at": NOW}),
    ("tiles_uploaded_at", {"voting_status": "upload_giveup", "uploaded_at": NOW}),
    ("tiles_uploaded_at", {"voting_status": "uploaded"}),
    ("tiles_uploaded_at", {"voting_status": "rejected"}),
]


def _insert(database: Database, **changes: Any) -> None:
    with database.transaction() as connection:
        connection.execute(insert(tiles), {**ROW, **changes})


def _count(database: Database) -> int:
    with database.read_connection() as connection:
        return int(connection.execute(text("SELECT count(*) FROM tiles")).scalar_one())


def test_invalid_tile_rows_are_rejected(database: Database) -> None:
    for constraint, changes in REFUSED:
        with pytest.raises(DatabaseError, match=f'"{constraint}"') as caught:
            _insert(database, **changes)
        assert "nothing was stored" in str(caught.value)
    for column, value in ROW.items():
        with pytest.raises(DatabaseError, match=f'null value in column "{column}"'):
            _insert(database, **{column: None})
        assert value is not None
    assert _count(database) == 0
    _insert(database)


def test_every_check_constraint_of_tiles_is_covered(database: Database) -> None:
    checks = text(
        "SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid = 'tiles'::regclass"
    )
    with database.read_connection() as connection:
        assert set(connection.execute(checks).scalars()) == {name for name, _ in REFUSED}


def test_boundary_tile_rows_are_accepted(database: Database) -> None:
    edges: list[dict[str, Any]] = [
        {"zoom": 0, "x": 0},
        {"zoom": 21, "x": 2**21 - 1, "y": 2**21 - 1},
        {"byte_offset": 2**62, "byte_length": 64 * 2**20, "segment": 2**31 - 1, "source": "a"},
        {"voting_status": "trusted", "uploaded_at": NOW, "source": "b"},
        {"voting_status": "rejected", "uploaded_at": NOW, "source": "c"},
    ]
    for number, changes in enumerate(edges):
        _insert(database, **{"byte_offset": number, **changes})
    assert _count(database) == len(edges)


def test_duplicate_blob_or_duplicate_tile_is_rejected(database: Database) -> None:
    _insert(database)
    with pytest.raises(DatabaseError, match='"tiles_by_blob"'):
        _insert(database, x=6)
    with pytest.raises(DatabaseError, match='"tiles_pkey"'):
        _insert(database, byte_offset=1)


@pytest.mark.parametrize(
    ("changes", "constraint"),
    [({"one_row": False}, "bound_cache_one_row"), ({"cache_id": "../x"}, "bound_cache_id")],
)
def test_bound_cache_has_one_row_with_a_valid_id(
    database: Database, changes: dict[str, Any], constraint: str
) -> None:
    row = {"cache_id": "0" * 32, "place": "/cache", "bound_at": NOW}
    with (
        pytest.raises(DatabaseError, match=f'"{constraint}"'),
        database.transaction() as connection,
    ):
        connection.execute(insert(bound_cache), {**row, **changes})


AREA = {
    "flight_id": "F1",
    "source": "cam",
    "bbox": "0,0,1,1",
    "zoom_levels": [3],
    "sector_class": "stable_rear",
    "added_at": NOW,
}
SPAN = {"source": "cam", "zoom": 3, "x_min": 0, "x_max": 7, "y_min": 0, "y_max": 7}


@pytest.mark.parametrize(
    ("area", "span", "constraint"),
    [
        ({"flight_id": "F2"}, {}, "flight_areas_flight"),
        ({"sector_class": "rear"}, {}, "flight_areas_sector_class"),
        ({}, {"x_max": 8}, "flight_spans_range"),
        ({}, {"x_min": -1}, "flight_spans_range"),
        ({}, {"y_min": 5, "y_max": 4}, "flight_spans_range"),
    ],
)
def test_impossible_area_of_a_flight_is_rejected(
    database: Database, area: dict[str, Any], span: dict[str, Any], constraint: str
) -> None:
    with pytest.raises(DatabaseError, match=f'"{constraint}"'):
        _insert_area(database, {**AREA, **area}, {**SPAN, **span})


def _insert_area(database: Database, area: dict[str, Any], span: dict[str, Any]) -> None:
    with database.transaction() as connection:
        connection.execute(insert(flights), {"flight_id": "F1", "created_at": NOW})
        added = insert(flight_areas).returning(flight_areas.c.area_id)
        area_id = connection.execute(added, area).scalar_one()
        connection.execute(insert(flight_spans), {**span, "area_id": area_id})


@pytest.mark.parametrize(
    ("changed", "constraint"),
    [({"zoom": 22}, "zoom"), ({"x": -1}, "x"), ({"x": 8}, "x"), ({"y": 8}, "y")],
)
def test_absent_tile_outside_the_grid_is_rejected(
    database: Database, changed: dict[str, int], constraint: str
) -> None:
    row = {"source": "sat", "zoom": 3, "x": 1, "y": 1, "absent_at": NOW, **changed}
    with (
        pytest.raises(DatabaseError, match=f'"absent_tiles_{constraint}"'),
        database.transaction() as connection,
    ):
        connection.execute(insert(absent_tiles), row)


@pytest.mark.parametrize(
    ("changed", "constraint"),
    [
        ({"zoom": 22}, "zoom"),
        ({"x": 8}, "x"),
        ({"y": -1}, "y"),
        ({"sector_class": "sea"}, "sector_class"),
        ({"gate": "garden"}, "gate"),
        ({"resolution_m_per_px": 0.0}, "resolution"),
    ],
)
def test_invalid_refused_tile_is_rejected(
    database: Database, changed: dict[str, object], constraint: str
) -> None:
    row = {"source": "sat", "zoom": 3, "x": 1, "y": 1, "sector_class": "stable_rear"}
    refusal = {"gate": "freshness", "resolution_m_per_px": 0.6}
    times = {"produced_at": NOW, "refused_at": NOW}
    with (
        pytest.raises(DatabaseError, match=f'"refused_tiles_{constraint}"'),
        database.transaction() as connection,
    ):
        connection.execute(insert(refused_tiles), {**row, **refusal, **times, **changed})


@pytest.mark.parametrize(
    ("changed", "constraint"),
    [
        ({"zoom": 22}, "zoom"),
        ({"x": 8}, "x"),
        ({"y": -1}, "y"),
        ({"sha256": b"short"}, "sha256"),
        ({"origin": ""}, "origin"),
    ],
)
def test_invalid_tile_origin_is_rejected(
    database: Database, changed: dict[str, object], constraint: str
) -> None:
    row = {"source": "sat", "zoom": 3, "x": 1, "y": 1, "sha256": bytes(32), "origin": "other"}
    with (
        pytest.raises(DatabaseError, match=f'"tile_origins_{constraint}"'),
        database.transaction() as connection,
    ):
        connection.execute(insert(tile_origins), {**row, **changed})


def test_negative_reservation_is_rejected(database: Database) -> None:
    row = {"reservation_id": "r", "reserved_bytes": -1, "expires_at": NOW}
    with (
        pytest.raises(DatabaseError, match='"cache_reservations_bytes"'),
        database.transaction() as connection,
    ):
        connection.execute(insert(cache_reservations), row)
    assert {table.name for table in runs.metadata.sorted_tables} == {
        "tiles",
        "flight_pins",
        "flights",
        "flight_areas",
        "flight_spans",
        "cache_reservations",
        "absent_tiles",
        "refused_tiles",
        "tile_origins",
        "bound_cache",
        # tried beside their stores
        "audit_head",
        "audit_log",
        "idempotency_records",
        "upload_envelopes",
        "partition_attempts",
        "partition_moves",
        "partition_retries",
        "partitions",
        "raw_partitions",
        "run_attempts",
        "runs",
        "session_commits",
        "source_gates",
    }, "a new table has constraints to be tried here"


def test_failed_flush_stores_nothing_and_can_be_repeated(database: Database) -> None:
    store = create_metadata_store(database)
    store_tiles(store, create_tile(1))
    taken = get_tile(store, create_tile(1).tile_id).blob
    good, bad = create_tile(2), create_tile(3, blob=taken)
    store.insert_metadata(good)
    store.insert_metadata(bad)
    for _ in range(2):
        with pytest.raises(DatabaseError, match="tiles_by_blob"):
            store.flush()
        assert store.get_metadata(good.tile_id) is None
        assert store.get_metadata(bad.tile_id) is None
    # What stood in the way goes; what waited has been waiting all along.
    PostgresBlobIndex(database).forget([create_tile(1).tile_id])
    store.flush()
    assert get_tile(store, good.tile_id).blob == good.blob
    assert get_tile(store, bad.tile_id).blob == bad.blob


def test_tiles_added_during_a_failed_flush_stay_newer(database: Database) -> None:
    store = create_metadata_store(database)
    store_tiles(store, create_tile(1))
    first = create_tile(2, produced_at=NOW)
    store.insert_metadata(first)
    store.insert_metadata(create_tile(3, blob=get_tile(store, create_tile(1).tile_id).blob))
    write = store.detach()
    later, older = create_tile(2, produced_at=NOW), create_tile(2)
    store.insert_metadata(later)
    store.insert_metadata(older)
    with pytest.raises(DatabaseError):
        write()
    PostgresBlobIndex(database).forget([create_tile(1).tile_id])
    store.flush()
    assert get_tile(store, first.tile_id).blob == later.blob


def test_capture_wins_over_a_download_in_the_same_batch(database: Database) -> None:
    store = create_metadata_store(database)
    capture = create_tile()
    download = create_tile(produced_at=NOW, voting_status=VotingStatus.TRUSTED)
    store_tiles(store, capture, download)
    assert get_tile(store).blob == capture.blob


def test_flush_waits_for_another_threads_batch(
    database: Database,
) -> None:
    store = create_metadata_store(database)
    store_tiles(store, create_tile())
    store.insert_metadata(create_tile(produced_at=NOW))
    store.insert_metadata(create_tile(1))
    with ThreadPoolExecutor(2) as threads:
        with database.transaction() as holding:
            holding.execute(text("SELECT 1 FROM tiles FOR UPDATE"))
            flushes = [threads.submit(store.flush) for _ in range(2)]
            threading.Event().wait(0.2)
            assert [flush.done() for flush in flushes] == [False, False]
        for flush in flushes:
            flush.result(timeout=10)
    assert get_tile(store, create_tile(1).tile_id) is not None


def test_concurrent_changes_to_the_same_tiles_do_not_deadlock(database: Database) -> None:
    ids = [evolve(TILE, x=x) for x in range(60)]
    index, errors = PostgresBlobIndex(database), list[DatabaseError]()
    stop = threading.Event()

    def again_and_again(number: int) -> None:
        store = create_metadata_store(database)
        mine = ids if number % 2 else ids[::-1]
        while not stop.is_set():
            try:
                store_tiles(store, *(create_tile(tile.x) for tile in mine))
                store.mark_used(mine)
                places = [(tile, index.locate(tile)) for tile in mine[:9]]
                index.move(
                    [
                        (tile, at, evolve(at, location=(9, at.location[1])))
                        for tile, at in places
                        if at
                    ]
                )
                index.forget(mine[::7])
            except DatabaseError as error:
                errors.append(error)

    with ThreadPoolExecutor(6) as threads:
        done = [threads.submit(again_and_again, number) for number in range(6)]
        stop.wait(1.0)
        stop.set()
        for each in done:
            each.result()
    assert errors == []
