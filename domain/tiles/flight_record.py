"""What is known of a flight: whether its aircraft stands on the ground."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from attrs import field, frozen

from tileferry.domain.checks import aware, instance, moment_of, name
from tileferry.domain.errors import FlightStateNotOnGroundError, InvalidValueError
from tileferry.domain.json_input import parse_json

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

    def confirm_on_ground(self, flight_id: str | None = None) -> None:
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
        data = parse_json(content, field="flight record", bytes_max=_RECORD_BYTES_MAX)
        if not isinstance(data, Mapping):
            raise InvalidValueError(
                field="flight record", value=type(data).__name__, problem="must be an object"
            )
        found = {}
        for key in ("flight_id", "state", "recorded_at"):
            value = data.get(key)
            if not isinstance(value, str):
                raise InvalidValueError(
                    field=f"flight record.{key}", value=value, problem="must be text"
                )
            found[key] = value
        if found["state"] not in list(FlightState):
            raise InvalidValueError(
                field="flight record.state",
                value=found["state"],
                problem=f"must be one of {', '.join(FlightState)}",
            )
        return cls(
            flight_id=found["flight_id"],
            state=FlightState(found["state"]),
            recorded_at=moment_of(found["recorded_at"], field="flight record.recorded_at"),
        )
