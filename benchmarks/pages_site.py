"""Where the benchmarks of the console take place: a large installation, and ``tileferry serve``."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
from attrs import frozen

from benchmarks.audit import made_event
from benchmarks.cache_site import COLUMN, NOW, ZOOM, fill_rows, opened, tile_at
from tileferry.adapters.postgres import Database, PostgresAuditLog
from tileferry.adapters.postgres.flights import PostgresFlightBook
from tileferry.domain.tiles import Area, BlobRef, FlightArea, SectorClass, TileRange

TILES = PARTITIONS = 1_000_000
RUNS = ENTRIES = 100_000
GIVEUPS = 5_000
STORED = 5_000
"""Tiles with bytes; the others are rows alone."""
GROUP = 1_000
TILE_BYTES = 20_000
FLIGHTS = 20
_PAYLOAD = (
    '{"bbox":"2.0,48.0,2.1,48.1","flight_id":"F1","sector_class":"stable_rear","source":"osm",'
    '"version":1,"zoom_levels":[15,16]}'
)

FILL = (
    # of each hundred runs one waits for its retry, one has failed for good, one is queued
    """
    INSERT INTO runs (run_id, kind, source, priority, submitted_date, payload, status, ready,
        lease_epoch, worker, began_at, ended_at, retry_count, next_retry_at, error_class,
        error_message)
    SELECT format('0193a2b4c5d6-%%s', lpad(to_hex(n), 16, '0')), 'download_area', 'osm', 0,
        now() - n * interval '1 second', %(payload)s, state, state = 'discovered',
        CASE state WHEN 'discovered' THEN 0 ELSE 1 END,
        CASE state WHEN 'discovered' THEN NULL ELSE 'w1' END,
        CASE state WHEN 'discovered' THEN NULL ELSE now() END,
        CASE state WHEN 'discovered' THEN NULL ELSE now() END,
        CASE state WHEN 'error' THEN 1 ELSE 0 END,
        CASE WHEN state = 'error' AND n %% 200 = 1 THEN now() + interval '1 hour' END,
        CASE state WHEN 'error' THEN 'retryable' END,
        CASE state WHEN 'error' THEN 'provider: HTTP 503, after 5 attempts' END
    FROM generate_series(1, %(runs)s) AS n, LATERAL (
        SELECT CASE n %% 100 WHEN 1 THEN 'error' WHEN 2 THEN 'discovered' ELSE 'passed' END AS state
    ) AS _
    """,
    """
    INSERT INTO runs (run_id, kind, source, priority, submitted_date, payload, status, ready,
        lease_epoch, worker, began_at, ended_at, error_message)
    SELECT format('partition-%%s', lpad(n::text, 8, '0')), 'acquire_partition', 'sat', 1,
        now() - interval '30 days' - n * interval '1 second', %(payload)s, state, false, 1, 'w1',
        now(), now(), CASE state WHEN 'failed' THEN '6 of 36 tiles missing' END
    FROM generate_series(1, %(partitions)s) AS n, LATERAL (
        SELECT CASE n %% 200 WHEN 0 THEN 'failed' ELSE 'passed' END AS state
    ) AS _
    """,
    """
    INSERT INTO partitions (source, customer_id, query_name, logical_date, status, attempt_count,
        last_run_id, current_run_id, error_message, created_at, updated_at, transition, changed_by)
    SELECT 'sat', 'customer-' || (n / 1000) %% 50, 'query-' || n / 50000,
        '2024-01-01'::date + n %% 1000, CASE n %% 200 WHEN 0 THEN 'failed' ELSE 'success' END, 1,
        format('partition-%%s', lpad(n::text, 8, '0')),
        CASE n %% 200 WHEN 0 THEN NULL ELSE format('partition-%%s', lpad(n::text, 8, '0')) END,
        CASE n %% 200 WHEN 0 THEN '6 of 36 tiles missing' END, now(), now(), 'accept', 'validator'
    FROM generate_series(1, %(partitions)s) AS n
    """,
    """
    INSERT INTO partition_attempts
    SELECT id, 1, last_run_id, CASE status WHEN 'failed' THEN 'failed' ELSE 'passed' END,
        error_message, now() FROM partitions
    """,
    """
    UPDATE tiles SET voting_status = 'upload_giveup', flight_id = 'F' || x %% 20
    WHERE (x, y) IN (SELECT n / %(column)s, n %% %(column)s
                     FROM generate_series(%(tiles)s - %(giveups)s, %(tiles)s - 1) AS n)
    """,
)


def fill_installation(folder: Path, url: str) -> None:
    """Make a large installation."""
    with opened(folder / "cache", url) as cache:
        blobs: list[BlobRef] = []
        for number in range(STORED):
            content = b"\xff\xd8\xff\xe0" + os.urandom(TILE_BYTES - 4)
            blobs.append(cache.tiles.write_tile(tile_at(number), content))
        cache.tiles.flush()
    fill_rows(url, TILES, blobs)
    values = {
        "payload": _PAYLOAD,
        "runs": RUNS,
        "partitions": PARTITIONS,
        "tiles": TILES,
        "giveups": GIVEUPS,
        "column": COLUMN,
    }
    with psycopg.connect(url) as connection:
        # The raw partitions are left out, so their references must not be checked.
        connection.execute("SET LOCAL session_replication_role = replica")
        for statement in FILL:
            connection.execute(statement.encode(), values)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    database = Database.from_url(url)
    log, flights = PostgresAuditLog(database=database), PostgresFlightBook(database=database)
    for _ in range(ENTRIES // GROUP):
        log.emit([made_event() for _ in range(GROUP)])
    height = COLUMN // FLIGHTS
    for number in range(FLIGHTS):
        rows = TileRange(
            zoom=ZOOM, x_min=0, x_max=99, y_min=number * height, y_max=(number + 1) * height - 1
        )
        area = Area(bbox=rows.bounds, zoom_levels=[ZOOM], sector_class=SectorClass.STABLE_REAR)
        added = FlightArea(source="sat", area=area, added_at=NOW - timedelta(days=1))
        flights.add_area(f"F{number}", added)
    database.close()


@frozen
class Served:
    """A running ``tileferry serve``."""

    url: str
    pid: int


@contextmanager
def serve(folder: Path, url: str) -> Iterator[Served]:
    """Run ``tileferry serve`` on an installation."""
    environment = {
        **os.environ,
        "TILEFERRY_DATABASE_URL": url,
        "TILEFERRY_C11_CACHE_ROOT": str(folder / "cache"),
        "TILEFERRY_LOG_FILE": str(folder / "log"),
    }
    command = [sys.executable, "-m", "tileferry.entrypoints.cli", "serve", "--port", "0", "--json"]
    with subprocess.Popen(  # noqa: S603  # our own command
        command, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            answer = json.loads(process.stdout.readline())
            yield Served(answer["url"], process.pid)
        finally:
            process.terminate()
