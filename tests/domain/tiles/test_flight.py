"""Flights: their areas, pins and end dates."""

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from tileferry.domain.errors import FarAreaError, InvalidStateError, InvalidValueError
from tileferry.domain.tiles import (
    Area,
    BBox,
    Flight,
    FlightArea,
    FlightStatus,
    FlightUsage,
    SectorClass,
    TileId,
)
from tileferry.domain.tiles.flight import KeptTiles, check_distances, describe_location

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
DAY = timedelta(days=1)
BOX = BBox(west=36.1, south=49.9, east=36.4, north=50.1)
NEAR = BBox(west=37.0, south=49.9, east=37.2, north=50.1)
SWAPPED = BBox(west=49.9, south=36.1, east=50.1, north=36.4)
AREA = FlightArea(
    source="sat",
    area=Area(bbox=BOX, zoom_levels=[14], sector_class=SectorClass.STABLE_REAR),
    added_at=NOW,
)
FLIGHT = Flight(flight_id="F7", areas=[AREA])
INSIDE = next(AREA.area.coverage.tiles("sat"))


def test_membership_is_geometry_of_one_source() -> None:
    assert FLIGHT.contains(INSIDE)
    assert not FLIGHT.contains(evolve(INSIDE, source="other"))
    assert not FLIGHT.contains(TileId(source="sat", zoom=14, x=0, y=0))
    assert not FLIGHT.contains(evolve(INSIDE, zoom=15))
    assert not Flight(flight_id="F7").contains(INSIDE)


def test_coverages_are_those_of_one_source() -> None:
    other = evolve(AREA, source="other")
    flight = evolve(FLIGHT, areas=[AREA, other])
    assert flight.list_coverages("sat") == [AREA.area.coverage]
    with pytest.raises(InvalidStateError, match="it has no areas of source third"):
        flight.list_coverages("third")


def test_area_added_again_is_the_same_area() -> None:
    assert evolve(AREA, added_at=NOW + DAY) == AREA
    with pytest.raises(InvalidValueError, match=r"FlightArea\.source"):
        evolve(AREA, source="No Source")


def test_part_of_an_area_is_included_in_it() -> None:
    part = evolve(AREA.area, bbox=evolve(BOX, east=36.2))
    assert AREA.includes(evolve(AREA, area=part))
    assert not evolve(AREA, area=part).includes(AREA)
    assert not AREA.includes(evolve(AREA, source="other"))
    assert not AREA.includes(evolve(AREA, area=evolve(part, zoom_levels=[14, 15])))
    assert not AREA.includes(
        evolve(AREA, area=evolve(part, sector_class=SectorClass.ACTIVE_CONFLICT))
    )


@pytest.mark.parametrize(
    ("pinned_at", "expires_at", "status"),
    [
        (None, None, FlightStatus.UNPINNED),
        (None, NOW + DAY, FlightStatus.UNPINNED),
        (NOW, None, FlightStatus.PINNED),
        (NOW, NOW + DAY, FlightStatus.PINNED),
        (NOW, NOW, FlightStatus.EXPIRED),
        (None, NOW - DAY, FlightStatus.EXPIRED),
    ],
)
def test_only_a_pinned_flight_before_its_end_protects_tiles(
    pinned_at: datetime | None, expires_at: datetime | None, status: FlightStatus
) -> None:
    flight = evolve(FLIGHT, pinned_at=pinned_at, expires_at=expires_at)
    assert flight.get_status(NOW) is status
    protected = status is FlightStatus.PINNED
    outside = TileId(source="sat", zoom=3, x=0, y=0)
    assert flight.protects(INSIDE, NOW, stored_for="other") is protected
    assert flight.protects(outside, NOW, stored_for="F7") is protected
    assert not flight.protects(outside, NOW, stored_for="other")


def test_far_area_needs_confirmation() -> None:
    with pytest.raises(FarAreaError) as caught:
        check_distances(FLIGHT, [SWAPPED])
    assert caught.value.distance_km == pytest.approx(1_870, abs=30)
    assert caught.value.place.startswith("36.25°N 50.00°E")
    check_distances(FLIGHT, [BOX, NEAR])


def test_first_area_of_a_flight_can_be_anywhere_but_its_next_cannot() -> None:
    new = Flight(flight_id="new")
    check_distances(new, [SWAPPED])
    with pytest.raises(FarAreaError):
        check_distances(new, [BOX, SWAPPED])


def test_area_that_the_flight_has_is_not_checked_again() -> None:
    far = evolve(AREA, area=evolve(AREA.area, bbox=SWAPPED))
    check_distances(evolve(FLIGHT, areas=[AREA, far]), [SWAPPED])


def test_location_names_the_distance_from_other_areas() -> None:
    alone = "50.00°N 36.25°E, 21 x 22 km"
    assert describe_location(BOX, [BOX]) == alone
    assert describe_location(BOX, [BOX, NEAR]) == f"{alone}, 43 km from the flight's other areas"
    inside = evolve(BOX, east=36.2)
    assert describe_location(BOX, [inside]) == (
        f"{alone}, next to or inside the flight's other areas"
    )


def test_download_keeps_what_it_reuses_and_the_flights_other_areas() -> None:
    near = Area(bbox=NEAR, zoom_levels=[14], sector_class=SectorClass.STABLE_REAR)
    reused, replaced, *_ = near.coverage.tiles("sat")
    kept = KeptTiles(flight=FLIGHT, source="sat", requested=[near.coverage], reused=[{reused}])
    assert INSIDE in kept
    assert reused in kept
    assert replaced not in kept
    assert evolve(INSIDE, source="other") not in kept
    assert "a tile" not in kept


def test_usage_tells_own_from_shared_tiles() -> None:
    usage = FlightUsage(tiles=5, size_bytes=50, shared_tiles=2, shared_bytes=30)
    assert (usage.own_tiles, usage.own_bytes) == (3, 20)
