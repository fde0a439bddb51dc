"""Flights in Postgres: their areas as spans of tiles, pins and end dates."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.patience import repeat_when_lost
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.tiles import (
    Area,
    BBox,
    Flight,
    FlightArea,
    FlightUsage,
    OperatorNote,
    SectorClass,
    Shape,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

with import_on_call(globals()):  # for changes
    from tileferry.adapters.postgres.audit_log import append_events
    from tileferry.application.audit import build_flight_event

# Serializes decisions about space with each other and with pins, across processes: a pin that
# returned protects its tiles from every later eviction. The number is arbitrary but must be unique.
_DECISION_LOCK = 7_411_224


def lock_decisions(connection: "Connection") -> None:
    """Wait for other decisions about space; block them until the transaction ends."""
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_DECISION_LOCK})")


# The index on boxes finds the few spans around a tile. Among 6,000 spans of a corridor, 2.5 µs a
# tile instead of 65.
_IN_SPAN = """
    box(point(s.x_min, s.y_min), point(s.x_max, s.y_max))
        @> box(point(tiles.x, tiles.y), point(tiles.x, tiles.y))
    AND s.source = tiles.source AND s.zoom = tiles.zoom
    AND tiles.x BETWEEN s.x_min AND s.x_max AND tiles.y BETWEEN s.y_min AND s.y_max
"""
_PINNED = """(
    SELECT flight_id FROM flight_pins JOIN flights USING (flight_id)
    WHERE expires_at IS NULL OR expires_at > now()
)"""
IS_PROTECTED = f"""(
    EXISTS (
        SELECT FROM flight_spans AS s JOIN flight_areas AS a USING (area_id)
        WHERE {_IN_SPAN} AND a.flight_id IN {_PINNED}
    ) OR tiles.flight_id IN {_PINNED}
)"""  # interpolates constants only, here and below
"""The condition that a tile's row belongs to a pinned flight."""
BELONGS_TO_FLIGHT = f"""(
    EXISTS (SELECT FROM flight_spans AS s WHERE {_IN_SPAN})
    OR tiles.flight_id IN (SELECT flight_id FROM flights)
)"""  # noqa: S608
"""The condition that a tile's row belongs to any known flight."""


@frozen(kw_only=True)
class PostgresFlightBook:
    """Stores flights; each change and its audit event are one transaction."""

    database: Database
    audited: bool = True
    """Whether changes write audit events to this database."""

    @repeat_when_lost
    def add_flight(self, flight_id: str) -> None:
        """Create a flight without areas, unless it exists."""
        with self.database.transaction() as connection:
            _create_flight(connection, flight_id)

    @repeat_when_lost
    def add_area(self, flight_id: str, area: FlightArea) -> bool:
        """Add an area to a flight; return whether it is new. A new flight is created."""
        with self.database.transaction() as connection:
            lock_decisions(connection)
            _create_flight(connection, flight_id)
            shape = area.area.shape
            values = {
                "flight_id": flight_id,
                "source": area.source,
                "bbox": str(area.area.bbox),
                "zoom_levels": list(area.area.zoom_levels),
                "sector_class": area.area.sector_class.value,
                "added_at": area.added_at,
                "shape": None if shape is None else str(shape),
                "shape_digest": "" if shape is None else shape.digest,
            }
            added = connection.exec_driver_sql(_ADD_AREA, values).scalar_one_or_none()
            if added is not None:
                connection.exec_driver_sql(_ADD_SPANS, _build_spans(added, area))
        return added is not None

    @repeat_when_lost
    def find_flight(self, flight_id: str) -> Flight | None:
        """Return a flight with its areas."""
        return _read_flights(self.database.fetch_rows, flight_id).get(flight_id)

    def list_flights(self) -> Sequence[Flight]:
        """Return all flights, sorted by id."""
        return list(_read_flights(self.database.fetch_rows).values())

    def measure_usage(self) -> Mapping[str, FlightUsage]:
        """Return the stored tiles of each flight that has any."""
        return {
            row.flight_id: FlightUsage(
                tiles=row.tiles,
                size_bytes=row.size_bytes,
                shared_tiles=row.shared_tiles,
                shared_bytes=row.shared_bytes,
                oldest_produced_at=row.oldest,
                newest_produced_at=row.newest,
            )
            for row in self.database.fetch_rows(_USAGE)
        }

    def pin_flight(self, flight_id: str, note: OperatorNote) -> None:
        """Protect a flight's tiles from eviction; pinning twice changes nothing."""

        def pin(connection: "Connection", now: datetime) -> None:
            _create_flight(connection, flight_id)
            connection.exec_driver_sql(_PIN, {"flight_id": flight_id, "now": now})

        self._change(flight_id, "pin", note, pin)

    def unpin_flight(self, flight_id: str, note: OperatorNote) -> None:
        """Allow a flight's tiles to be evicted again."""

        def unpin(connection: "Connection", _now: datetime) -> None:
            connection.exec_driver_sql(_UNPIN, {"flight_id": flight_id})

        self._change(flight_id, "unpin", note, unpin)

    def set_expiry(self, flight_id: str, at: datetime | None, note: OperatorNote) -> None:
        """Set the time from which a flight's pin has no effect."""

        def expire(connection: "Connection", _now: datetime) -> None:
            _create_flight(connection, flight_id)
            connection.exec_driver_sql(_EXPIRE, {"flight_id": flight_id, "at": at})

        self._change(flight_id, "expire", note, expire)

    def remove_flight(self, flight_id: str, note: OperatorNote) -> None:
        """Remove a flight with its areas and its pin."""

        def remove(connection: "Connection", _now: datetime) -> None:
            for statement in (_UNPIN, _REMOVE):
                connection.exec_driver_sql(statement, {"flight_id": flight_id})

        self._change(flight_id, "remove", note, remove)

    def _change(
        self,
        flight_id: str,
        transition: str,
        note: OperatorNote,
        change: Callable[["Connection", datetime], None],
    ) -> None:
        with self.database.transaction() as connection:
            lock_decisions(connection)
            now = connection.exec_driver_sql("SELECT now()").scalar_one()
            before = _read_flights(connection.exec_driver_sql, flight_id).get(flight_id)
            change(connection, now)
            after = _read_flights(connection.exec_driver_sql, flight_id).get(flight_id)
            event = build_flight_event(before, after, transition, note, now=now)
            if event is not None and self.audited:  # last: it blocks other writers of the log
                append_events(connection, [event])


