"""Makes the report of a flight: judges it, and reads the imagery of its areas."""

from datetime import UTC, date, datetime

from tileferry.domain.errors import DamagedTileError, TileNotFoundError
from tileferry.domain.tiles import TileId
from tileferry.entrypoints.installation import Installation
from tileferry.entrypoints.report.flight import FlightReport
from tileferry.entrypoints.report.mosaic import build_mosaic
from tileferry.entrypoints.tile_source import format_credits

PICTURES_MAX = 12
"""Areas with a map; a page with more would be too large to send."""


def make_flight_report(
    installation: Installation, flight: str, *, on: date | None = None, quick: bool = False
) -> FlightReport:
    """Return the report of a flight; ``quick`` judges from the metadata alone."""
    summary = installation.flights.get_summary(flight)
    judged = installation.readiness.check_flight(summary.flight, on=on, quick=quick)
    store = installation.tile_store

    def read(tile: TileId) -> bytes | None:
        try:
            return store.read_tile(tile)
        except (TileNotFoundError, DamagedTileError):
            return None

    return FlightReport(
        summary=summary,
        judged=judged,
        mosaics=[
            build_mosaic(report.coverage, report.source, read) if number < PICTURES_MAX else None
            for number, report in enumerate(judged.reports)
        ],
        made_at=datetime.fromtimestamp(installation.clock.now(), UTC),
        credits=format_credits(installation.config),
    )
