"""Who says that the aircraft has landed."""

from datetime import UTC, datetime
from pathlib import Path

from tileferry.adapters.filesystem import FlightRecordFile, OperatorConfirmation
from tileferry.application.ports.uploads import FlightRecords
from tileferry.entrypoints.container import Container


def select_flight_records(
    container: Container, flight: str, record: Path | None, *, on_ground: bool
) -> FlightRecords | None:
    """Return the operator's word, or a file; ``None`` is whom the configuration names."""
    if on_ground:
        now = datetime.fromtimestamp(container.clock().now(), UTC)
        return OperatorConfirmation(flight_id=flight, said_at=now)
    return None if record is None else FlightRecordFile(path=record)
