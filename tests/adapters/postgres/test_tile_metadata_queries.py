"""Questions to a large table: answered by its indexes, a page at a time."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import atan, degrees, pi, sinh
from typing import Any

import pytest
from attrs import define, field
from sqlalchemy import event, text
from support.tile_rows import create_metadata_store, create_tile, insert_tile_block, store_tiles

from tileferry.adapters.postgres import Database, PostgresBlobIndex, tile_metadata
from tileferry.adapters.postgres.tile_metadata import PAGE_ROWS
from tileferry.domain.tiles import BBox, TileCoverage, TileId, TileRange

WORLD = BBox(west=-180, south=-85.06, east=180, north=85.06)
ZOOM = 9  # 512 columns of 512 rows; the first hundred columns are filled to row 500
COLUMNS, ROWS = 100, 500


@define
class StatementLog:
    """What was asked of the server, and how many rows each answer had."""

    statements: list[tuple[str, Any]] = field(factory=list)
    sizes: list[int] = field(factory=list)

    def note(
        self, _connection: object, cursor: Any, statement: str, parameters: Any, *_: object
    ) -> None:
        self.statements.append((statement, parameters))
        self.sizes.append(cursor.rowcount)


@contextmanager
def record_statements(database: Database) -> Iterator[StatementLog]:
    asked = StatementLog()
    event.listen(database.engine, "after_cursor_execute", asked.note)
    yield asked
    event.remove(database.engine, "after_cursor_execute", asked.note)


def _explain(database: Database, statement: str, parameters: Any) -> str:
    with database.read_connection() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS) {statement}", parameters)
        return "\n".join(rows.scalars())


def _create_bbox(x_min: int, x_max: int, y_min: int, y_max: int) -> BBox:
    """The box of some tiles, drawn a little inside them."""
    north_west = TileRange(zoom=ZOOM, x_min=x_min, x_max=x_max, y_min=y_min, y_max=y_max)
    size = 360 / 2**ZOOM
    edges = [_latitude(north_west.y_max + 0.9), _latitude(north_west.y_min + 0.1)]
    box = BBox(
        west=x_min * size - 180 + 0.1 * size,
        south=edges[0],
        east=(x_max + 1) * size - 180 - 0.1 * size,
        north=edges[1],
    )
    assert TileCoverage(bbox=box, zoom_levels=[ZOOM]).ranges == (north_west,)
    return box


def _latitude(row: float) -> float:
    return degrees(atan(sinh(pi * (1 - 2 * row / 2**ZOOM))))


def test_queries_on_fifty_thousand_rows_use_indexes_and_pages(
    database: Database,
) -> None:
    insert_tile_block(database, columns=COLUMNS, rows=ROWS, zoom=ZOOM)
    store, index = create_metadata_store(database), PostgresBlobIndex(database)
    with record_statements(database) as asked:
        found = [
            tile.tile_id for tile in store.query_by_bbox(_create_bbox(10, 29, 100, 124), [ZOOM])
        ]
        assert found == [
            TileId(source="cam", zoom=ZOOM, x=x, y=y)
            for x in range(10, 30)
            for y in range(100, 125)
        ]
        assert (
            len(list(store.query_by_bbox(_create_bbox(10, 29, 100, 124), [ZOOM], source="cam")))
            == 500
        )
        assert list(store.query_by_bbox(_create_bbox(10, 29, 100, 124), [ZOOM], source="sat")) == []
        assert store.get_metadata(found[0]) is not None
        assert index.locate(found[0]) is not None
        assert len(index.list_blobs(ZOOM, after_offset=40_000, limit=100)) == 100
        pending = store.pending_uploads("F1")
        first = [next(pending).tile_id for _ in range(PAGE_ROWS + 1)]
        assert (first[0].x, first[-1].x, first[-1].y) == (0, PAGE_ROWS // ROWS, 0)
        assert list(store.pending_uploads("F2")) == []
    assert len(asked.statements) > 8
    plans = [_explain(database, *question) for question in asked.statements]
    assert [plan for plan in plans if "Seq Scan" in plan or "Index" not in plan] == []
    # Newer servers find a way through the key too; those of before need the one made for it.
    assert "tiles_by_place" in plans[0]
    assert "tiles_by_place" in plans[1]
    used = {name for name in re.findall(r"tiles_\w+", "\n".join(plans)) if name != "tiles_pkey"}
    assert used == {"tiles_by_place", "tiles_by_blob", "tiles_pending"}
    assert max(asked.sizes) <= PAGE_ROWS


def test_iteration_is_complete_and_pages_stay_within_the_limit(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert_tile_block(database, columns=7, rows=101, zoom=ZOOM)
    # Several sources at one place, more than a page of them: a page may end within a place.
    store = create_metadata_store(database)
    more = [
        create_tile(tile_id=TileId(source=f"s{number:02}", zoom=ZOOM, x=3, y=50))
        for number in range(40)
    ]
    store_tiles(store, *more)
    everything = sorted(
        [(x, y, "cam") for x in range(7) for y in range(101)]
        + [(3, 50, tile.tile_id.source) for tile in more]
    )
    for page_rows in (1, 7, 101, 303, 10_000):
        monkeypatch.setattr(tile_metadata, "PAGE_ROWS", page_rows)
        monkeypatch.setattr(tile_metadata, "PENDING_PAGE_ROWS", page_rows)
        with record_statements(database) as asked:
            if page_rows > 1:  # one at a time is for the shorter list below
                found = [tile.tile_id for tile in store.query_by_bbox(WORLD, [ZOOM])]
                assert [(tile.x, tile.y, tile.source) for tile in found] == everything
            waiting = [tile.tile_id for tile in store.pending_uploads("F1")]
            assert waiting == sorted(waiting)
            assert len(waiting) == len(everything)
        assert max(asked.sizes) <= page_rows


def test_sparse_area_is_queried_in_few_statements(database: Database) -> None:
    store = create_metadata_store(database)
    far = [TileId(source="cam", zoom=21, x=x, y=y) for x, y in ((0, 5), (10**6, 7), (2**21 - 1, 9))]
    store_tiles(store, *(create_tile(tile_id=tile_id) for tile_id in far))
    with record_statements(database) as asked:
        assert [tile.tile_id for tile in store.query_by_bbox(WORLD, [21])] == far
        assert list(store.query_by_bbox(WORLD, [18, 19, 20])) == []
    assert len(asked.statements) < 20


def test_pending_uploads_are_ordered_by_tile_id(database: Database) -> None:
    store = create_metadata_store(database)
    names = ["a-b", "ab", "a.b", "a_b", "b", "a0", "a"]
    ids = [TileId(source=name, zoom=15, x=1, y=1) for name in names]
    store_tiles(store, *(create_tile(tile_id=tile_id) for tile_id in ids))
    assert [tile.tile_id for tile in store.pending_uploads("F1")] == sorted(ids)


def test_no_connection_is_held_between_pages(database: Database) -> None:
    insert_tile_block(database, columns=1, rows=200, zoom=ZOOM)
    store = create_metadata_store(database)
    readers: list[Iterator[object]] = []
    for _ in range(15):  # more than the pool has connections
        readers += [store.query_by_bbox(WORLD, [ZOOM]), store.pending_uploads("F1")]
        assert next(readers[-1])
        assert next(readers[-2])
    with database.read_connection() as connection:
        idle = text(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE state = 'idle in transaction' AND datname = current_database()"
        )
        assert connection.execute(idle).scalar_one() == 0
