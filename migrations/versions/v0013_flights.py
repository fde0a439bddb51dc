"""Flights and their areas, so that flights can share tiles and pins protect areas.

Flights are recorded from the existing tiles and pins. Their areas are not: rows
name only the flight that a tile was last stored for, and journals only a hash of the area. Until an
area is downloaded again (which fetches nothing that is stored), a pin protects the tiles that were
last stored for its flight, as before.
"""

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Create the tables, and record the flights that are known."""
    op.execute(
        """
        CREATE TABLE flights (
            flight_id text COLLATE "C" NOT NULL CONSTRAINT flights_pkey PRIMARY KEY,
            created_at timestamptz NOT NULL,
            expires_at timestamptz
        )
        """
    )
    op.execute(
        """
        CREATE TABLE flight_areas (
            area_id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT flight_areas_pkey PRIMARY KEY,
            flight_id text COLLATE "C" NOT NULL
                CONSTRAINT flight_areas_flight REFERENCES flights ON DELETE CASCADE,
            source text COLLATE "C" NOT NULL,
            bbox text COLLATE "C" NOT NULL,
            zoom_levels smallint[] NOT NULL,
            sector_class text NOT NULL,
            added_at timestamptz NOT NULL,
            CONSTRAINT flight_areas_once
                UNIQUE (flight_id, source, bbox, zoom_levels, sector_class),
            CONSTRAINT flight_areas_sector_class
                CHECK (sector_class IN ('active_conflict', 'stable_rear'))
        )
        """
    )
    op.execute(
        """
        CREATE TABLE flight_spans (
            area_id bigint NOT NULL
                CONSTRAINT flight_spans_area REFERENCES flight_areas ON DELETE CASCADE,
            source text COLLATE "C" NOT NULL,
            zoom smallint NOT NULL,
            x_min integer NOT NULL,
            x_max integer NOT NULL,
            y_min integer NOT NULL,
            y_max integer NOT NULL,
            CONSTRAINT flight_spans_pkey PRIMARY KEY (area_id, zoom, x_min, y_min),
            CONSTRAINT flight_spans_range CHECK (
                0 <= x_min AND x_min <= x_max AND x_max < (1 << zoom::integer)
                AND 0 <= y_min AND y_min <= y_max AND y_max < (1 << zoom::integer)
            )
        )
        """
    )
    op.execute("CREATE INDEX flight_spans_by_place ON flight_spans (source, zoom, x_min)")
    op.execute(
        """
        INSERT INTO flights (flight_id, created_at)
        SELECT flight_id, min(since) FROM (
            SELECT flight_id, stored_at AS since FROM tiles
            UNION ALL SELECT flight_id, pinned_at FROM flight_pins
        ) AS known GROUP BY flight_id
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE flight_spans")
    op.execute("DROP TABLE flight_areas")
    op.execute("DROP TABLE flights")
