"""A download records its area for its flight, and evicts none of the flight's tiles."""

import pytest
from attrs import evolve
from support.memory_download_env import BOX, MemoryDownloadEnv, create_request

from tileferry.adapters.memory import MemoryCacheLedger, MemoryFlightBook
from tileferry.application import AreaDownload, CacheBudget
from tileferry.domain.errors import CacheBudgetExceededError
from tileferry.domain.tiles import FlightArea, OperatorNote, TileId


def create_book(area: MemoryDownloadEnv) -> MemoryFlightBook:
    return MemoryFlightBook(tiles=area.metadata, clock=area.bench.clock)


class FakeDisk:
    """A disk with room."""

    def free_bytes(self) -> int:
        return 10**12

    def total_bytes(self) -> int:
        return 10**12


def create_download(
    area: MemoryDownloadEnv, book: MemoryFlightBook, budget_bytes: int
) -> AreaDownload:
    budget = CacheBudget(
        ledger=MemoryCacheLedger(tiles=area.metadata, flights=book),
        disk=FakeDisk(),
        reclaim=lambda: None,
        find_reservation_id=lambda: "test",
        budget_bytes=budget_bytes,
        free_space_reserve_bytes=0,
    )
    return area.create_download(flights=book, budget_enforcer=budget)


def test_area_is_recorded_before_the_first_call() -> None:
    area = MemoryDownloadEnv.with_tiles(3)
    book, seen = create_book(area), []
    area.provider.on_call = lambda: seen.append(book.find_flight("F1"))
    request = create_request()
    area.create_download(flights=book).download_tiles_for_area(request)
    assert seen[0] is not None
    assert [item.area for item in seen[0].areas] == [request.area]
    assert seen[0].areas[0].source == area.provider.source


def test_part_of_an_area_is_not_recorded_again() -> None:
    area = MemoryDownloadEnv.with_tiles(3)
    book = create_book(area)
    download = area.create_download(flights=book)
    download.download_tiles_for_area(create_request())
    download.download_tiles_for_area(create_request())
    known = book.find_flight("F1")
    assert known is not None
    assert len(known.areas) == 1
    higher = create_request(zoom_levels=(*create_request().zoom_levels, 15))
    download.download_tiles_for_area(higher)
    known = book.find_flight("F1")
    assert known is not None
    assert [item.area for item in known.areas] == [create_request().area, higher.area]


def test_tiles_of_the_flights_other_areas_are_not_evicted() -> None:
    area = MemoryDownloadEnv.with_tiles(3)
    book = create_book(area)
    create_download(area, book, 10**6).download_tiles_for_area(create_request(flight_id="F2"))
    request = create_request()
    elsewhere = evolve(request.area, bbox=evolve(BOX, west=BOX.west - 1, east=BOX.east - 1))
    stored = area.metadata.all_tiles()
    used_bytes = sum(tile.blob.length for tile in stored)
    book.add_area(
        "F3",
        FlightArea(source=area.provider.source, area=request.area, added_at=stored[0].stored_at),
    )
    download = create_download(area, book, used_bytes)
    area.provider.box = elsewhere.bbox
    with pytest.raises(CacheBudgetExceededError):
        download.download_tiles_for_area(create_request(flight_id="F3", bbox=elsewhere.bbox))
    book.pin_flight("F2", OperatorNote(by="ann"))
    with pytest.raises(CacheBudgetExceededError):
        download.download_tiles_for_area(create_request(flight_id="F4", bbox=elsewhere.bbox))
    book.unpin_flight("F2", OperatorNote(by="ann"))
    download.download_tiles_for_area(create_request(flight_id="F4", bbox=elsewhere.bbox))
    assert not set(area.list_stored()) & {tile.tile_id for tile in stored}


def test_kept_tiles_without_flights_are_those_of_the_batch() -> None:
    area = MemoryDownloadEnv.with_tiles(1)
    done: set[TileId] = set()
    assert area.create_download().find_kept(create_request(), done) is done
