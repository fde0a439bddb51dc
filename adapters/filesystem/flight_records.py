"""Flight records from a file, or from an operator who says so."""

from datetime import datetime
from pathlib import Path

from attrs import frozen

from tileferry.adapters.filesystem.files import translated
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import FlightRecord, FlightState

_BYTES_MAX = 65_537


@frozen(kw_only=True)
class FlightRecordFile:
    """Reads the file each time it is asked: it may have changed."""

    path: Path | None

    def current(self) -> FlightRecord:
        """Return what the file says now."""
        if self.path is None:
            raise InvalidValueError(
                field="c11.flight_record_file",
                value=None,
                problem="is not set, so nothing says that the aircraft has landed",
                remedy="set it where the worker runs; or, for one upload, name a record"
                " (--flight-record FILE; in a program flight_record=Path), or say that you see"
                " it stand there (--on-ground; in a program on_ground=True)",
            )
        with translated("read", self.path), self.path.open("rb") as file:
            content = file.read(_BYTES_MAX)
        return FlightRecord.parse(content)


@frozen(kw_only=True)
class OperatorsWord:
    """An operator confirms that the aircraft has landed."""

    flight_id: str
    said_at: datetime

    def current(self) -> FlightRecord:
        """Return what was said."""
        return FlightRecord(
            flight_id=self.flight_id, state=FlightState.ON_GROUND, recorded_at=self.said_at
        )