def _create_flight(connection: "Connection", flight_id: str) -> None:
    connection.exec_driver_sql(_CREATE, {"flight_id": flight_id})


def _build_spans(area_id: int, area: FlightArea) -> list[dict[str, object]]:
    return [
        {
            "area_id": area_id,
            "source": area.source,
            "zoom": span.zoom,
            "x_min": span.x_min,
            "x_max": span.x_max,
            "y_min": span.y_min,
            "y_max": span.y_max,
        }
        for span in area.area.coverage.ranges
    ]


def _read_flights(
    fetch_rows: Callable[[str, dict[str, object]], Iterable[Any]], flight_id: str | None = None
) -> dict[str, Flight]:
    wanted: dict[str, object] = {"flight_id": flight_id}
    condition = "" if flight_id is None else "WHERE flight_id = %(flight_id)s"
    found = {
        row.flight_id: Flight(
            flight_id=row.flight_id, pinned_at=row.pinned_at, expires_at=row.expires_at
        )
        for row in fetch_rows(_FLIGHTS.format(condition=condition), wanted)
    }
    by_flight: dict[str, list[FlightArea]] = {}
    for row in fetch_rows(_AREAS.format(condition=condition), wanted):
        area = Area(
            bbox=BBox.parse(row.bbox),
            zoom_levels=row.zoom_levels,
            sector_class=SectorClass(row.sector_class),
            shape=None if row.shape is None else Shape.parse(row.shape),
        )
        by_flight.setdefault(row.flight_id, []).append(
            FlightArea(source=row.source, area=area, added_at=row.added_at)
        )
    return {name: evolve(flight, areas=by_flight.get(name, ())) for name, flight in found.items()}


_FLIGHTS = """
    SELECT flight_id, pinned_at, expires_at FROM flights LEFT JOIN flight_pins USING (flight_id)
    {condition} ORDER BY flight_id
"""
_AREAS = "SELECT * FROM flight_areas {condition} ORDER BY area_id"
_CREATE = """
    INSERT INTO flights (flight_id, created_at) VALUES (%(flight_id)s, now())
    ON CONFLICT DO NOTHING
"""
_ADD_AREA = """
    INSERT INTO flight_areas (flight_id, source, bbox, zoom_levels, sector_class, added_at,
        shape, shape_digest)
    VALUES (%(flight_id)s, %(source)s, %(bbox)s, %(zoom_levels)s::smallint[], %(sector_class)s,
        %(added_at)s, %(shape)s, %(shape_digest)s)
    ON CONFLICT DO NOTHING RETURNING area_id
"""
_ADD_SPANS = """
    INSERT INTO flight_spans (area_id, source, zoom, x_min, x_max, y_min, y_max)
    VALUES (%(area_id)s, %(source)s, %(zoom)s, %(x_min)s, %(x_max)s, %(y_min)s, %(y_max)s)
"""
_PIN = """
    INSERT INTO flight_pins (flight_id, pinned_at) VALUES (%(flight_id)s, %(now)s)
    ON CONFLICT DO NOTHING
"""
_UNPIN = "DELETE FROM flight_pins WHERE flight_id = %(flight_id)s"
_EXPIRE = "UPDATE flights SET expires_at = %(at)s WHERE flight_id = %(flight_id)s"
_REMOVE = "DELETE FROM flights WHERE flight_id = %(flight_id)s"
_USAGE = """
    WITH member AS (
        SELECT a.flight_id, t.source, t.zoom, t.x, t.y, t.byte_length, t.produced_at
        FROM flight_areas a
        JOIN flight_spans s USING (area_id)
        JOIN tiles t ON t.source = s.source AND t.zoom = s.zoom
            AND t.x BETWEEN s.x_min AND s.x_max AND t.y BETWEEN s.y_min AND s.y_max
        UNION
        SELECT flight_id, source, zoom, x, y, byte_length, produced_at
        FROM tiles JOIN flights USING (flight_id)
    ), counted AS (
        SELECT *, count(*) OVER (PARTITION BY source, zoom, x, y) AS users FROM member
    )
    SELECT flight_id,
        count(*) AS tiles,
        sum(byte_length)::bigint AS size_bytes,
        count(*) FILTER (WHERE users > 1) AS shared_tiles,
        coalesce(sum(byte_length) FILTER (WHERE users > 1), 0)::bigint AS shared_bytes,
        min(produced_at) AS oldest,
        max(produced_at) AS newest
    FROM counted GROUP BY flight_id
    """
