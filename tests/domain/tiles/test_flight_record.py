"""Flight records: only an aircraft on the ground opens the upload."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tileferry.domain.errors import FlightStateNotOnGroundError, InvalidValueError
from tileferry.domain.tiles import FlightRecord, FlightState

GOOD = {"flight_id": "F1", "state": "on_ground", "recorded_at": "2026-10-20T08:30:00Z"}


def parse(data: Any) -> FlightRecord:
    return FlightRecord.parse(json.dumps(data).encode())


def test_flight_record_is_parsed() -> None:
    record = parse({**GOOD, "pilot": "somebody"})
    assert record == FlightRecord(
        flight_id="F1",
        state=FlightState.ON_GROUND,
        recorded_at=datetime(2026, 10, 20, 8, 30, tzinfo=UTC),
    )
    record.check_on_ground()
    record.check_on_ground("F1")


def test_record_of_other_flight_is_rejected() -> None:
    with pytest.raises(
        FlightStateNotOnGroundError, match="F2 is unknown: the record is for flight F1"
    ):
        parse(GOOD).check_on_ground("F2")


@pytest.mark.parametrize("state", ["airborne", "unknown"])
def test_state_other_than_on_ground_is_rejected(state: str) -> None:
    with pytest.raises(FlightStateNotOnGroundError, match=f"F1 is {state}, not on the ground"):
        parse({**GOOD, "state": state}).check_on_ground("F1")


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ([], "flight record"),
        ({}, "flight record.flight_id"),
        ({**GOOD, "state": 7}, "flight record.state"),
        ({**GOOD, "state": "landed"}, "flight record.state"),
        ({**GOOD, "recorded_at": "yesterday"}, "flight record.recorded_at"),
        ({**GOOD, "flight_id": "../x"}, "flight record.flight_id"),
    ],
)
def test_invalid_flight_record_is_rejected_by_field(data: Any, field: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        parse(data)
    assert refusal.value.field == field
