"""Flights in Postgres: their areas as spans of tiles, pins and end dates."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from attrs import evolve, frozen
from sqlalchemy import ColumnElement, Connection, delete, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert

from tileferry.adapters.postgres.audit_log import append_events
from tileferry.adapters.postgres.database import Database
from tileferry.adapters.postgres.patience import repeat_when_lost
from tileferry.adapters.postgres.schema import (
    flight_areas,
    flight_pins,
    flight_spans,
    flights,
    tiles,
)
from tileferry.application.audit import build_flight_event
from tileferry.domain.tiles import (
    Area,
    BBox,
    Flight,
    FlightArea,
    FlightUsage,
    OperatorNote,
    SectorClass,
)

# Serializes decisions about space with each other and with pins, across processes: a pin that
# returned protects its tiles from every later eviction. The number is arbitrary but must be unique.
_DECISION_LOCK = 7_411_224


def lock_decisions(connection: Connection) -> None:
    """Wait for other decisions about space; block them until the transaction ends."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _DECISION_LOCK})


def is_protected() -> ColumnElement[bool]:
    """Return the condition that a tile's row belongs to a pinned flight."""
    pinned = (
        select(flight_pins.c.flight_id)
        .join(flights, flights.c.flight_id == flight_pins.c.flight_id)
        .where(or_(flights.c.expires_at.is_(None), flights.c.expires_at > func.now()))
    )
    inside = (
        select(flight_spans.c.area_id)
        .join(flight_areas, flight_areas.c.area_id == flight_spans.c.area_id)
        .where(_is_in_span(), flight_areas.c.flight_id.in_(pinned))
        .exists()
    )
    return or_(inside, tiles.c.flight_id.in_(pinned))


def belongs_to_flight() -> ColumnElement[bool]:
    """Return the condition that a tile's row belongs to any known flight."""
    inside = select(flight_spans.c.area_id).where(_is_in_span()).exists()
    return or_(inside, tiles.c.flight_id.in_(select(flights.c.flight_id)))


def _is_in_span() -> ColumnElement[bool]:
    return (
        (flight_spans.c.source == tiles.c.source)
        & (flight_spans.c.zoom == tiles.c.zoom)
        & tiles.c.x.between(flight_spans.c.x_min, flight_spans.c.x_max)
        & tiles.c.y.between(flight_spans.c.y_min, flight_spans.c.y_max)
    )


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
            added = connection.execute(
                insert(flight_areas)
                .values(
                    flight_id=flight_id,
                    source=area.source,
                    bbox=str(area.area.bbox),
                    zoom_levels=list(area.area.zoom_levels),
                    sector_class=area.area.sector_class.value,
                    added_at=area.added_at,
                )
                .on_conflict_do_nothing()
                .returning(flight_areas.c.area_id)
            ).scalar_one_or_none()
            if added is not None:
                connection.execute(insert(flight_spans), _build_spans(added, area))
        return added is not None

    @repeat_when_lost
    def find_flight(self, flight_id: str) -> Flight | None:
        """Return a flight with its areas."""
        with self.database.read_connection() as connection:
            return _read_flights(connection, flight_id).get(flight_id)

    def list_flights(self) -> Sequence[Flight]:
        """Return all flights, sorted by id."""
        with self.database.read_connection() as connection:
            return list(_read_flights(connection).values())

    def measure_usage(self) -> Mapping[str, FlightUsage]:
        """Return the stored tiles of each flight that has any."""
        with self.database.read_connection() as connection:
            rows = connection.execute(_USAGE).all()
        return {
            row.flight_id: FlightUsage(
                tiles=row.tiles,
                size_bytes=row.size_bytes,
                shared_tiles=row.shared_tiles,
                shared_bytes=row.shared_bytes,
                oldest_produced_at=row.oldest,
                newest_produced_at=row.newest,
            )
            for row in rows
        }

    def pin_flight(self, flight_id: str, note: OperatorNote) -> None:
        """Protect a flight's tiles from eviction; pinning twice changes nothing."""

        def pin(connection: Connection, now: datetime) -> None:
            _create_flight(connection, flight_id)
            statement = insert(flight_pins).values(flight_id=flight_id, pinned_at=now)
            connection.execute(statement.on_conflict_do_nothing())

        self._change(flight_id, "pin", note, pin)

    def unpin_flight(self, flight_id: str, note: OperatorNote) -> None:
        """Allow a flight's tiles to be evicted again."""

        def unpin(connection: Connection, _now: datetime) -> None:
            connection.execute(delete(flight_pins).where(flight_pins.c.flight_id == flight_id))

        self._change(flight_id, "unpin", note, unpin)

    def set_expiry(self, flight_id: str, at: datetime | None, note: OperatorNote) -> None:
        """Set the time from which a flight's pin has no effect."""

        def expire(connection: Connection, _now: datetime) -> None:
            _create_flight(connection, flight_id)
            changed = update(flights).where(flights.c.flight_id == flight_id)
            connection.execute(changed.values(expires_at=at))

        self._change(flight_id, "expire", note, expire)

    def remove_flight(self, flight_id: str, note: OperatorNote) -> None:
        """Remove a flight with its areas and its pin."""

        def remove(connection: Connection, _now: datetime) -> None:
            for table in (flight_pins, flights):
                connection.execute(delete(table).where(table.c.flight_id == flight_id))

        self._change(flight_id, "remove", note, remove)

    def _change(
        self,
        flight_id: str,
        transition: str,
        note: OperatorNote,
        change: Callable[[Connection, datetime], None],
    ) -> None:
        with self.database.transaction() as connection:
            lock_decisions(connection)
            now = connection.execute(select(func.now())).scalar_one()
            before = _read_flights(connection, flight_id).get(flight_id)
            change(connection, now)
            after = _read_flights(connection, flight_id).get(flight_id)
            event = build_flight_event(before, after, transition, note, now=now)
            if event is not None and self.audited:  # last: it blocks other writers of the log
                append_events(connection, [event])


def _create_flight(connection: Connection, flight_id: str) -> None:
    new = insert(flights).values(flight_id=flight_id, created_at=func.now())
    connection.execute(new.on_conflict_do_nothing())


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


def _read_flights(connection: Connection, flight_id: str | None = None) -> dict[str, Flight]:
    query = (
        select(flights.c.flight_id, flight_pins.c.pinned_at, flights.c.expires_at)
        .outerjoin(flight_pins, flight_pins.c.flight_id == flights.c.flight_id)
        .order_by(flights.c.flight_id)
    )
    areas = select(flight_areas).order_by(flight_areas.c.area_id)
    if flight_id is not None:
        query = query.where(flights.c.flight_id == flight_id)
        areas = areas.where(flight_areas.c.flight_id == flight_id)
    found = {
        row.flight_id: Flight(
            flight_id=row.flight_id, pinned_at=row.pinned_at, expires_at=row.expires_at
        )
        for row in connection.execute(query)
    }
    by_flight: dict[str, list[FlightArea]] = {}
    for row in connection.execute(areas):
        area = Area(
            bbox=BBox.parse(row.bbox),
            zoom_levels=row.zoom_levels,
            sector_class=SectorClass(row.sector_class),
        )
        by_flight.setdefault(row.flight_id, []).append(
            FlightArea(source=row.source, area=area, added_at=row.added_at)
        )
    return {name: evolve(flight, areas=by_flight.get(name, ())) for name, flight in found.items()}


_USAGE = text(
    """
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
)
