"""Flights in Postgres: how their spans are searched."""

from support.cache_env import NOTE, NOW, TILE

from tileferry.adapters.postgres import Database, PostgresFlightBook
from tileferry.adapters.postgres.flights import IS_PROTECTED
from tileferry.domain.tiles import Area, FlightArea, SectorClass, Shape


def test_spans_around_a_tile_are_found_by_their_index(database: Database) -> None:
    book = PostgresFlightBook(database=database)
    shape = Shape.from_degrees(lines=[[(36.0, 50.0), (38.0, 51.2)]])
    area = Area.from_place(shape, [18], SectorClass.STABLE_REAR)
    assert len(area.coverage.ranges) > 1_000
    book.add_area("F1", FlightArea(source=TILE.source, area=area, added_at=NOW))
    book.pin_flight("F1", NOTE)
    with database.transaction() as connection:
        connection.exec_driver_sql("ANALYZE flight_spans")
        plan = connection.exec_driver_sql(f"EXPLAIN SELECT FROM tiles WHERE {IS_PROTECTED}")
        assert "flight_spans_by_box" in "\n".join(row[0] for row in plan)
