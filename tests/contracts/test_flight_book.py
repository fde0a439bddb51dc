"""Flights, over every book: areas decide which tiles a flight has, and pins protect them."""

from datetime import timedelta

import pytest
from attrs import evolve
from support.cache_env import NOTE, NOW, TILE, CacheEnv, area_of

from tileferry.domain.tiles import (
    Area,
    Flight,
    FlightStatus,
    FlightUsage,
    OperatorNote,
    SectorClass,
    Shape,
    tile_bounds,
)


def test_flight_has_the_areas_that_were_added(cache_env: CacheEnv) -> None:
    first, second = area_of(15, [1, 2]), area_of(14, [3], source="other")
    assert cache_env.flights.find_flight("F1") is None
    assert cache_env.flights.add_area("F1", first)
    assert cache_env.flights.add_area("F1", second)
    assert not cache_env.flights.add_area("F1", evolve(first, added_at=NOW + timedelta(days=1)))
    cache_env.flights.add_flight("F0")
    cache_env.flights.add_flight("F1")
    flight = Flight(flight_id="F1", areas=[first, second])
    assert cache_env.flights.find_flight("F1") == flight
    assert cache_env.flights.list_flights() == [Flight(flight_id="F0"), flight]
    assert flight.areas[0].added_at == NOW


def test_area_of_a_flight_can_be_a_shape(cache_env: CacheEnv) -> None:
    box = area_of(15, [1, 2, 3], [0, 1, 2])
    bounds = box.area.bbox
    lower = [(bounds.west, bounds.north), (bounds.west, bounds.south), (bounds.east, bounds.south)]
    upper = [(bounds.west, bounds.north), (bounds.east, bounds.north), (bounds.east, bounds.south)]
    first, second = (
        evolve(
            box,
            area=Area.from_place(
                Shape.from_degrees(polygons=[[half]]), [15], SectorClass.STABLE_REAR
            ),
        )
        for half in (lower, upper)
    )
    for area in (first, second, box):
        assert cache_env.flights.add_area("F1", area)
        assert not cache_env.flights.add_area("F1", area)
    found = cache_env.flights.find_flight("F1")
    assert found == Flight(flight_id="F1", areas=[first, second, box])
    assert found.areas[0].area.shape != found.areas[1].area.shape


def test_pin_protects_the_tiles_of_a_shape_only(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 2, 3, flight_id="F2")
    ends = [tile_bounds(evolve(TILE, x=x)) for x in (1, 2)]
    line = [((box.west + box.east) / 2, (box.south + box.north) / 2) for box in ends]
    shape = Shape.from_degrees(lines=[line])
    area = evolve(area_of(15, [1]), area=Area.from_place(shape, [15], SectorClass.STABLE_REAR))
    cache_env.flights.add_area("F1", area)
    cache_env.flights.pin_flight("F1", NOTE)
    assert cache_env.flights.measure_usage()["F1"].tiles == 2
    assert [tile.x for tile in cache_env.budget(300).reserve_headroom(100).evicted] == [3]


def test_flights_share_the_tiles_where_their_areas_overlap(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 2, flight_id="F1")
    cache_env.fill(3, flight_id="F2", size=50)
    cache_env.fill(9, flight_id="removed")
    cache_env.flights.add_area("F1", area_of(15, [1, 2]))
    cache_env.flights.add_area("F2", area_of(15, [2, 3]))
    cache_env.flights.add_area("F2", area_of(15, [3]))
    cache_env.flights.add_flight("empty")
    usage = cache_env.flights.measure_usage()
    produced_at = NOW - timedelta(days=1)
    assert usage == {
        "F1": FlightUsage(
            tiles=2,
            size_bytes=200,
            shared_tiles=1,
            shared_bytes=100,
            oldest_produced_at=produced_at,
            newest_produced_at=produced_at,
        ),
        "F2": FlightUsage(
            tiles=2,
            size_bytes=150,
            shared_tiles=1,
            shared_bytes=100,
            oldest_produced_at=produced_at,
            newest_produced_at=produced_at,
        ),
    }
    assert (usage["F2"].own_tiles, usage["F2"].own_bytes) == (1, 50)


def test_tiles_imported_for_a_flight_are_counted_outside_its_areas(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 7, flight_id="F1")
    cache_env.flights.add_area("F1", area_of(15, [1]))
    assert cache_env.flights.measure_usage()["F1"].tiles == 2


