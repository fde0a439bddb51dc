"""What is known of a flight: whether its aircraft stands on the ground."""

from datetime import datetime
from enum import StrEnum

from attrs import field, frozen

from tileferry.domain.errors import FlightStateNotOnGroundError
from tileferry.domain.json import JsonObject, parse_json
from tileferry.domain.validation import aware, instance, name

_PATH = "flight record"
_RECORD_BYTES_MAX = 65_536


class FlightState(StrEnum):
    """Where an aircraft is."""

    ON_GROUND = "on_ground"
    AIRBORNE = "airborne"
    UNKNOWN = "unknown"


@frozen(kw_only=True)
class FlightRecord:
    """What somebody, or something, recorded of a flight."""

    flight_id: str = field(validator=name)
    state: FlightState = field(validator=instance(FlightState))
    recorded_at: datetime = field(validator=aware)

    def check_on_ground(self, flight_id: str | None = None) -> None:
        """Refuse unless the aircraft has landed; a record of another flight proves nothing."""
        if flight_id is not None and self.flight_id != flight_id:
            raise FlightStateNotOnGroundError(
                flight_id=flight_id, state=f"not known: the record is of {self.flight_id}"
            )
        if self.state is not FlightState.ON_GROUND:
            raise FlightStateNotOnGroundError(flight_id=self.flight_id, state=self.state.value)

    @classmethod
    def parse(cls, content: bytes) -> "FlightRecord":
        """Read a flight record file."""
        found = parse_json(content, field=_PATH, bytes_max=_RECORD_BYTES_MAX)
        data = JsonObject.from_value(found, _PATH)
        with data.locate_errors():
            return cls(
                flight_id=data.get("flight_id", str),
                state=data.get_enum("state", FlightState),
                recorded_at=data.get_datetime("recorded_at"),
            )
