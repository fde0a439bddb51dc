"""The recorded state of a flight: whether the aircraft is on the ground."""

from datetime import datetime
from enum import StrEnum

from attrs import field, frozen

from tileferry.domain.errors import FlightStateNotOnGroundError
from tileferry.domain.json import JsonObject, parse_json
from tileferry.domain.validation import aware, instance, name

_PATH = "flight record"
_RECORD_BYTES_MAX = 65_536


class FlightState(StrEnum):
    ON_GROUND = "on_ground"
    AIRBORNE = "airborne"
    UNKNOWN = "unknown"


@frozen(kw_only=True)
class FlightRecord:
    """The state of a flight at one moment, as recorded by a person or a system."""

    flight_id: str = field(validator=name)
    state: FlightState = field(validator=instance(FlightState))
    recorded_at: datetime = field(validator=aware)

    def check_on_ground(self, flight_id: str | None = None) -> None:
        """Raise unless the aircraft is on the ground. A record of another flight is rejected."""
        if flight_id is not None and self.flight_id != flight_id:
            raise FlightStateNotOnGroundError(
                flight_id=flight_id, state=f"unknown: the record is for flight {self.flight_id}"
            )
        if self.state is not FlightState.ON_GROUND:
            raise FlightStateNotOnGroundError(flight_id=self.flight_id, state=self.state.value)

    @classmethod
    def parse(cls, content: bytes) -> "FlightRecord":
        """Parse the contents of a flight record file."""
        found = parse_json(content, field=_PATH, bytes_max=_RECORD_BYTES_MAX)
        data = JsonObject.from_value(found, _PATH)
        with data.locate_errors():
            return cls(
                flight_id=data.get("flight_id", str),
                state=data.get_enum("state", FlightState),
                recorded_at=data.get_datetime("recorded_at"),
            )
