"""The use cases of flights, in memory."""

from datetime import UTC, datetime, timedelta

import pytest
from support.cache_env import NOTE, NOW, CacheEnv, area_of, create_memory_cache_env

from tileferry.adapters.memory import MemoryTileMetadataStore
from tileferry.application.cache.flights import FlightPin, FlightRegister
from tileferry.domain.errors import (
    FarAreaError,
    InvalidValueError,
    NotFoundError,
    ProtectedFlightError,
    Remedy,
)
from tileferry.domain.tiles import (
    BBox,
    FlightStatus,
    OperatorNote,
    TileId,
    VotingStatus,
    build_capture_source,
)

SILENT = OperatorNote(by="ann@desk")
PAST, FUTURE = NOW - timedelta(days=2), NOW + timedelta(days=2)


@pytest.fixture
def env() -> CacheEnv:
    return create_memory_cache_env()


@pytest.fixture
def register(env: CacheEnv) -> FlightRegister:
    assert isinstance(env.store, MemoryTileMetadataStore)
    env.flights.add_area("F1", area_of(15, [1, 2]))
    return FlightRegister(book=env.flights, tiles=env.store, clock=env.clock)


def capture(env: CacheEnv, flight: str, status: VotingStatus) -> None:
    tile_id = TileId(source=build_capture_source(flight), zoom=15, x=7, y=0)
    env.fill(7, tile_id=tile_id, flight_id=flight, voting_status=VotingStatus.PENDING)
    env.store.update_voting_status(tile_id, status)


def test_pin_reports_areas_and_tiles(env: CacheEnv, register: FlightRegister) -> None:
    env.fill(1, 2, flight_id="F2")
    assert register.pin("F1", SILENT) == FlightPin(
        flight_id="F1", pinned=True, tiles=2, pinned_flights=("F1",), areas=1
    )
    assert register.unpin("F1", SILENT) == FlightPin(
        flight_id="F1", pinned=False, tiles=2, pinned_flights=(), areas=1
    )
    unknown = register.unpin("F9", SILENT)
    assert (unknown.tiles, unknown.areas) == (0, 0)
    with pytest.raises(InvalidValueError, match="flight_id"):
        register.pin("no name", SILENT)


def test_pin_of_an_expired_flight_removes_its_end(register: FlightRegister) -> None:
    register.expire("F1", PAST, SILENT)
    assert register.list_pinned() == ()
    assert register.pin("F1", SILENT).pinned_flights == ("F1",)
    assert register.get_flight("F1").expires_at is None


def test_end_in_the_past_needs_a_reason_if_pinned(register: FlightRegister) -> None:
    register.pin("F1", SILENT)
    assert register.expire("F1", FUTURE, SILENT).status is FlightStatus.PINNED
    with pytest.raises(ProtectedFlightError, match="pinned") as caught:
        register.expire("F1", PAST, SILENT)
    assert caught.value.remedy is Remedy.GIVE_REASON
    assert register.expire("F1", PAST, NOTE).status is FlightStatus.EXPIRED
    assert register.expire("F1", None, SILENT).status is FlightStatus.PINNED


def test_pinned_flight_is_removed_only_with_a_reason(register: FlightRegister) -> None:
    register.pin("F1", SILENT)
    with pytest.raises(ProtectedFlightError, match="pinned"):
        register.remove("F1", SILENT)
    assert register.remove("F1", NOTE).flight.flight_id == "F1"
    with pytest.raises(NotFoundError, match="flight F1 not found"):
        register.remove("F1", NOTE)


def test_flight_with_captures_to_upload_is_not_removed(
    env: CacheEnv, register: FlightRegister
) -> None:
    capture(env, "F1", VotingStatus.PENDING)
    with pytest.raises(ProtectedFlightError, match="1 captured tiles are not uploaded") as caught:
        register.remove("F1", NOTE)
    assert caught.value.remedy is Remedy.UPLOAD_CAPTURES
    assert register.get_summary("F1").pending == 1


@pytest.mark.parametrize("status", [VotingStatus.UPLOADED, VotingStatus.UPLOAD_GIVEUP])
def test_flight_whose_captures_are_settled_can_be_removed(
    env: CacheEnv, register: FlightRegister, status: VotingStatus
) -> None:
    capture(env, "F1", status)
    summary = register.remove("F1", SILENT)
    given_up = int(status is VotingStatus.UPLOAD_GIVEUP)
    assert (summary.pending, summary.giveups, summary.uploaded) == (0, given_up, 1 - given_up)
    assert register.list_summaries() == []


def test_summaries_list_every_flight(env: CacheEnv, register: FlightRegister) -> None:
    env.fill(2, flight_id="F1")
    env.flights.add_area("F2", area_of(15, [2, 3]))
    found = register.list_summaries()
    assert [(item.flight.flight_id, item.usage.tiles) for item in found] == [("F1", 1), ("F2", 1)]
    assert [item.usage.shared_tiles for item in found] == [1, 1]


def test_far_area_is_refused_before_the_download(register: FlightRegister) -> None:
    far = BBox(west=10.0, south=10.0, east=11.0, north=11.0)
    with pytest.raises(FarAreaError):
        register.check_distances("F1", [far])
    register.check_distances("F9", [far])
    assert register.find_boxes("F1") == register.get_flight("F1").boxes
    assert register.find_boxes("F9") == register.find_boxes(None) == []


def test_times_are_in_utc(register: FlightRegister) -> None:
    register.pin("F1", SILENT)
    pinned_at = register.get_flight("F1").pinned_at
    assert pinned_at == datetime.fromtimestamp(NOW.timestamp(), UTC)