@pytest.mark.parametrize("last_stored_for", ["F1", "F2"])
def test_pin_protects_every_tile_inside_the_areas(
    cache_env: CacheEnv, last_stored_for: str
) -> None:
    cache_env.fill(1, 2, flight_id=last_stored_for)
    cache_env.fill(3, flight_id="F3")
    cache_env.flights.add_area("F1", area_of(15, [1, 2]))
    cache_env.flights.pin_flight("F1", NOTE)
    result = cache_env.budget(300).reserve_headroom(100)
    assert [tile.x for tile in result.evicted] == [3]
    assert cache_env.budget(300, "other").reserve_headroom(100).insufficient


@pytest.mark.parametrize(
    "elsewhere", [area_of(15, [1], source="other"), area_of(14, [1]), area_of(15, [1], [5])]
)
def test_area_of_another_place_protects_nothing(cache_env: CacheEnv, elsewhere: object) -> None:
    cache_env.fill(1, flight_id="F2")
    cache_env.flights.add_area("F1", elsewhere)  # type: ignore[arg-type]  # an area
    cache_env.flights.pin_flight("F1", NOTE)
    assert [tile.x for tile in cache_env.budget(100).reserve_headroom(100).evicted] == [1]


def test_unpinned_flight_protects_nothing(cache_env: CacheEnv) -> None:
    cache_env.fill(1, flight_id="F2")
    cache_env.flights.add_area("F1", area_of(15, [1]))
    cache_env.flights.pin_flight("F1", NOTE)
    cache_env.flights.unpin_flight("F1", NOTE)
    cache_env.flights.unpin_flight("unknown", NOTE)
    assert cache_env.flights.find_flight("unknown") is None
    assert not cache_env.budget(100).reserve_headroom(100).insufficient


def test_pin_ends_at_the_expiry(cache_env: CacheEnv) -> None:
    cache_env.fill(1, flight_id="F2")
    cache_env.flights.add_area("F1", area_of(15, [1]))
    cache_env.flights.pin_flight("F1", NOTE)
    long_ago, far_ahead = NOW - timedelta(days=36_500), NOW + timedelta(days=36_500)
    cache_env.flights.set_expiry("F1", far_ahead, NOTE)
    assert cache_env.budget(100).preview_headroom(100).insufficient
    cache_env.flights.set_expiry("F1", None, NOTE)
    assert cache_env.budget(100).preview_headroom(100).insufficient
    cache_env.flights.set_expiry("F1", long_ago, NOTE)
    assert not cache_env.budget(100).preview_headroom(100).insufficient
    flight = cache_env.flights.find_flight("F1")
    assert flight is not None
    assert flight.get_status(NOW) is FlightStatus.EXPIRED


def test_removed_flight_leaves_its_tiles_to_others(cache_env: CacheEnv) -> None:
    cache_env.fill(1, 2, flight_id="F1")
    for flight in ("F1", "F2"):
        cache_env.flights.add_area(flight, area_of(15, [1 if flight == "F1" else 2]))
        cache_env.flights.pin_flight(flight, NOTE)
    cache_env.flights.remove_flight("F1", NOTE)
    cache_env.flights.remove_flight("F1", NOTE)
    assert [flight.flight_id for flight in cache_env.flights.list_flights()] == ["F2"]
    assert [tile.x for tile in cache_env.budget(200).reserve_headroom(100).evicted] == [1]
    cache_env.flights.add_area("F1", area_of(15, [1]))
    assert cache_env.flights.find_flight("F1") == Flight(flight_id="F1", areas=[area_of(15, [1])])


def test_changes_are_audited_with_their_reason(cache_env: CacheEnv) -> None:
    note = OperatorNote(by="ann@desk", reason="the flight is over")
    cache_env.flights.add_area("F1", area_of(15, [1]))
    cache_env.flights.pin_flight("F1", OperatorNote(by="ann@desk"))
    cache_env.flights.pin_flight("F1", OperatorNote(by="bob@desk"))
    cache_env.flights.set_expiry("F1", NOW - timedelta(days=36_500), note)
    cache_env.flights.remove_flight("F1", note)
    events = cache_env.read_flight_events()
    assert [(e.transition, e.from_status, e.to_status, e.reason) for e in events] == [
        ("pin", "unpinned", "pinned", None),
        ("expire", "pinned", "expired", "the flight is over"),
        ("remove", "expired", "removed", "the flight is over"),
    ]
    assert {(e.subject, e.actor) for e in events} == {("flight F1", "operator")}
    assert all(e.additional_context == {"by": "ann@desk"} for e in events)


def test_tile_id_of_area_helper_is_exact() -> None:
    assert [area_of(15, [1, 2]).contains(evolve(TILE, x=x)) for x in range(4)] == [
        False,
        True,
        True,
        False,
    ]
